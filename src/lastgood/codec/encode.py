"""Values to canonical msgpack, lossless or loud (docs/reference/format.md, Values).

`encode` goes through a C encoder with all of its own conversions off. What that encoder would refuse, or get
silently wrong (it writes a bytearray as bytes), goes through `encode_strictly`, which walks the value, keeps
it exactly or names the path of what cannot be kept. Both give the same bytes for the same value.
"""

from __future__ import annotations

import datetime as dt
import functools
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
from lastgood.model.identity import is_text

MAX_DEPTH = 255  # of containers: what the encoder takes
MAX_TAGS = 64  # of tagged values in tagged values: each costs a Python frame when read
_FAST_TAGS = 16

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
_QUOTED_CHARACTERS = 60  # characters of a key that an error quotes


def encode(value: object, path: Path = None) -> bytes:
    """Encode `value` in one piece. Raises UnstorableError, naming the path."""
    return encode_noting_bytes(value, path)[0]


def encode_fast(value: object) -> bytes | None:
    """Encode with the C encoder alone: None for what it refuses, and a bytearray or memoryview is taken for bytes."""
    try:
        return packb(value, _HOOKS[0], _OPTIONS)
    except (TypeError, RecursionError):
        return None


def may_hold_bytes(data: bytes) -> bool:
    """Say whether there may be bytes in `data`: one of the three marks of msgpack's bin occurs."""
    return b"\xc4" in data or b"\xc5" in data or b"\xc6" in data


def encode_noting_bytes(value: object, path: Path = None) -> tuple[bytes, bool]:
    """Encode as `encode` does, and say whether there are bytes in it."""
    data = encode_fast(value)
    if data is None or may_hold_bytes(data):
        return encode_strictly(value, path)
    return data, False


def encode_strictly(value: object, path: Path = None) -> tuple[bytes, bool]:
    """Encode `value` the strict way, and say whether there are bytes in it."""
    walk = _Walk()
    return walk.encode(value, path), walk.met_bytes


def array_header(count: int) -> bytes:
    return _header(count, 0x90, b"\xdc", b"\xdd")


def map_header(count: int) -> bytes:
    return _header(count, 0x80, b"\xde", b"\xdf")


def _header(count: int, fixed: int, short: bytes, long: bytes) -> bytes:
    if count < 16:
        return bytes((fixed | count,))
    return short + count.to_bytes(2, "big") if count < 1 << 16 else long + count.to_bytes(4, "big")


def is_plain_map(value: dict[Any, Any]) -> bool:
    """Say whether `value` is a map of msgpack: all keys are exactly `str`, and valid text."""
    return all(type(key) is str and is_text(key) for key in value)


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


def _tag_fast(depth: int, value: Any) -> object:
    """Tag a value that the fast encoder does not know. Any error here means: walk it strictly."""
    if depth >= _FAST_TAGS:
        raise TypeError
    if type(value) in (set, frozenset) and _may_collide(value):
        raise TypeError
    hook = _HOOKS[depth + 1]
    tagged = _tag(value, lambda inner: packb(inner, hook, _OPTIONS))
    if tagged is None:
        raise TypeError
    return tagged


_HOOKS = [functools.partial(_tag_fast, depth) for depth in range(_FAST_TAGS + 1)]


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
    set: lambda value, inner: _sorted_set(SET, map(inner, value)),
    frozenset: lambda value, inner: _sorted_set(FROZENSET, map(inner, value)),
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


class _Walk:
    """A value being encoded the strict way: each part is checked, so that each problem has a path."""

    def __init__(self) -> None:
        self.met_bytes = False
        self._open: set[int] = set()

    def encode(self, value: object, path: Path) -> bytes:
        try:
            return packb(self.plain(value, path, 0, 0), None, _OPTIONS)
        except CheckpointError:
            raise
        except RecursionError:
            raise _unstorable(path, value, "nested too deeply") from None
        except TypeError as error:
            raise _unstorable(path, value, str(error)) from error

    def plain(self, value: Any, path: Path, depth: int, tags: int) -> object:
        """Return `value` with everything that msgpack does not have replaced by exts."""
        kind = type(value)
        if value is None or kind is bool or kind is float:
            return value
        if kind is int and -(1 << 63) <= value < 1 << 64:
            return value
        if kind is str and is_text(value):
            return value
        if kind is bytes:
            self.met_bytes = True
            return value
        if kind is list or kind is dict:
            return self._container(value, path, depth, tags)
        if kind is Ext:  # in an element of an AppendList: encoded already
            return value
        return self._tagged(value, path, tags)

    def _container(self, value: Any, path: Path, depth: int, tags: int) -> object:
        if depth >= MAX_DEPTH:
            raise _unstorable(None, value, f"nested deeper than {MAX_DEPTH} levels")
        self._enter(value, path)
        try:
            if type(value) is list:
                return [self.plain(v, (path, ITEM, i), depth + 1, tags) for i, v in enumerate(value)]
            if is_plain_map(value):
                return {k: self.plain(v, (path, ENTRY, k), depth + 1, tags) for k, v in value.items()}
            return self._odd_map(value, path, depth, tags)
        finally:
            self._open.discard(id(value))

    def _odd_map(self, value: dict[Any, Any], path: Path, depth: int, tags: int) -> Ext:
        flat: list[object] = []
        for key, item in value.items():
            flat.append(self.plain(key, (path, KEY, key), depth + 1, tags + 1))
            flat.append(self.plain(item, (path, KEYED, key), depth + 1, tags + 1))
        if _may_collide(value):
            self._refuse_collisions(value, [packb(key, None, _OPTIONS) for key in flat[::2]], path)
        return Ext(MAP, packb(flat, None, _OPTIONS))

    def _tagged(self, value: Any, path: Path, tags: int) -> Ext:
        if type(value) is bytearray:
            self.met_bytes = True
        if tags >= MAX_TAGS:
            raise _unstorable(None, value, f"more than {MAX_TAGS} tuples, sets or objects inside each other")
        self._enter(value, path)
        try:
            if type(value) is set or type(value) is frozenset:
                tagged: Ext | None = self._set(value, path, tags)
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
        return tagged

    def _set(self, value: Collection[Any], path: Path, tags: int) -> Ext:
        items = [self._inner(item, path, tags + 1) for item in value]
        if _may_collide(value):
            self._refuse_collisions(value, items, path)
        return _sorted_set(SET if type(value) is set else FROZENSET, items)

    def _inner(self, value: object, path: Path, tags: int) -> bytes:
        """Encode the payload of a tagged value: a fresh list made by its tagger, or one element of a set."""
        if type(value) is list:
            plain: object = [self.plain(v, (path, ITEM, i), 1, tags) for i, v in enumerate(value)]
        else:
            plain = self.plain(value, (path, ELEMENT, None), 0, tags)
        return packb(plain, None, _OPTIONS)

    def _refuse_collisions(self, value: Collection[Any], encoded: list[bytes], path: Path) -> None:
        """Refuse keys that would be equal when read: those of classes that are not registered become plain data."""
        try:
            back = {decode(key) for key in encoded}
        except CheckpointError:
            back = set()
        if len(back) != len(value):
            raise _unstorable(path, value, "values of classes that are not registered cannot be told apart here")

    def _enter(self, value: object, path: Path) -> None:
        if id(value) in self._open:
            raise _unstorable(path, value, "it contains itself")
        self._open.add(id(value))


def _unstorable(path: Path, value: object, why: str) -> UnstorableError:
    where = write_path(path)
    return UnstorableError(
        f"{where}: {why}",
        hint="keep plain data, or lastgood.register() the class with to_plain and from_plain",
        path=where,
        type=type(value).__qualname__,
    )
