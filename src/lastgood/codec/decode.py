"""Values from msgpack (docs/reference/format.md, Values): the ext codes, and what they are read as.

Whatever is not well formed is an IntegrityError; nothing is ever imported by name.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any, NoReturn, Self
from uuid import UUID

import msgspec

from lastgood.codec.classes import Registered, registered_name
from lastgood.errors import CheckpointError, IntegrityError, InvalidError, UnstorableError

TUPLE, SET, FROZENSET, BIG_INT, DECIMAL, DATETIME, DATE, TIME, TIMEDELTA = range(1, 10)
UUID_, COMPLEX, BYTEARRAY, MAP, CLASS, SURROGATES = range(10, 16)
REDACTED = 16
APPEND_LIST = 17
SPLIT_LIST, SPLIT_MAP, SPLIT_TEXT, SPLIT_APPEND = 32, 33, 34, 35
SPLITS = frozenset((SPLIT_LIST, SPLIT_MAP, SPLIT_TEXT, SPLIT_APPEND))

Resolve = Callable[[int, bytes], Any]
"""Gives the value of a split one (its code and payload)."""

_MICROSECOND = dt.timedelta(microseconds=1)


class Redacted:
    """A marker in place of a value that was redacted before it was stored. There is one of it, and it is false:

    `state["token"] or os.environ["TOKEN"]` does what it says. It can be stored again.
    """

    __slots__ = ()
    _only: Redacted

    def __new__(cls) -> Self:
        return cls._only  # type: ignore[return-value]

    def __repr__(self) -> str:
        return "<redacted>"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Redacted, ()

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("Redacted has no subclasses")


Redacted._only = object.__new__(Redacted)


def decode(data: bytes, resolve: Resolve | None = None, *, classes: bool = True) -> Any:
    """Return the value in `data`. With `classes=False` values of registered classes stay plain data."""
    return _decoded(_Reading(resolve, classes).decoder, data)


def decode_each(elements: Iterable[bytes]) -> Iterator[Any]:
    """Yield the values of `elements`, each made when it is asked for."""
    decoder = _Reading(None, True).decoder
    for element in elements:
        yield _decoded(decoder, element)


MAKERS: dict[int, Callable[[list[bytes]], Any]] = {}
"""By code: what makes a value of its encoded elements. Added by the module of its class, which builds on this one."""


def cut(array: bytes) -> list[bytes]:
    """Cut an encoded list into its elements, without reading what is in them."""
    return [bytes(element) for element in _decoded(_CUTTER, array)]


_CUTTER = msgspec.msgpack.Decoder(list[msgspec.Raw])


def visit(data: bytes, resolve: Resolve) -> None:
    """Call `resolve` for each split value in `data`, and make no value of the rest."""

    def value_of(code: int, payload: memoryview) -> None:
        if code in SPLITS:
            resolve(code, bytes(payload))

    _decoded(msgspec.msgpack.Decoder(ext_hook=value_of), data)


def _decoded(decoder: msgspec.msgpack.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except CheckpointError:
        raise
    except RecursionError as error:
        raise IntegrityError("a stored value is nested too deeply to be read from here") from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise IntegrityError("a stored value is not well formed") from error


class _Reading:
    """A value being read from msgpack."""

    def __init__(self, resolve: Resolve | None, classes: bool) -> None:
        self._resolve = resolve
        self._classes = classes
        self._met_plain_class = False
        self.decoder = msgspec.msgpack.Decoder(ext_hook=self._untag)

    def _untag(self, code: int, payload: memoryview) -> Any:
        if self._resolve is not None and code in SPLITS:
            return self._resolve(code, bytes(payload))
        if (read := _READERS.get(code)) is not None:
            return read(bytes(payload))
        if code == APPEND_LIST and self._classes:
            return MAKERS[APPEND_LIST](cut(bytes(payload)))
        inner = self.decoder.decode(payload)
        if (build := _BUILDERS.get(code)) is not None:
            return build(inner)
        if (gather := _HASHED.get(code)) is not None:
            return self._gather(gather, inner)
        if code == CLASS:
            name, plain = inner
            entry = registered_name(name)
            if entry is not None and self._classes:
                return _rebuild(entry, plain)
            self._met_plain_class = True
            return plain
        raise IntegrityError(
            f"a stored value has the unknown ext type {code}", hint="was it written by a newer version?"
        )

    def _gather(self, gather: Callable[[Any], Any], inner: Any) -> Any:
        """Make a set or a map. Where classes stay plain data, one whose members then have no hash stays a list."""
        try:
            return gather(inner)
        except TypeError as error:
            if not self._met_plain_class:
                raise
            if not self._classes:
                return inner
            raise InvalidError(
                "a set or a map has values of a class that is not registered here",
                hint="lastgood.register() it before loading, or read the state with task.load(Type)",
            ) from error


def _rebuild(entry: Registered, plain: Any) -> Any:
    try:
        return entry.from_plain(plain)
    except Exception as error:
        raise InvalidError(
            f"a value of {entry.name} cannot be made from what was stored: {error}",
            hint="correct its from_plain, or read the state with task.load(Type)",
        ) from error


def _read_redacted(payload: bytes) -> Redacted:
    """Return the marker from its ext, which is empty."""
    if payload:
        raise ValueError("a redacted value has content")
    return Redacted()


def _moment_zone(zone: Any) -> dt.tzinfo | None:
    if zone is None:
        return None
    if isinstance(zone, int):
        return dt.timezone(zone * _MICROSECOND)
    if isinstance(zone, list):
        return dt.timezone(zone[0] * _MICROSECOND, zone[1])
    from zoneinfo import ZoneInfo  # here, because it reads files when imported

    try:
        return ZoneInfo(zone)
    except (LookupError, ValueError) as error:
        raise UnstorableError(
            f"the time zone {zone!r} is not known on this machine", hint="install the tzdata package"
        ) from error


def _read_moment(kind: type[dt.datetime | dt.time], parts: list[Any]) -> dt.datetime | dt.time:
    return kind.fromisoformat(parts[0]).replace(fold=parts[1], tzinfo=_moment_zone(parts[2]))


_READERS: dict[int, Callable[[bytes], Any]] = {
    BIG_INT: lambda payload: int.from_bytes(payload, "big", signed=True),
    DECIMAL: lambda payload: Decimal(payload.decode()),
    DATE: lambda payload: dt.date.fromisoformat(payload.decode()),
    UUID_: lambda payload: UUID(bytes=payload),
    BYTEARRAY: bytearray,
    SURROGATES: lambda payload: payload.decode("utf-8", "surrogatepass"),
    REDACTED: _read_redacted,
}
_BUILDERS: dict[int, Callable[[Any], Any]] = {
    TUPLE: tuple,
    APPEND_LIST: list,
    DATETIME: partial(_read_moment, dt.datetime),
    TIME: partial(_read_moment, dt.time),
    TIMEDELTA: lambda parts: dt.timedelta(*parts),
    COMPLEX: lambda parts: complex(*parts),
}
_HASHED: dict[int, Callable[[Any], Any]] = {
    SET: set,
    FROZENSET: frozenset,
    MAP: lambda flat: dict(zip(flat[::2], flat[1::2], strict=True)),
}
