"""The blobs of a split value: pieces, runs and nodes (docs/reference/format.md), built from elements and read again.

Whatever is not well formed is an IntegrityError: the caller may be about to remove what was not found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from ormsgpack import Ext, packb

from lastgood.codec.decode import SPLIT_TEXT, SPLITS, decode
from lastgood.errors import IntegrityError
from lastgood.model.identity import DIGEST_SIZE, digest

PIECE, PIECE_MIN, PIECE_MAX = 256, 256, 4096
RUN, RUN_MIN, RUN_MAX = 3072, 20_480, 65_536
NODE_BELOW, NODE_MIN, NODE_MAX = 128, 2, 16

REFERENCE = 1 + DIGEST_SIZE
LEVEL_BITS, HOLDS_SPLIT = 0x3F, 0x80

Reference = bytes
"""A flag byte and a digest."""

ELEMENTS = bytes((HOLDS_SPLIT,))
"""The flag of a blob whose elements may be split: of the root of a value, too."""


class Slice(NamedTuple):
    """A piece that was stored by itself before, and is now a part of a finished run."""

    digest: bytes
    run: bytes
    position: int


class Piece(NamedTuple):
    """A finished piece of the open run; its digest from when it is stored."""

    data: bytes
    holds_split: bool
    digest: bytes = b""


class GathererState(NamedTuple):
    """A gatherer's state behind some element: all that going on from there needs, whatever lies before."""

    pieces: tuple[Piece, ...] = ()
    piece: bytes = b""
    piece_holds_split: bool = False
    levels: tuple[tuple[bytes, ...], ...] = ((),)
    holds_split: bool = False


START = GathererState()


class NewBlobs:
    """A collection of the blobs that a split adds to those that are `known` to be stored."""

    def __init__(self, known: frozenset[bytes]) -> None:
        self._known = known
        self.blobs: dict[bytes, bytes] = {}
        self.slices: list[Slice] = []

    def add(self, data: bytes) -> bytes:
        key = digest(data)
        if key not in self._known:
            self.blobs[key] = data
        return key

    def slice(self, pieces: list[Piece], run: bytes) -> None:
        """Note that `run` is made of `pieces`: those that are stored need not be kept twice."""
        if run not in self.blobs or not self._known:
            return
        position = 0
        for piece in pieces:
            key = piece.digest or digest(piece.data)
            if key in self._known and key != run:
                self.slices.append(Slice(key, run, position))
            position += len(piece.data)


class Gatherer:
    """A gatherer of elements, from the beginning or from the state of another.

    `reached` has every blob referred to since then; `holds_split` says whether there is any blob at all.
    """

    def __init__(self, new: NewBlobs, state: GathererState = START) -> None:
        self._new = new
        self._pieces = list(state.pieces)
        self._piece = [state.piece]
        self._piece_holds_split = state.piece_holds_split
        self._piece_size = len(state.piece)
        self._run_size = self._piece_size + sum(len(piece.data) for piece in state.pieces)
        self._levels = [list(level) for level in state.levels]
        self.holds_split = state.holds_split
        self.reached: set[bytes] = set()

    def add(self, stored: bytes, holds_split: bool = False) -> bytes | None:
        """Take an element as it is stored. Returns the reference of the run that ends with it, if one does."""
        size, mark = len(stored), crc32(stored)
        self._piece.append(stored)
        self._piece_size += size
        self._run_size += size
        if holds_split:
            self._piece_holds_split = self.holds_split = True
        if (mark * PIECE < size << 32 and self._piece_size >= PIECE_MIN) or self._piece_size >= PIECE_MAX:
            self._pieces.append(Piece(b"".join(self._piece), self._piece_holds_split))
            self._piece, self._piece_size, self._piece_holds_split = [], 0, False
            if (mark * RUN < size << 32 and self._run_size >= RUN_MIN) or self._run_size >= RUN_MAX:
                return self._end_run()
        return None

    def take(self, reference: bytes) -> None:
        """Take over a run as it was, and go on behind it."""
        self.holds_split = True
        self.reached.add(reference[1:])
        self._refer(reference, 0)

    def finish(self, code: int, count: int) -> bytes:
        """Return the split value, as it stands in place of the whole one."""
        self._pieces = [piece if piece.digest else self._store_piece(piece) for piece in self._pieces]
        tail = b"".join(self._piece)
        return packb(Ext(code, packb([count, b"".join(self.references()), tail])))

    def references(self) -> list[bytes]:
        """Return what a finished value refers to itself, in order."""
        references = [reference for level in reversed(self._levels) for reference in level]
        return references + [_flag(piece.holds_split) + piece.digest for piece in self._pieces]

    def levels(self) -> tuple[tuple[bytes, ...], ...]:
        return tuple(map(tuple, self._levels))

    def state(self) -> GathererState:
        """Return all that another gatherer needs to go on from here."""
        piece = b"".join(self._piece)
        return GathererState(tuple(self._pieces), piece, self._piece_holds_split, self.levels(), self.holds_split)

    def _end_run(self) -> bytes:
        holds_split = any(piece.holds_split for piece in self._pieces)
        key = self._add(b"".join(piece.data for piece in self._pieces))
        self._new.slice(self._pieces, key)
        self._pieces, self._run_size = [], 0
        reference = _flag(holds_split) + key
        self._refer(reference, 0)
        return reference

    def _store_piece(self, piece: Piece) -> Piece:
        return piece._replace(digest=self._add(piece.data))

    def _add(self, data: bytes) -> bytes:
        self.holds_split = True
        key = self._new.add(data)
        self.reached.add(key)
        return key

    def _refer(self, reference: bytes, level: int) -> None:
        if level == len(self._levels):
            self._levels.append([])
        references = self._levels[level]
        references.append(reference)
        if (reference[1] < NODE_BELOW and len(references) >= NODE_MIN) or len(references) >= NODE_MAX:
            flag = _flag(any(ref[0] & HOLDS_SPLIT for ref in references), level + 1)
            self._levels[level] = []
            self._refer(flag + self._add(b"".join(references)), level + 1)


def _flag(holds_split: bool, level: int = 0) -> bytes:
    return bytes((level | (HOLDS_SPLIT if holds_split else 0),))


# --- reading ---


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
