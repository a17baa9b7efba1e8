"""Encoded elements of an AppendList, handled without making values of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from ormsgpack import Ext, packb

from lastgood.codec.codes import APPEND_LIST, SPLITS
from lastgood.codec.encode import array_header

Whole = Callable[[int, bytes], bytes]
"""Gives a split value (its code and payload) in one piece; values inside it may be split in turn."""


def encode_append_list(elements: Sequence[bytes]) -> bytes:
    return packb(tag_append_list(elements))


def tag_append_list(elements: Sequence[bytes]) -> Ext:
    return Ext(APPEND_LIST, array_header(len(elements)) + b"".join(elements))


def append_list_size(count: int, size: int) -> int:
    """How long an AppendList of `count` elements, `size` bytes together, is in one piece."""
    payload = len(array_header(count)) + size
    if payload in (1, 2, 4, 8, 16):
        return 2 + payload
    return (3 if payload < 1 << 8 else 4 if payload < 1 << 16 else 6) + payload


def open_element(element: bytes) -> Any:
    """Lists and maps as they are, with everything tagged in them left as its ext: encodes to the same bytes again."""
    return _OPENER.decode(element)


def join_element(element: bytes, whole: Whole) -> bytes:
    """`element` with each split value in it in one piece again."""
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
