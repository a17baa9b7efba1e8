"""A list that only grows: what is appended is encoded at once, so that a save costs what was appended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, final, overload

import msgspec
from ormsgpack import Ext, packb

from lastgood.codec import encode as values
from lastgood.codec.classes import register
from lastgood.codec.decode import APPEND_LIST, MAKERS, SPLITS, decode, decode_each
from lastgood.codec.encode import ITEM, NAME, array_header

Whole = Callable[[int, bytes], bytes]
"""Gives a split value (its code and payload) in one piece; values inside it may be split in turn."""


@final
class AppendList(Sequence[Any]):
    """A list for state that is appended to and never changed, as a conversation is.

    An element is checked and encoded when it is appended: later changes to the object do not matter, and what
    cannot be stored is refused there and then (UnstorableError, naming the path). Reading gives a fresh value
    each time: changing it changes nothing. There is no way to change, insert or remove an element. Saving reads
    only what was appended since this handle's last save, as long as the list stands in the state itself or in
    maps of up to 32 entries; anywhere else it is stored just as exactly, in time that grows with its length.

    Safe to append to from several threads; a save meanwhile stores the elements that were there at one moment.
    Not hashable. Equal to a list or another AppendList with equal elements.
    """

    __slots__ = ("_elements",)

    def __init__(self, elements: Iterable[Any] = ()) -> None:
        self._elements: list[bytes] = []
        self.extend(elements)

    def append(self, element: Any) -> None:
        """Add a value as it is now. An AppendList in it is frozen at this moment."""
        self._elements.append(_encode(element, len(self._elements)))

    def extend(self, elements: Iterable[Any]) -> None:
        """Add all values, or none of them if one cannot be stored."""
        if isinstance(elements, AppendList):
            self._elements += elements._elements[:]
        else:
            self._elements += [_encode(element, index) for index, element in enumerate(elements, len(self))]

    def __iadd__(self, elements: Iterable[Any]) -> Self:
        self.extend(elements)
        return self

    def __len__(self) -> int:
        return len(self._elements)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return list(decode_each(self._elements[index]))
        return decode(self._elements[index])

    def __iter__(self) -> Iterator[Any]:
        return decode_each(self._elements)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, AppendList):
            return self._elements == other._elements or list(self) == list(other)
        return list(self) == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> AppendList:
        return append_list_of(self._elements[:])

    def __deepcopy__(self, memo: object) -> AppendList:
        return self.__copy__()

    def __repr__(self) -> str:
        return f"<AppendList of {len(self):,}>"


def append_list_of(elements: list[bytes]) -> AppendList:
    """Make an AppendList of elements that are encoded already; it takes the list over."""
    made = AppendList()
    made._elements = elements
    return made


def encoded_elements(appended: AppendList) -> list[bytes]:
    """Return the encoded elements: the list itself, which only ever grows. Not to be changed."""
    return appended._elements


def _encode(element: object, index: int) -> bytes:
    return values.encode(element, ((None, NAME, "AppendList"), ITEM, index))


def encode_append_list(elements: Sequence[bytes]) -> bytes:
    return packb(tag_append_list(elements))


def tag_append_list(elements: Sequence[bytes]) -> Ext:
    return Ext(APPEND_LIST, array_header(len(elements)) + b"".join(elements))


def append_list_size(count: int, size: int) -> int:
    """Return how long an AppendList of `count` elements, `size` bytes together, is in one piece."""
    payload = len(array_header(count)) + size
    if payload in (1, 2, 4, 8, 16):
        return 2 + payload
    return (3 if payload < 1 << 8 else 4 if payload < 1 << 16 else 6) + payload


def open_element(element: bytes) -> Any:
    """Return lists and maps as they are, and everything tagged in them as its ext: it encodes to the same bytes."""
    return _OPENER.decode(element)


def join_element(element: bytes, whole: Whole) -> bytes:
    """Return `element` with each split value in it in one piece again."""
    met_split = False

    def value_of(code: int, payload: memoryview) -> Any:
        nonlocal met_split
        if code not in SPLITS:
            return Ext(code, bytes(payload))
        met_split = True
        return decoder.decode(whole(code, bytes(payload)))

    decoder = msgspec.msgpack.Decoder(ext_hook=value_of)
    value = decoder.decode(element)
    return packb(value) if met_split else element


_OPENER = msgspec.msgpack.Decoder(ext_hook=lambda code, payload: Ext(code, bytes(payload)))

values.TAGGERS[AppendList] = lambda appended, inner: tag_append_list(appended._elements[:])
MAKERS[APPEND_LIST] = append_list_of
register(to_plain=list, from_plain=AppendList)(AppendList)  # for `task.load(Type)`
