"""Large values split at content-defined boundaries, so that history costs what changed (docs/reference/format.md).

A `Splitter` remembers the value it split last. Runs of elements that still encode to the same bytes are
taken over without hashing; the rest is split anew. An AppendList goes on where it was, and what it had then is
not read again. The result depends on the value alone, never on what is remembered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple
from zlib import crc32

from ormsgpack import Ext, packb

from lastgood.codec import encode as values
from lastgood.codec.append_list import (
    AppendList,
    append_list_size,
    encode_append_list,
    encoded_elements,
    open_element,
)
from lastgood.codec.decode import SPLIT_APPEND, SPLIT_LIST, SPLIT_MAP, SPLIT_TEXT
from lastgood.codec.encode import ENTRY, ITEM, NAME, Path, array_header, map_header
from lastgood.errors import UnstorableError
from lastgood.model.checkpoint import ValueRef
from lastgood.model.identity import DIGEST_SIZE, BlobId

INLINE = 1024  # values up to this many bytes stay where they are
LARGE = 16_384  # elements beyond this are split themselves
SMALL_MAP, SMALL_MAP_BYTES = 32, 4096
LINE_MAX = 4096
PIECE, PIECE_MIN, PIECE_MAX = 256, 256, 4096
RUN, RUN_MIN, RUN_MAX = 3072, 20_480, 65_536
NODE_BELOW, NODE_MIN, NODE_MAX = 128, 2, 16

REFERENCE = 1 + DIGEST_SIZE
LEVEL_BITS, HOLDS_SPLIT = 0x3F, 0x80

MAX_SPLIT_DEPTH = 16  # what is nested deeper is not split


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


class StoredRun(NamedTuple):
    """A finished run, remembered: its elements as one list or map."""

    length: int
    plain: bytes
    size: int
    is_walked: bool
    reference: bytes


class Runs(NamedTuple):
    """A value's finished runs, and the nodes above the last of them."""

    runs: tuple[StoredRun, ...]
    levels: tuple[tuple[bytes, ...], ...]
    reached: frozenset[bytes]


class Appended(NamedTuple):
    """An AppendList as far as it was gathered. Its list of elements is the live one: it only ever grows."""

    elements: list[bytes]
    length: int
    size: int
    state: GathererState


class Memory(NamedTuple):
    """A memory of one value: its encoding in one piece, or its runs, or its entries, or what was appended.

    `reached` has blobs that are stored with it: all of them, but of an AppendList only those it refers to itself.
    `holds_split` says whether there are any.
    """

    stored: bytes = b""
    size: int = 0
    reached: frozenset[bytes] = frozenset()
    holds_split: bool = False
    plain: bytes | None = None
    runs: Runs | None = None
    entries: Mapping[str, Memory] = {}
    length: int = 0
    appended: Appended | None = None


NOTHING = Memory()
NONE_APPENDED = Appended([], 0, 0, START)


class Split(NamedTuple):
    """A value ready to be stored: its root, every other blob that the value before did not have, and slices."""

    ref: ValueRef
    root: bytes
    blobs: dict[bytes, bytes]
    slices: list[Slice]


class Splitter:
    """A splitter of a line of values, each most likely similar to the one before. Not for several threads at once.

    A split becomes what is remembered only by `keep`: a save that fails changes nothing.
    """

    def __init__(self, max_bytes: int, blob_id: BlobId) -> None:
        self._max_bytes = max_bytes
        self._blob_id = blob_id
        self._kept = self._next = NOTHING

    def split(self, value: object, name: str = "state") -> Split:
        """Split a value. Raises UnstorableError, naming the path, for what cannot be kept or is too large."""
        if type(value) is list or type(value) is dict:
            value = value.copy()  # of one moment: other threads may change it meanwhile, as below
        work = _Work(self._kept.reached, self._blob_id)
        memory = work.store(value, self._kept, (None, NAME, name), 0)
        if memory.size > self._max_bytes:
            raise UnstorableError(
                f"{name} takes {memory.size:,} bytes, more than the {self._max_bytes:,} allowed",
                hint="keep large content in files, or raise max_state_bytes",
                path=name,
            )
        self._next = memory
        count = len(value) if type(value) is list or type(value) is dict else memory.length
        ref = ValueRef(self._blob_id.of(memory.stored), memory.size, count)
        return Split(ref, memory.stored, work.blobs, work.slices)

    def keep(self) -> None:
        """Remember the value split last: it is stored, and the next one continues it."""
        self._kept = self._next

    def forget(self) -> None:
        """Forget what was split: the next value continues something else."""
        self._kept = self._next = NOTHING


class _Work:
    """A split under way, with the blobs that it adds to those that are `known` to be stored."""

    def __init__(self, known: frozenset[bytes], blob_id: BlobId) -> None:
        self._known = known
        self._blob_id = blob_id
        self.blobs: dict[bytes, bytes] = {}
        self.slices: list[Slice] = []

    def store(self, value: Any, memory: Memory, path: Path, depth: int) -> Memory:
        if type(value) is AppendList and depth < MAX_SPLIT_DEPTH:
            return self._store_appended(value, memory.appended or NONE_APPENDED, depth)
        if memory.size <= INLINE:  # it was small, so it most likely is: no need to look into it
            plain = values.encode_fast(value)
            if plain is None or values.may_hold_bytes(plain):
                plain = values.encode(value, path) if memory.size else None
            if plain is not None and len(plain) <= INLINE:
                return Memory(plain, len(plain), plain=plain)
        if type(value) is list or type(value) is dict:
            value = value.copy()
        is_map = type(value) is dict and values.is_plain_map(value)
        if depth >= MAX_SPLIT_DEPTH or not (is_map or type(value) is list):
            return self._store_text(value, memory, path)
        if is_map and len(value) <= SMALL_MAP:
            return self._store_small_map(value, memory, path, depth)
        source = _Elements(value, path)
        taken = source.take(memory.runs.runs) if memory.runs else 0
        if memory.runs is None or not taken:
            plain = values.encode(value, path)
            if len(plain) <= INLINE:
                return Memory(plain, len(plain))
        return self._store_many(source, memory.runs, taken, depth)

    def _store_text(self, value: Any, memory: Memory, path: Path) -> Memory:
        plain = values.encode(value, path)
        if plain == memory.plain:
            return memory
        if len(plain) <= INLINE:
            return Memory(plain, len(plain), plain=plain)
        gatherer = Gatherer(self)
        for line in _lines(plain):
            gatherer.add(line)
        stored = gatherer.finish(SPLIT_TEXT, len(plain))
        return Memory(stored, len(plain), frozenset(gatherer.reached), gatherer.holds_split, plain=plain)

    def _store_small_map(self, value: dict[str, Any], memory: Memory, path: Path, depth: int) -> Memory:
        entries = {
            key: self.store(item, memory.entries.get(key, NOTHING), (path, ENTRY, key), depth + 1)
            for key, item in value.items()
        }
        parts = [values.encode(key) + entry.stored for key, entry in entries.items()]
        stored = map_header(len(parts)) + b"".join(parts)
        size = len(stored) + sum(entry.size - len(entry.stored) for entry in entries.values())
        reached = frozenset[bytes]().union(*(entry.reached for entry in entries.values()))
        holds_split = any(entry.holds_split for entry in entries.values())
        if len(stored) > SMALL_MAP_BYTES:
            gatherer = Gatherer(self)
            for part, entry in zip(parts, entries.values(), strict=True):
                gatherer.add(part, entry.holds_split)
            stored = gatherer.finish(SPLIT_MAP, len(parts))
            reached |= gatherer.reached
            holds_split = gatherer.holds_split
        return Memory(stored, size, reached, holds_split, entries=entries)

    def _store_many(self, source: _Elements, remembered: Runs | None, taken: int, depth: int) -> Memory:
        """Store elements; `taken` is how many of the remembered runs are still the same."""
        runs = list(remembered.runs[:taken]) if remembered else []
        if remembered and taken and taken == len(remembered.runs):
            gatherer = Gatherer(self, GathererState(levels=remembered.levels, holds_split=True))
            gatherer.reached |= remembered.reached
        else:
            gatherer = Gatherer(self)
            for run in runs:
                gatherer.take(run.reference)
        size = sum(run.size for run in runs)
        finished = frozenset(gatherer.reached)
        behind: list[bytes] = []  # the elements after the last finished run
        behind_is_walked = False
        for key, item, path in source.rest():
            encoded, is_walked = values.encode_noting_walk(item, path)
            plain = key + encoded
            stored, holds_split = plain, False
            if len(encoded) > LARGE:
                split = self.store(item, NOTHING, path, depth + 1)
                gatherer.reached |= split.reached
                stored, holds_split = key + split.stored, split.holds_split
            behind.append(plain)
            behind_is_walked = behind_is_walked or is_walked
            if (reference := gatherer.add(stored, holds_split)) is not None:
                body = b"".join(behind)
                whole = source.header(len(behind)) + body
                runs.append(StoredRun(len(behind), whole, len(body), behind_is_walked, reference))
                size += len(body)
                finished = frozenset(gatherer.reached)
                behind, behind_is_walked = [], False
        runs_now = Runs(tuple(runs), gatherer.levels(), finished)
        size += sum(map(len, behind)) + len(source.header(source.count))
        stored = gatherer.finish(source.code, source.count)
        return Memory(stored, size, frozenset(gatherer.reached), gatherer.holds_split, runs=runs_now)

    def _store_appended(self, value: AppendList, before: Appended, depth: int) -> Memory:
        """Store an AppendList, reading only what was appended since `before` if the list is the one of then."""
        elements = encoded_elements(value)
        if not _continues(elements, before):
            before = NONE_APPENDED
        fresh = elements[before.length :]  # another thread may append meanwhile: from here on only this counts
        length = before.length + len(fresh)
        size = before.size + sum(map(len, fresh))
        whole = append_list_size(length, size)
        if whole <= INLINE:
            return Memory(encode_append_list(fresh), whole, length=length)
        gatherer = Gatherer(self, before.state)
        for element in fresh:
            if len(element) > LARGE:
                split = self.store(open_element(element), NOTHING, None, depth + 1)
                gatherer.add(split.stored, split.holds_split)
            else:
                gatherer.add(element)
        stored = gatherer.finish(SPLIT_APPEND, length)
        reached = frozenset(reference[1:] for reference in gatherer.references())
        appended = Appended(elements, length, size, gatherer.state())
        return Memory(stored, whole, reached, gatherer.holds_split, length=length, appended=appended)

    def add(self, data: bytes) -> bytes:
        key = self._blob_id.of(data)
        if key not in self._known:
            self.blobs[key] = data
        return key

    def slice(self, pieces: list[Piece], run: bytes) -> None:
        """Note that `run` is made of `pieces`: those that are stored need not be kept twice."""
        if run not in self.blobs or not self._known:
            return
        position = 0
        for piece in pieces:
            key = piece.digest or self._blob_id.of(piece.data)
            if key in self._known and key != run:
                self.slices.append(Slice(key, run, position))
            position += len(piece.data)


def _continues(elements: list[bytes], before: Appended) -> bool:
    """Say whether `elements` begins with those gathered before: as the same list, or one loaded or copied since."""
    if elements is before.elements:
        return True
    return len(elements) >= before.length and elements[: before.length] == before.elements[: before.length]


class _Elements:
    """A list's or a map's elements: first as remembered runs, then one by one."""

    def __init__(self, value: list[Any] | dict[str, Any], path: Path) -> None:
        self._is_map = type(value) is dict
        self._elements = list(value.items()) if isinstance(value, dict) else value
        self._path = path
        self._at = 0
        self.count = len(value)
        self.code, self.header = (SPLIT_MAP, map_header) if self._is_map else (SPLIT_LIST, array_header)

    def take(self, runs: tuple[StoredRun, ...]) -> int:
        """Count how many of `runs` still encode to the same bytes, from the first on; `rest` goes on behind them."""
        taken = 0
        for run in runs:
            part: Any = self._elements[self._at : self._at + run.length]
            part = dict(part) if self._is_map else part
            if (_encode_strictly(part) if run.is_walked else values.encode_fast(part)) != run.plain:
                break
            taken += 1
            self._at += run.length
        return taken

    def rest(self) -> Iterator[tuple[bytes, Any, Path]]:
        """Yield (encoded key, value, path) of every element that was not taken; in a list the key is empty."""
        for index, element in enumerate(islice(self._elements, self._at, None), self._at):
            if self._is_map:
                key, item = element
                yield values.encode(key), item, (self._path, ENTRY, key)
            else:
                yield b"", element, (self._path, ITEM, index)


def _encode_strictly(part: object) -> bytes | None:
    try:
        return values.encode_strictly(part)
    except UnstorableError:
        return None  # `rest` will meet it, and knows its path


def _lines(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start, start + LINE_MAX) + 1 or start + LINE_MAX
        yield data[start:end]
        start = end


class Gatherer:
    """A gatherer of elements, from the beginning or from the state of another.

    `reached` has every blob referred to since then; `holds_split` says whether there is any blob at all.
    """

    def __init__(self, work: _Work, state: GathererState = START) -> None:
        self._work = work
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
        self._work.slice(self._pieces, key)
        self._pieces, self._run_size = [], 0
        reference = _flag(holds_split) + key
        self._refer(reference, 0)
        return reference

    def _store_piece(self, piece: Piece) -> Piece:
        return piece._replace(digest=self._add(piece.data))

    def _add(self, data: bytes) -> bytes:
        self.holds_split = True
        key = self._work.add(data)
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
