"""Which blobs a stored value is made of, found without putting it together (docs/format.md, Splitting).

Whatever is not well formed is an IntegrityError: who asks may be about to remove what was not found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from lastgood.codec.codes import SPLIT_TEXT, SPLITS
from lastgood.codec.decode import decode
from lastgood.codec.gathering import HOLDS_SPLIT, LEVEL_BITS, REFERENCE
from lastgood.errors import IntegrityError

Reference = bytes
"""A flag byte and a digest."""

ELEMENTS = bytes((HOLDS_SPLIT,))
"""The flag of a blob whose elements may be split: of the root of a value, too."""


def references_in(values: bytes) -> list[Reference]:
    """What encoded values, end to end, refer to themselves, also in their tails."""
    found: list[Reference] = []
    waiting = [values]
    while waiting:
        for code, payload in _exts(waiting.pop()):
            if code in SPLITS:
                references, tail = _read_split(payload)
                found += _cut(references)
                if code != SPLIT_TEXT:  # that one is cut between lines, not between values
                    waiting.append(tail)
    return found


def references_below(reference: Reference, data: bytes) -> list[Reference]:
    """What the blob of a reference refers to; `data` are its bytes."""
    if level := reference[0] & LEVEL_BITS:
        return _cut(data, level - 1)
    return [] if is_plain(reference) else references_in(data)


def is_plain(reference: Reference) -> bool:
    """Whether the blob of a reference refers to no other."""
    return not reference[0] & (LEVEL_BITS | HOLDS_SPLIT)


def _read_split(payload: bytes) -> tuple[bytes, bytes]:
    parts = decode(payload)
    if type(parts) is not list or [type(part) for part in parts] != [int, bytes, bytes]:
        _malformed()
    return parts[1], parts[2]


def _cut(references: bytes, level: int | None = None) -> list[Reference]:
    if len(references) % REFERENCE:
        _malformed()
    found = [references[at : at + REFERENCE] for at in range(0, len(references), REFERENCE)]
    if level is not None and any(reference[0] & LEVEL_BITS != level for reference in found):
        _malformed()
    return found


def _exts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Every ext in msgpack values end to end, however deep in lists and maps; what is in an ext is not looked at."""
    at, end = 0, len(data)
    while at < end:
        first = data[at]
        at += 1
        if first <= 0x9F or first >= 0xE0:  # a small number, or the header of a small map or list
            continue
        if first <= 0xBF:
            at += first & 0x1F
        elif (size := _FIXED.get(first)) is not None:
            at += size
        elif (width := _PREFIXED.get(first)) is not None:
            at += width + int.from_bytes(data[at : at + width])
        elif (length := _FIXED_EXT.get(first)) is not None:
            yield _ext(data, at, length)
            at += 1 + length
        elif (width := _EXT.get(first, 0)) != 0:
            length = int.from_bytes(data[at : at + width])
            yield _ext(data, at + width, length)
            at += width + 1 + length
        else:
            _malformed()
    if at != end:
        _malformed()


def _ext(data: bytes, at: int, length: int) -> tuple[int, bytes]:
    if at + 1 + length > len(data):
        _malformed()
    return data[at], data[at + 1 : at + 1 + length]


# By the first byte: how many bytes follow; how wide the length of what follows is.
_FIXED = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4,  # headers of lists and maps: what is in them comes next
}  # fmt: skip
_PREFIXED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_FIXED_EXT = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_EXT = {0xC7: 1, 0xC8: 2, 0xC9: 4}


def _malformed() -> NoReturn:
    raise IntegrityError("a stored value is not well formed")
