"""Split values read (docs/reference/format.md, Splitting): put together again, or followed from blob to blob.

Whatever is not well formed is an IntegrityError: the caller may be about to remove what was not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lastgood.codec.append_list import append_list_of, join_element
from lastgood.codec.decode import SPLIT_APPEND, SPLIT_MAP, SPLIT_TEXT, SPLITS, cut, decode, visit
from lastgood.codec.encode import array_header, map_header
from lastgood.codec.split import HOLDS_SPLIT, INLINE, LEVEL_BITS, MAX_SPLIT_DEPTH, NODE_MAX, PIECE_MIN, REFERENCE
from lastgood.errors import IntegrityError

Reference = bytes
"""A flag byte and a digest."""

ELEMENTS = bytes((HOLDS_SPLIT,))
"""The flag of a blob whose elements may be split: of the root of a value, too."""

Fetch = Callable[[Sequence[bytes]], Mapping[bytes, bytes]]
"""Gives the verified bytes of blobs by their digests. Raises IntegrityError when one is missing or damaged."""


def join(root: bytes, size: int, fetch: Fetch, *, classes: bool = True) -> Any:
    """Return the value whose root blob is `root` and which takes `size` bytes in one piece."""
    joining = _Joining(size, fetch)

    def resolve(code: int, payload: bytes) -> Any:
        if code == SPLIT_APPEND and classes:
            return append_list_of(joining.elements(payload))
        return decode(joining.whole(code, payload), resolve, classes=classes)

    return decode(root, resolve, classes=classes)


def check(root: bytes, size: int, fetch: Fetch) -> None:
    """Fetch every blob of the value as `join` does, and make no value of them."""
    joining = _Joining(size, fetch)

    def resolve(code: int, payload: bytes) -> None:
        visit(joining.whole(code, payload), resolve)

    visit(root, resolve)


class _Joining:
    """A value being joined. What it may take is bounded by the size that was recorded."""

    def __init__(self, size: int, fetch: Fetch) -> None:
        self._fetch = fetch
        # Each level may hold all of it once, and a split value takes a little more than what it stands for.
        self._bytes = (MAX_SPLIT_DEPTH + 2) * (size + INLINE)
        self._references = self._bytes // PIECE_MIN + NODE_MAX

    def whole(self, code: int, payload: bytes) -> bytes:
        """Return a split value in one piece; values inside it may be split in turn."""
        count, parts = self._parts(payload)
        header = b"" if code == SPLIT_TEXT else map_header(count) if code == SPLIT_MAP else array_header(count)
        data = b"".join((header, *(part for part, _ in parts)))
        if code == SPLIT_TEXT and len(data) != count:
            raise malformed()
        return data

    def elements(self, payload: bytes) -> list[bytes]:
        """Return the elements of a split AppendList, each in one piece."""
        count, parts = self._parts(payload)
        elements = cut(b"".join((array_header(count), *(part for part, _ in parts))))
        at = 0
        for part, may_hold_split in parts:
            end = len(part)
            while end > 0:
                end -= len(elements[at])
                if may_hold_split:
                    elements[at] = join_element(elements[at], self._whole_part)
                at += 1  # one across the end of a part makes them run out, which is damage as well
        return elements

    def _whole_part(self, code: int, payload: bytes) -> bytes:
        if code == SPLIT_APPEND:  # an AppendList in an element is a part of it, and never split by itself
            raise malformed()
        return self.whole(code, payload)

    def _parts(self, payload: bytes) -> tuple[int, list[tuple[bytes, bool]]]:
        """Return how many elements there are, and they themselves in parts, with whether one may hold split values."""
        count, references, tail = read_split(payload)
        parts = [*self._leaves(cut_references(references)), (tail, True)]
        self._bytes -= sum(len(part) for part, _ in parts)
        if self._bytes < 0:
            raise malformed()
        return count, parts

    def _leaves(self, references: list[bytes]) -> list[tuple[bytes, bool]]:
        """Return the elements below `references`, in order; each level of nodes is fetched at once."""
        while any(ref[0] & LEVEL_BITS for ref in references):
            self._spend(references)
            nodes = self._fetch([ref[1:] for ref in references if ref[0] & LEVEL_BITS])
            references = [inner for ref in references for inner in _below(ref, nodes)]
        self._spend(references)
        leaves = self._fetch([ref[1:] for ref in references])
        return [(leaves[ref[1:]], bool(ref[0] & HOLDS_SPLIT)) for ref in references]

    def _spend(self, references: list[bytes]) -> None:
        if len(references) > self._references:
            raise malformed()


def _below(reference: bytes, nodes: Mapping[bytes, bytes]) -> list[bytes]:
    """Return the references in a node; of what is no node, it itself."""
    level = reference[0] & LEVEL_BITS
    return cut_references(nodes[reference[1:]], level - 1) if level else [reference]


# --- references ---


def references_in(values: bytes) -> list[Reference]:
    """Find what encoded values, end to end, refer to themselves, also in their tails."""
    found: list[Reference] = []
    waiting = [values]
    while waiting:
        for code, payload in _exts(waiting.pop()):
            if code in SPLITS:
                _, references, tail = read_split(payload)
                found += cut_references(references)
                if code != SPLIT_TEXT:  # that one is cut between lines, not between values
                    waiting.append(tail)
    return found


def references_below(reference: Reference, data: bytes) -> list[Reference]:
    """Find what the blob of a reference refers to; `data` are its bytes."""
    if level := reference[0] & LEVEL_BITS:
        return cut_references(data, level - 1)
    return [] if is_plain(reference) else references_in(data)


def is_plain(reference: Reference) -> bool:
    """Say whether the blob of a reference refers to no other."""
    return not reference[0] & (LEVEL_BITS | HOLDS_SPLIT)


def read_split(payload: bytes) -> tuple[int, bytes, bytes]:
    """Return a split value's count of elements, its references and its tail."""
    parts = decode(payload)
    if type(parts) is not list or [type(part) for part in parts] != [int, bytes, bytes] or parts[0] >= 1 << 32:
        raise malformed()
    return parts[0], parts[1], parts[2]


def cut_references(references: bytes, level: int | None = None) -> list[Reference]:
    """Cut references that stand end to end, all of that level if one is given."""
    if len(references) % REFERENCE:
        raise malformed()
    found = [references[at : at + REFERENCE] for at in range(0, len(references), REFERENCE)]
    if level is not None and any(reference[0] & LEVEL_BITS != level for reference in found):
        raise malformed()
    return found


def malformed() -> IntegrityError:
    """Return the error for what is stored and cannot be read."""
    return IntegrityError("a stored value is not well formed")


def _exts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield every ext in msgpack values end to end, however deep in lists and maps, but none that is in an ext."""
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
            raise malformed()
    if at != end:
        raise malformed()


def _ext(data: bytes, at: int, length: int) -> tuple[int, bytes]:
    if at + 1 + length > len(data):
        raise malformed()
    return data[at], data[at + 1 : at + 1 + length]


# By the first byte: how many bytes follow; how wide the length of what follows is.
_FIXED = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4,  # headers of lists and maps: what is in them comes next
}  # fmt: skip
_PREFIXED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_FIXED_EXT = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_EXT = {0xC7: 1, 0xC8: 2, 0xC9: 4}
