"""Large values split at content-defined boundaries, so that history costs what changed (docs/format.md).

A `Splitter` remembers the value it split last. Runs of elements that still encode to the same bytes are
taken over without hashing; the rest is split anew. The result depends on the value alone, never on what is
remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple
from zlib import crc32

from ormsgpack import Ext, packb

from lastgood.content import values
from lastgood.content.codes import SPLIT_LIST, SPLIT_MAP, SPLIT_TEXT
from lastgood.content.values import ENTRY, ITEM, NAME, Path, array_header, map_header
from lastgood.errors import UnstorableError
from lastgood.model.checkpoint import ValueRef
from lastgood.model.digest import SIZE, digest

INLINE = 1024  # values up to this many bytes stay where they are
LARGE = 16_384  # elements beyond this are split themselves
SMALL_MAP, SMALL_MAP_BYTES = 32, 4096
PIECE, PIECE_MIN, PIECE_MAX = 256, 256, 4096
RUN, RUN_MIN, RUN_MAX = 3072, 20_480, 65_536
NODE_BELOW, NODE_MIN, NODE_MAX = 128, 2, 16
LINE_MAX = 4096

REFERENCE = 1 + SIZE
LEVEL_BITS, HOLDS_SPLIT = 0x3F, 0x80

MAX_LOOK = 16  # what is nested deeper is not looked into


class Element(NamedTuple):
    """One element as it is stored; `holds_split` when large parts of it are split off."""

    stored: bytes
    holds_split: bool = False
    plain: bytes = b""
    has_bytes: bool = False


class Run(NamedTuple):
    """A finished run, remembered: its elements as one list or map."""

    length: int
    plain: bytes
    size: int
    has_bytes: bool
    reference: bytes


class Runs(NamedTuple):
    """All finished runs of a value, and where gathering stood behind the last of them."""

    runs: tuple[Run, ...]
    size: int
    levels: tuple[tuple[bytes, ...], ...]
    reached: frozenset[bytes]


class Memory(NamedTuple):
    """What is remembered of one value: its encoding in one piece, or its runs, or its entries."""

    stored: bytes = b""
    size: int = 0
    reached: frozenset[bytes] = frozenset()
    plain: bytes | None = None
    runs: Runs | None = None
    entries: Mapping[str, Memory] = {}


NOTHING = Memory()


class Slice(NamedTuple):
    """A piece that was stored by itself before, and is now a part of a finished run."""

    digest: bytes
    run: bytes
    position: int


class Split(NamedTuple):
    """A value ready to be stored: its root, every other blob that the value before did not have, and slices."""

    ref: ValueRef
    root: bytes
    blobs: dict[bytes, bytes]
    slices: list[Slice]


class Splitter:
    """Splits a line of values, each most likely similar to the one before. Not for several threads at once.

    A split becomes what is remembered only by `keep`: a save that fails changes nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept = self._next = NOTHING

    def split(self, value: object, name: str = "state") -> Split:
        """Raises UnstorableError, naming the path, for what cannot be kept or is too large."""
        work = _Work(self._kept.reached)
        memory = work.store(value, self._kept, (None, NAME, name), 0)
        if memory.size > self._max_bytes:
            raise UnstorableError(
                f"{name} takes {memory.size:,} bytes, more than the {self._max_bytes:,} allowed",
                hint="keep large content in files, or raise max_state_bytes",
                path=name,
            )
        self._next = memory
        count = len(value) if type(value) is list or type(value) is dict else 0
        return Split(ValueRef(digest(memory.stored), memory.size, count), memory.stored, work.blobs, work.slices)

    def keep(self) -> None:
        """The value split last is stored, and the next one continues it."""
        self._kept = self._next

    def forget(self) -> None:
        """The next value continues something else."""
        self._kept = self._next = NOTHING


class _Work:
    """One split under way: collects the blobs to be stored."""

    def __init__(self, known: frozenset[bytes]) -> None:
        self._known = known
        self.blobs: dict[bytes, bytes] = {}
        self.slices: list[Slice] = []

    def slice(self, pieces: list[bytes], run: bytes) -> None:
        """`run` is made of `pieces`: those that are stored need not be kept twice."""
        position = 0
        for piece in pieces:
            key = digest(piece)
            if key in self._known and key != run:
                self.slices.append(Slice(key, run, position))
            position += len(piece)

    def add(self, data: bytes) -> bytes:
        key = digest(data)
        if key not in self._known:
            self.blobs[key] = data
        return key

    def store(self, value: Any, memory: Memory, path: Path, depth: int) -> Memory:
        if memory.size <= INLINE:  # it was small, so it most likely is: no need to look into it
            plain = values.encode_fast(value)
            if plain is not None and len(plain) <= INLINE and not values.may_hold_bytes(plain):
                return Memory(plain, len(plain), plain=plain)
        if type(value) is dict and values.is_plain_map(value) and depth < MAX_LOOK:
            if len(value) <= SMALL_MAP:
                return self._store_small_map(value, memory, path, depth)
            source: _Source = _Entries(value, path)
        elif type(value) is list and depth < MAX_LOOK:
            source = _Items(value, path)
        else:
            return self._store_text(value, memory, path)
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
        gathering = _Gathering(self)
        for line in _lines(plain):
            gathering.add(Element(line))
        stored = gathering.finish(SPLIT_TEXT, len(plain))
        return Memory(stored, len(plain), frozenset(gathering.reached), plain=plain)

    def _store_small_map(self, value: dict[str, Any], memory: Memory, path: Path, depth: int) -> Memory:
        entries = {
            key: self.store(item, memory.entries.get(key, NOTHING), (path, ENTRY, key), depth + 1)
            for key, item in value.items()
        }
        parts = [values.encode(key) + entry.stored for key, entry in entries.items()]
        stored = map_header(len(parts)) + b"".join(parts)
        size = len(stored) + sum(entry.size - len(entry.stored) for entry in entries.values())
        reached = frozenset[bytes]().union(*(entry.reached for entry in entries.values()))
        if len(stored) > SMALL_MAP_BYTES:
            gathering = _Gathering(self)
            for part, entry in zip(parts, entries.values(), strict=True):
                gathering.add(Element(part, bool(entry.reached)))
            stored = gathering.finish(SPLIT_MAP, len(parts))
            reached |= gathering.reached
        return Memory(stored, size, reached, entries=entries)

    def _store_many(self, source: _Source, remembered: Runs | None, taken: int, depth: int) -> Memory:
        """`taken` is how many of the remembered runs are still the same."""
        gathering = _Gathering(self)
        runs = list(remembered.runs[:taken]) if remembered else []
        if remembered and taken and taken == len(remembered.runs):
            size = gathering.resume(remembered)
        else:
            size = sum(map(gathering.take, runs))
        finished = frozenset(gathering.reached)
        for key, item, path in source.rest():
            encoded, has_bytes = values.encode_looking(item, path)
            element = Element(key + encoded, False, key + encoded, has_bytes)
            if len(encoded) > LARGE:
                split = self.store(item, NOTHING, path, depth + 1)
                gathering.reached |= split.reached
                element = Element(key + split.stored, bool(split.reached), element.plain, has_bytes)
            if (reference := gathering.add(element)) is not None:
                runs.append(_remember(source, gathering.last_run, reference))
                size += runs[-1].size
                finished = frozenset(gathering.reached)
        runs_now = gathering.remember(tuple(runs), size, finished)
        size += sum(len(element.plain) for element in gathering.rest())
        stored = gathering.finish(source.code, source.count)
        size += len(source.header(source.count))
        return Memory(stored, size, frozenset(gathering.reached), runs=runs_now)


def _remember(source: _Source, elements: list[Element], reference: bytes) -> Run:
    body = b"".join(element.plain for element in elements)
    has_bytes = any(element.has_bytes for element in elements)
    return Run(len(elements), source.header(len(elements)) + body, len(body), has_bytes, reference)


class _Source:
    """The elements of a list or a map: first as remembered runs, then one by one."""

    code: int
    header: Callable[[int], bytes]

    def __init__(self, count: int, path: Path) -> None:
        self.count = count
        self._path = path
        self._at = 0

    def take(self, runs: tuple[Run, ...]) -> int:
        """How many of `runs` still encode to the same bytes, from the first on; `rest` goes on behind them."""
        taken = 0
        for run in runs:
            part = self.part(self._at, self._at + run.length)
            if (values.encode_fast(part) if not run.has_bytes else _encode_strictly(part)) != run.plain:
                break
            taken += 1
            self._at += run.length
        return taken

    def part(self, start: int, stop: int) -> list[Any] | dict[str, Any]:
        raise NotImplementedError

    def rest(self) -> Iterator[tuple[bytes, Any, Path]]:
        """(encoded key, value, path) of every element that was not taken."""
        raise NotImplementedError


def _encode_strictly(part: object) -> bytes | None:
    try:
        return values.encode_strictly(part)[0]
    except UnstorableError:
        return None  # `rest` will meet it, and knows its path


class _Items(_Source):
    code = SPLIT_LIST
    header = staticmethod(array_header)

    def __init__(self, items: list[Any], path: Path) -> None:
        super().__init__(len(items), path)
        self._items = items

    def part(self, start: int, stop: int) -> list[Any]:
        return self._items[start:stop]

    def rest(self) -> Iterator[tuple[bytes, Any, Path]]:
        for index, item in enumerate(islice(self._items, self._at, None), self._at):
            yield b"", item, (self._path, ITEM, index)


class _Entries(_Source):
    code = SPLIT_MAP
    header = staticmethod(map_header)

    def __init__(self, entries: dict[str, Any], path: Path) -> None:
        super().__init__(len(entries), path)
        self._entries = list(entries.items())

    def part(self, start: int, stop: int) -> dict[str, Any]:
        return dict(self._entries[start:stop])

    def rest(self) -> Iterator[tuple[bytes, Any, Path]]:
        for key, item in islice(self._entries, self._at, None):
            yield values.encode(key), item, (self._path, ENTRY, key)


class _Gathering:
    """Elements on their way into pieces, runs and nodes."""

    def __init__(self, work: _Work) -> None:
        self._work = work
        self._piece: list[Element] = []
        self._pieces: list[list[Element]] = []
        self._piece_size = self._run_size = 0
        self._levels: list[list[bytes]] = [[]]
        self.last_run: list[Element] = []
        self.reached: set[bytes] = set()

    def add(self, element: Element) -> bytes | None:
        """The reference of the run that ends with this element, if one does; `last_run` has its elements."""
        size, mark = len(element.stored), crc32(element.stored)
        self._piece.append(element)
        self._piece_size += size
        self._run_size += size
        if (mark * PIECE < size << 32 and self._piece_size >= PIECE_MIN) or self._piece_size >= PIECE_MAX:
            self._pieces.append(self._piece)
            self._piece, self._piece_size = [], 0
            if (mark * RUN < size << 32 and self._run_size >= RUN_MIN) or self._run_size >= RUN_MAX:
                return self._end_run()
        return None

    def take(self, run: Run) -> int:
        """Go on behind a run as it was; its size."""
        self.reached.add(run.reference[1:])
        self._refer(run.reference, 0)
        return run.size

    def resume(self, runs: Runs) -> int:
        """Go on behind all of `runs`; their size."""
        self._levels = [list(level) for level in runs.levels]
        self.reached |= runs.reached
        return runs.size

    def remember(self, runs: tuple[Run, ...], size: int, reached: frozenset[bytes]) -> Runs:
        return Runs(runs, size, tuple(map(tuple, self._levels)), reached)

    def rest(self) -> Iterator[Element]:
        """The elements behind the last finished run."""
        for piece in (*self._pieces, self._piece):
            yield from piece

    def finish(self, code: int, count: int) -> bytes:
        """The split value, as it stands in place of the whole one."""
        references = [reference for level in reversed(self._levels) for reference in level]
        references += [self._blob(piece) for piece in self._pieces]
        tail = b"".join(element.stored for element in self._piece)
        return packb(Ext(code, packb([count, b"".join(references), tail])))

    def _end_run(self) -> bytes:
        self.last_run = [element for piece in self._pieces for element in piece]
        reference = self._blob(self.last_run)
        if reference[1:] in self._work.blobs:
            pieces = [b"".join(element.stored for element in piece) for piece in self._pieces]
            self._work.slice(pieces, reference[1:])
        self._pieces, self._run_size = [], 0
        self._refer(reference, 0)
        return reference

    def _blob(self, elements: list[Element]) -> bytes:
        flag = HOLDS_SPLIT if any(element.holds_split for element in elements) else 0
        return self._add(flag, b"".join(element.stored for element in elements))

    def _add(self, flag: int, data: bytes) -> bytes:
        key = self._work.add(data)
        self.reached.add(key)
        return bytes((flag,)) + key

    def _refer(self, reference: bytes, level: int) -> None:
        if level == len(self._levels):
            self._levels.append([])
        references = self._levels[level]
        references.append(reference)
        if (reference[1] < NODE_BELOW and len(references) >= NODE_MIN) or len(references) >= NODE_MAX:
            flag = level + 1 | (HOLDS_SPLIT if any(ref[0] & HOLDS_SPLIT for ref in references) else 0)
            self._levels[level] = []
            self._refer(self._add(flag, b"".join(references)), level + 1)


def _lines(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start, start + LINE_MAX) + 1 or start + LINE_MAX
        yield data[start:end]
        start = end
