"""Split values put together again (docs/reference/format.md, Splitting), bounded by the sizes that were recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lastgood.codec.append_list import append_list_of, join_element
from lastgood.codec.decode import SPLIT_APPEND, SPLIT_MAP, SPLIT_TEXT, cut, decode, visit
from lastgood.codec.encode import array_header, map_header
from lastgood.codec.pieces import HOLDS_SPLIT, LEVEL_BITS, NODE_MAX, PIECE_MIN, cut_references, malformed, read_split
from lastgood.codec.split import INLINE, MAX_SPLIT_DEPTH

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
