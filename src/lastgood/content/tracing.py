"""Which blobs a stored value is made of, found without putting it together (docs/format.md, Splitting)."""

from __future__ import annotations

import msgspec

from lastgood.content.codes import SPLIT_TEXT, SPLITS
from lastgood.content.decoding import decode, visit
from lastgood.content.gathering import HOLDS_SPLIT, LEVEL_BITS, REFERENCE
from lastgood.content.values import array_header
from lastgood.errors import IntegrityError

Reference = bytes
"""A flag byte and a digest."""


def references_in(value: bytes) -> list[Reference]:
    """What an encoded value refers to itself. IntegrityError when it is not well formed."""
    found: list[Reference] = []
    visit(value, lambda code, payload: found.extend(_read_split(code, payload)))
    return found


def references_below(reference: Reference, data: bytes) -> list[Reference]:
    """What the blob of a reference refers to; `data` are its bytes."""
    if reference[0] & LEVEL_BITS:
        return _cut(data)
    return _references_in_elements(data) if reference[0] & HOLDS_SPLIT else []


def is_plain(reference: Reference) -> bool:
    """Whether the blob of a reference refers to no other."""
    return not reference[0] & (LEVEL_BITS | HOLDS_SPLIT)


def _read_split(code: int, payload: bytes) -> list[Reference]:
    parts = decode(payload)
    if type(parts) is not list or [type(part) for part in parts] != [int, bytes, bytes]:
        raise _malformed()
    return _cut(parts[1]) + ([] if code == SPLIT_TEXT else _references_in_elements(parts[2]))


def _references_in_elements(elements: bytes) -> list[Reference]:
    """Elements lie end to end and nothing says how many they are: they are read as a list that is longer than they
    can be, and all of them are met before its end is missed."""
    found: list[Reference] = []

    def value_of(code: int, payload: memoryview) -> None:
        if code in SPLITS:
            found.extend(_read_split(code, bytes(payload)))

    try:
        msgspec.msgpack.Decoder(ext_hook=value_of).decode(array_header(len(elements) + 1) + elements)
    except msgspec.DecodeError:
        return found
    raise _malformed()


def _cut(references: bytes) -> list[Reference]:
    if len(references) % REFERENCE:
        raise _malformed()
    return [references[at : at + REFERENCE] for at in range(0, len(references), REFERENCE)]


def _malformed() -> IntegrityError:
    return IntegrityError("a stored value is not well formed")
