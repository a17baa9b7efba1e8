"""Large values split at content-defined boundaries, so that history costs what changed (docs/reference/format.md).

A `Splitter` remembers the value it split last. Runs of elements that still encode to the same bytes are
taken over without hashing; the rest is split anew. An AppendList goes on where it was, and what it had then is
not read again. The result depends on the value alone, never on what is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

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
from lastgood.codec.pieces import START, Gatherer, GathererState, NewBlobs, Slice
from lastgood.errors import UnstorableError
from lastgood.model.checkpoint import ValueRef
from lastgood.model.identity import digest

INLINE = 1024  # values up to this many bytes stay where they are
LARGE = 16_384  # elements beyond this are split themselves
SMALL_MAP, SMALL_MAP_BYTES = 32, 4096
LINE_MAX = 4096

MAX_SPLIT_DEPTH = 16  # what is nested deeper is not split


class Element(NamedTuple):
    """An element behind the last finished run, in one piece."""

    plain: bytes
    has_bytes: bool


class StoredRun(NamedTuple):
    """A finished run, remembered: its elements as one list or map."""

    length: int
    plain: bytes
    size: int
    has_bytes: bool
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

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept = self._next = NOTHING

    def split(self, value: object, name: str = "state") -> Split:
        """Split a value. Raises UnstorableError, naming the path, for what cannot be kept or is too large."""
        work = _Work(self._kept.reached)
        memory = work.store(value, self._kept, (None, NAME, name), 0)
        if memory.size > self._max_bytes:
            raise UnstorableError(
                f"{name} takes {memory.size:,} bytes, more than the {self._max_bytes:,} allowed",
                hint="keep large content in files, or raise max_state_bytes",
                path=name,
            )
        self._next = memory
        count = len(value) if type(value) is list or type(value) is dict else memory.length
        ref = ValueRef(digest(memory.stored), memory.size, count)
        return Split(ref, memory.stored, work.new.blobs, work.new.slices)

    def keep(self) -> None:
        """Remember the value split last: it is stored, and the next one continues it."""
        self._kept = self._next

    def forget(self) -> None:
        """Forget what was split: the next value continues something else."""
        self._kept = self._next = NOTHING


class _Work:
    """A split under way, with the blobs to be stored."""

    def __init__(self, known: frozenset[bytes]) -> None:
        self.new = NewBlobs(known)

    def store(self, value: Any, memory: Memory, path: Path, depth: int) -> Memory:
        if type(value) is AppendList and depth < MAX_SPLIT_DEPTH:
            return self._store_appended(value, memory.appended or NONE_APPENDED, depth)
        if memory.size <= INLINE:  # it was small, so it most likely is: no need to look into it
            plain = values.encode_fast(value)
            if plain is not None and len(plain) <= INLINE and not values.may_hold_bytes(plain):
                return Memory(plain, len(plain), plain=plain)
        if type(value) is dict and values.is_plain_map(value) and depth < MAX_SPLIT_DEPTH:
            if len(value) <= SMALL_MAP:
                return self._store_small_map(value, memory, path, depth)
            source: _Source = _Entries(value, path)
        elif type(value) is list and depth < MAX_SPLIT_DEPTH:
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
        gatherer = Gatherer(self.new)
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
            gatherer = Gatherer(self.new)
            for part, entry in zip(parts, entries.values(), strict=True):
                gatherer.add(part, entry.holds_split)
            stored = gatherer.finish(SPLIT_MAP, len(parts))
            reached |= gatherer.reached
            holds_split = gatherer.holds_split
        return Memory(stored, size, reached, holds_split, entries=entries)

    def _store_many(self, source: _Source, remembered: Runs | None, taken: int, depth: int) -> Memory:
        """Store elements; `taken` is how many of the remembered runs are still the same."""
        runs = list(remembered.runs[:taken]) if remembered else []
        if remembered and taken and taken == len(remembered.runs):
            gatherer = Gatherer(self.new, GathererState(levels=remembered.levels, holds_split=True))
            gatherer.reached |= remembered.reached
        else:
            gatherer = Gatherer(self.new)
            for run in runs:
                gatherer.take(run.reference)
        size = sum(run.size for run in runs)
        finished = frozenset(gatherer.reached)
        behind: list[Element] = []
        for key, item, path in source.rest():
            encoded, has_bytes = values.encode_noting_bytes(item, path)
            plain = key + encoded
            stored, holds_split = plain, False
            if len(encoded) > LARGE:
                split = self.store(item, NOTHING, path, depth + 1)
                gatherer.reached |= split.reached
                stored, holds_split = key + split.stored, split.holds_split
            behind.append(Element(plain, has_bytes))
            if (reference := gatherer.add(stored, holds_split)) is not None:
                runs.append(_remember(source, behind, reference))
                size += runs[-1].size
                finished = frozenset(gatherer.reached)
                behind = []
        runs_now = Runs(tuple(runs), gatherer.levels(), finished)
        size += sum(len(element.plain) for element in behind) + len(source.header(source.count))
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
        gatherer = Gatherer(self.new, before.state)
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


def _continues(elements: list[bytes], before: Appended) -> bool:
    """Say whether `elements` begins with those gathered before: as the same list, or one loaded or copied since."""
    if elements is before.elements:
        return True
    return len(elements) >= before.length and elements[: before.length] == before.elements[: before.length]


def _remember(source: _Source, elements: list[Element], reference: bytes) -> StoredRun:
    body = b"".join(element.plain for element in elements)
    has_bytes = any(element.has_bytes for element in elements)
    return StoredRun(len(elements), source.header(len(elements)) + body, len(body), has_bytes, reference)


class _Source:
    """A list's or a map's elements: first as remembered runs, then one by one."""

    code: int
    header: Callable[[int], bytes]

    def __init__(self, count: int, path: Path) -> None:
        self.count = count
        self._path = path
        self._at = 0

    def take(self, runs: tuple[StoredRun, ...]) -> int:
        """Count how many of `runs` still encode to the same bytes, from the first on; `rest` goes on behind them."""
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
        """Yield (encoded key, value, path) of every element that was not taken."""
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


def _lines(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start, start + LINE_MAX) + 1 or start + LINE_MAX
        yield data[start:end]
        start = end
