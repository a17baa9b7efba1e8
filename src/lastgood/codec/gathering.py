"""Elements on their way into pieces, runs and nodes (docs/format.md, Splitting)."""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from ormsgpack import Ext, packb

from lastgood.model.digest import SIZE, digest

PIECE, PIECE_MIN, PIECE_MAX = 256, 256, 4096
RUN, RUN_MIN, RUN_MAX = 3072, 20_480, 65_536
NODE_BELOW, NODE_MIN, NODE_MAX = 128, 2, 16

REFERENCE = 1 + SIZE
LEVEL_BITS, HOLDS_SPLIT = 0x3F, 0x80


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


class Standing(NamedTuple):
    """Where gathering stands behind some element: all that going on from there needs, whatever lies before."""

    pieces: tuple[Piece, ...] = ()
    piece: bytes = b""
    piece_holds_split: bool = False
    levels: tuple[tuple[bytes, ...], ...] = ((),)
    holds_split: bool = False


START = Standing()


class NewBlobs:
    """What a split adds to the blobs that are `known` to be stored."""

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
        """`run` is made of `pieces`: those that are stored need not be kept twice."""
        if run not in self.blobs or not self._known:
            return
        position = 0
        for piece in pieces:
            key = piece.digest or digest(piece.data)
            if key in self._known and key != run:
                self.slices.append(Slice(key, run, position))
            position += len(piece.data)


class Gathering:
    """Gathers elements, from the beginning or from where another gathering stood.

    `reached` has every blob referred to since then; `holds_split` says whether there is any blob at all.
    """

    def __init__(self, new: NewBlobs, standing: Standing = START) -> None:
        self._new = new
        self._pieces = list(standing.pieces)
        self._piece = [standing.piece]
        self._piece_holds_split = standing.piece_holds_split
        self._piece_size = len(standing.piece)
        self._run_size = self._piece_size + sum(len(piece.data) for piece in standing.pieces)
        self._levels = [list(level) for level in standing.levels]
        self.holds_split = standing.holds_split
        self.reached: set[bytes] = set()

    def add(self, stored: bytes, holds_split: bool = False) -> bytes | None:
        """Take an element as it is stored. The reference of the run that ends with it, if one does."""
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
        """Go on behind a run as it was."""
        self.holds_split = True
        self.reached.add(reference[1:])
        self._refer(reference, 0)

    def finish(self, code: int, count: int) -> bytes:
        """The split value, as it stands in place of the whole one."""
        self._pieces = [piece if piece.digest else self._store_piece(piece) for piece in self._pieces]
        tail = b"".join(self._piece)
        return packb(Ext(code, packb([count, b"".join(self.references()), tail])))

    def references(self) -> list[bytes]:
        """What a finished value refers to itself, in order."""
        references = [reference for level in reversed(self._levels) for reference in level]
        return references + [_flag(piece.holds_split) + piece.digest for piece in self._pieces]

    def levels(self) -> tuple[tuple[bytes, ...], ...]:
        return tuple(map(tuple, self._levels))

    def standing(self) -> Standing:
        piece = b"".join(self._piece)
        return Standing(tuple(self._pieces), piece, self._piece_holds_split, self.levels(), self.holds_split)

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
