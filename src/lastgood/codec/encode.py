"""Values to canonical msgpack, lossless or loud (docs/reference/format.md, Values).

`encode` goes through a C encoder with all of its own conversions off, which runs no Python. What that encoder would
refuse, or get silently wrong (it writes a bytearray as bytes), is walked: it is encoded part by part and kept exactly,
or the path of what cannot be kept is named. Both ways give the same bytes for the same value.

Other threads may change the value meanwhile. The C encoder holds no references to what it reads, so it is never given
a hook: code of a hook, or a thread that runs meanwhile, could free what it points to. A walk iterates over copies of
containers, each of one moment.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal
from typing import Any
from uuid import UUID

import ormsgpack
from ormsgpack import Ext, packb

from lastgood.codec.classes import take_apart
from lastgood.codec.decode import (
    BIG_INT,
    BYTEARRAY,
    CLASS,
    COMPLEX,
    DATE,
    DATETIME,
    DECIMAL,
    FROZENSET,
    MAP,
    REDACTED,
    SET,
    SURROGATES,
    TIME,
    TIMEDELTA,
    TUPLE,
    UUID_,
    Redacted,
    decode,
)
from lastgood.errors import CheckpointError, UnstorableError

MAX_DEPTH = 255  # of containers: what the encoder takes
MAX_TAGS = 64  # of tagged values in tagged values: each costs a Python frame when read

_MICROSECOND = dt.timedelta(microseconds=1)
_OPTIONS = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)

Path = tuple["Path", str, object] | None
"""Where a value stands, innermost first: (outer path, form, key). Put into words only when something is wrong."""

NAME, ENTRY, ITEM, KEYED, KEY, ELEMENT = "{}", ".{}", "[{}]", "[{!r}]", " key {!r}", "{{…}}"
PLAINER = "keep plain data, or lastgood.register() the class with to_plain and from_plain"
FLATTER = "keep it flatter: as lists of parts that refer to each other, or in a file"
_QUOTED_CHARACTERS = 60  # characters of a key that an error quotes


def encode(value: object, path: Path = None) -> bytes:
    """Encode `value` in one piece. Raises UnstorableError, naming the path."""
    return encode_noting_walk(value, path)[0]


def encode_fast(value: object) -> bytes | None:
    """Encode with the C encoder alone: None for what it refuses, and a bytearray or memoryview is taken for bytes."""
    try:
        return packb(value, None, _OPTIONS)
    except (TypeError, RecursionError):
        return None


def may_hold_bytes(data: bytes) -> bool:
    """Say whether there may be bytes in `data`: one of the three marks of msgpack's bin occurs."""
    return b"\xc4" in data or b"\xc5" in data or b"\xc6" in data


def encode_noting_walk(value: object, path: Path = None) -> tuple[bytes, bool]:
    """Encode as `encode` does, and say whether `encode_fast` cannot be relied on for this value."""
    data = encode_fast(value)
    if data is not None and not may_hold_bytes(data):
        return data, False
    walk = _Walk()
    return walk.encode_whole(value, path), data is None or walk.met_bytes


def encode_strictly(value: object, path: Path = None) -> bytes:
    """Encode `value` by walking it."""
    return _Walk().encode_whole(value, path)


def array_header(count: int) -> bytes:
    return _header(count, 0x90, b"\xdc", b"\xdd")


def map_header(count: int) -> bytes:
    return _header(count, 0x80, b"\xde", b"\xdf")


def _header(count: int, fixed: int, short: bytes, long: bytes) -> bytes:
    if count < 16:
        return bytes((fixed | count,))
    return short + count.to_bytes(2, "big") if count < 1 << 16 else long + count.to_bytes(4, "big")


def is_plain_map(keys: Collection[Any]) -> bool:
    """Say whether a dict with these keys is a map of msgpack: all are exactly `str`, and valid text."""
    return _STRINGS.issuperset(map(type, keys)) and encode_fast(list(keys)) is not None


def write_path(path: Path) -> str:
    parts: list[str] = []
    while path is not None:
        path, form, key = path
        parts.append(form.format(_Quoted(key)))
    return "".join(reversed(parts)) or "state"


class _Quoted:
    """A key as an error may show it: short, and whatever its class does when it is put into words."""

    def __init__(self, key: object) -> None:
        self._key = key

    def __format__(self, how: str) -> str:
        key = self._key
        if type(key) is str:
            return key if len(key) <= _QUOTED_CHARACTERS else f"{key[:_QUOTED_CHARACTERS]}…"
        return str(key) if type(key) is int and abs(key) < 1 << 64 else type(key).__qualname__

    def __repr__(self) -> str:
        return repr(format(self)) if type(self._key) is str else format(self)


# --- to msgpack -------------------------------------------------------------------------------------------


def _tag(value: Any, encode_inner: Callable[[Any], bytes]) -> Ext | None:
    """Return `value` as an ext; None if it cannot be kept."""
    build = TAGGERS.get(type(value))
    if build is not None:
        return build(value, encode_inner)
    parts = take_apart(value)
    return None if parts is None else Ext(CLASS, encode_inner(list(parts)))


def _sorted_set(code: int, items: Iterable[bytes]) -> Ext:
    ordered = sorted(items)
    return Ext(code, array_header(len(ordered)) + b"".join(ordered))


def _may_collide(keys: Iterable[Any]) -> bool:
    """Say whether values of classes may be among `keys`: as plain data they might be equal, or have no hash."""
    return not all(type(key) in _ATOMS for key in keys)


def _tag_moment(code: int, value: dt.datetime | dt.time, encode_inner: Callable[[Any], bytes]) -> Ext | None:
    zone = _zone(value.tzinfo)
    if zone is _UNKNOWN_ZONE:
        return None
    return Ext(code, encode_inner([value.replace(tzinfo=None).isoformat(), value.fold, zone]))


_UNKNOWN_ZONE = object()


def _zone(zone: dt.tzinfo | None) -> object:
    if zone is None:
        return None
    if type(zone) is dt.timezone:
        offset = zone.utcoffset(None)
        name = zone.tzname(None)
        return offset // _MICROSECOND if name == dt.timezone(offset).tzname(None) else [offset // _MICROSECOND, name]
    zoneinfo = sys.modules.get("zoneinfo")
    if zoneinfo is not None and type(zone) is zoneinfo.ZoneInfo:
        return getattr(zone, "key", None) or _UNKNOWN_ZONE
    return _UNKNOWN_ZONE


def _big_int_bytes(value: int) -> bytes:
    return value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)


TAGGERS: dict[type, Callable[[Any, Callable[[Any], bytes]], Ext | None]] = {
    tuple: lambda value, inner: Ext(TUPLE, inner(list(value))),
    int: lambda value, inner: Ext(BIG_INT, _big_int_bytes(value)),
    Decimal: lambda value, inner: Ext(DECIMAL, str(value).upper().encode()),  # the context may write e or E
    dt.datetime: lambda value, inner: _tag_moment(DATETIME, value, inner),
    dt.date: lambda value, inner: Ext(DATE, value.isoformat().encode()),
    dt.time: lambda value, inner: _tag_moment(TIME, value, inner),
    dt.timedelta: lambda value, inner: Ext(TIMEDELTA, inner([value.days, value.seconds, value.microseconds])),
    UUID: lambda value, inner: Ext(UUID_, value.bytes),
    complex: lambda value, inner: Ext(COMPLEX, inner([value.real, value.imag])),
    bytearray: lambda value, inner: Ext(BYTEARRAY, bytes(value)),
    str: lambda value, inner: Ext(SURROGATES, value.encode("utf-8", "surrogatepass")),
    Redacted: lambda value, inner: Ext(REDACTED, b""),
}


_ATOMS = frozenset(
    (type(None), bool, int, float, str, bytes, complex, Decimal, UUID, dt.datetime, dt.date, dt.time, dt.timedelta)
)


_PLAIN = frozenset((type(None), bool, int, float, str))
_PLAIN_OR_CONTAINER = _PLAIN | {list, dict}
_STRINGS = frozenset((str,))


def _encode_nested(value: Any, depth: int) -> bytes | None:
    """Encode what stands in `depth` containers, as `encode_fast` does, if it is not nested too deeply there."""
    for _ in range(depth):
        value = [value]
    data = encode_fast(value)
    return None if data is None else data[depth:]


class _Walk:
    """A value being encoded part by part: each part is checked, so that each problem has a path."""

    def __init__(self) -> None:
        self.met_bytes = False
        self._open: set[int] = set()

    def encode_whole(self, value: object, path: Path) -> bytes:
        try:
            return self.encode(value, path, 0, 0)
        except CheckpointError:
            raise
        except RecursionError:
            raise _unstorable(path, value, "nested too deeply", FLATTER) from None

    def encode(self, value: Any, path: Path, depth: int, tags: int) -> bytes:
        """Encode a part that stands in `depth` containers, and in `tags` tagged values."""
        kind = type(value)
        if kind in _PLAIN and (data := encode_fast(value)) is not None:
            return data
        if kind is list or kind is dict:
            return self._container(value, path, depth, tags)
        if kind is bytes or kind is Ext:  # an Ext is in an element of an AppendList: encoded already
            self.met_bytes = True
            return packb(value, None, _OPTIONS)
        return self._tagged(value, path, tags)

    def _container(self, value: Any, path: Path, depth: int, tags: int) -> bytes:
        if depth >= MAX_DEPTH:
            raise _unstorable(None, value, f"nested deeper than {MAX_DEPTH} levels", FLATTER)
        copy = value.copy()
        if _PLAIN_OR_CONTAINER.issuperset(map(type, copy if type(copy) is list else copy.values())):
            data = _encode_nested(copy, depth)
            if data is not None and not may_hold_bytes(data):
                return data
        self._enter(value, path)
        parts: list[bytes] = []
        try:  # by loops: each level takes two frames of Python's, and there may be 255
            if type(copy) is list:
                for index, item in enumerate(copy):
                    parts.append(self.encode(item, (path, ITEM, index), depth + 1, tags))
                return array_header(len(copy)) + b"".join(parts)
            if not is_plain_map(copy):
                return self._odd_map(copy, path, depth, tags)
            for key, item in copy.items():
                parts += (packb(key), self.encode(item, (path, ENTRY, key), depth + 1, tags))
            return map_header(len(copy)) + b"".join(parts)
        finally:
            self._open.discard(id(value))

    def _odd_map(self, entries: dict[Any, Any], path: Path, depth: int, tags: int) -> bytes:
        flat: list[bytes] = []
        for key, item in entries.items():
            flat.append(self.encode(key, (path, KEY, key), depth + 1, tags + 1))
            flat.append(self.encode(item, (path, KEYED, key), depth + 1, tags + 1))
        if _may_collide(entries):
            self._refuse_collisions(entries, flat[::2], path)
        return packb(Ext(MAP, array_header(len(flat)) + b"".join(flat)))

    def _tagged(self, value: Any, path: Path, tags: int) -> bytes:
        self.met_bytes = self.met_bytes or type(value) is bytearray
        if tags >= MAX_TAGS:
            raise _unstorable(None, value, f"more than {MAX_TAGS} tuples, sets or objects inside each other", FLATTER)
        self._enter(value, path)
        try:
            if type(value) is set or type(value) is frozenset:
                tagged: Ext | None = self._set(value.copy(), path, tags)
            else:
                tagged = _tag(value, lambda inner: self._inner(inner, path, tags + 1))
        except (CheckpointError, Warning, RecursionError):
            raise
        except Exception as error:  # from the class's own code
            raise _unstorable(path, value, f"{type(value).__qualname__} cannot be taken apart: {error}") from error
        finally:
            self._open.discard(id(value))
        if tagged is None:
            raise _unstorable(path, value, f"{type(value).__qualname__} cannot be kept")
        return packb(tagged)

    def _set(self, items: Collection[Any], path: Path, tags: int) -> Ext:
        encoded = [self.encode(item, (path, ELEMENT, None), 0, tags + 1) for item in items]
        if _may_collide(items):
            self._refuse_collisions(items, encoded, path)
        return _sorted_set(SET if type(items) is set else FROZENSET, encoded)

    def _inner(self, value: object, path: Path, tags: int) -> bytes:
        """Encode the payload of a tagged value, most often a fresh list made by its tagger."""
        if type(value) is not list:
            return self.encode(value, (path, ELEMENT, None), 0, tags)
        if _PLAIN.issuperset(map(type, value)) and (data := encode_fast(value)) is not None:
            return data
        parts = [self.encode(item, (path, ITEM, index), 1, tags) for index, item in enumerate(value)]
        return array_header(len(parts)) + b"".join(parts)

    def _refuse_collisions(self, value: Collection[Any], encoded: list[bytes], path: Path) -> None:
        """Refuse keys that would be equal when read: those of classes that are not registered become plain data."""
        try:
            back = {decode(key) for key in encoded}
        except (CheckpointError, TypeError):
            back = set()
        if len(back) != len(value):
            raise _unstorable(path, value, "values of classes that are not registered cannot be told apart here")

    def _enter(self, value: object, path: Path) -> None:
        if id(value) in self._open:
            raise _unstorable(path, value, "it contains itself", "keep an id or a key in the place of what holds it")
        self._open.add(id(value))


def _unstorable(path: Path, value: object, why: str, hint: str = PLAINER) -> UnstorableError:
    where = write_path(path)
    return UnstorableError(f"{where}: {why}", hint=hint, path=where, type=type(value).__qualname__)
