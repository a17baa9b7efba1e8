"""Split values back in one piece (docs/format.md, Splitting). What they may take is bounded by what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lastgood.codec.append_list import append_list_of
from lastgood.codec.codes import SPLIT_APPEND, SPLIT_MAP, SPLIT_TEXT
from lastgood.codec.decode import cut, decode, visit
from lastgood.codec.elements import join_element
from lastgood.codec.encode import array_header, map_header
from lastgood.codec.gathering import HOLDS_SPLIT, LEVEL_BITS, NODE_MAX, PIECE_MIN, REFERENCE
from lastgood.codec.split import INLINE, MAX_LOOK
from lastgood.errors import IntegrityError

Fetch = Callable[[Sequence[bytes]], Mapping[bytes, bytes]]
"""Gives the verified bytes of blobs by their digests. Raises IntegrityError when one is missing or damaged."""


def join(root: bytes, size: int, fetch: Fetch, *, classes: bool = True) -> Any:
    """The value whose root blob is `root` and which takes `size` bytes in one piece."""
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
    """One value on its way back. What it may take is bounded by the size that was recorded."""

    def __init__(self, size: int, fetch: Fetch) -> None:
        self._fetch = fetch
        # Each level may hold all of it once, and a split value takes a little more than what it stands for.
        self._bytes = (MAX_LOOK + 2) * (size + INLINE)
        self._references = self._bytes // PIECE_MIN + NODE_MAX

    def whole(self, code: int, payload: bytes) -> bytes:
        """A split value in one piece; values inside it may be split in turn."""
        count, parts = self._parts(payload)
        header = b"" if code == SPLIT_TEXT else map_header(count) if code == SPLIT_MAP else array_header(count)
        data = b"".join((header, *(part for part, _ in parts)))
        if code == SPLIT_TEXT and len(data) != count:
            raise _malformed()
        return data

    def elements(self, payload: bytes) -> list[bytes]:
        """The elements of a split AppendList, each in one piece."""
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
            raise _malformed()
        return self.whole(code, payload)

    def _parts(self, payload: bytes) -> tuple[int, list[tuple[bytes, bool]]]:
        """How many elements there are, and they themselves in parts: whether one may hold split values."""
        count, references, tail = _read_split(payload)
        parts = [*self._leaves(_cut(references)), (tail, True)]
        self._bytes -= sum(len(part) for part, _ in parts)
        if self._bytes < 0:
            raise _malformed()
        return count, parts

    def _leaves(self, references: list[bytes]) -> list[tuple[bytes, bool]]:
        """The elements below `references`, in order; each level of nodes is fetched at once."""
        while any(ref[0] & LEVEL_BITS for ref in references):
            self._spend(references)
            nodes = self._fetch([ref[1:] for ref in references if ref[0] & LEVEL_BITS])
            references = [
                inner
                for ref in references
                for inner in (_cut(nodes[ref[1:]], ref[0]) if ref[0] & LEVEL_BITS else (ref,))
            ]
        self._spend(references)
        leaves = self._fetch([ref[1:] for ref in references])
        return [(leaves[ref[1:]], bool(ref[0] & HOLDS_SPLIT)) for ref in references]

    def _spend(self, references: list[bytes]) -> None:
        if len(references) > self._references:
            raise _malformed()


def _cut(references: bytes, above: int | None = None) -> list[bytes]:
    if len(references) % REFERENCE:
        raise _malformed()
    refs = [references[at : at + REFERENCE] for at in range(0, len(references), REFERENCE)]
    if above is not None and any(ref[0] & LEVEL_BITS != (above & LEVEL_BITS) - 1 for ref in refs):
        raise _malformed()
    return refs


def _read_split(payload: bytes) -> tuple[int, bytes, bytes]:
    parts = decode(payload)
    if type(parts) is not list or [type(part) for part in parts] != [int, bytes, bytes] or parts[0] >= 1 << 32:
        raise _malformed()
    return parts[0], parts[1], parts[2]


def _malformed() -> IntegrityError:
    return IntegrityError("a stored value is not well formed")
