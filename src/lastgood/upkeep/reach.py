"""What each checkpoint reaches, as a graph: checkpoints, what names content (trees, lists of chunks, nodes), and blobs.

Everything is read once, whoever names it: reading grows with what is stored, not with how many checkpoints share it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

import msgspec

from lastgood.catalog.contract import Catalog
from lastgood.catalog.values import FILES, Blob, CheckpointRoot, StoredCheckpoint
from lastgood.codec.compress import decompress
from lastgood.codec.pieces import ELEMENTS, is_plain, references_below, references_in
from lastgood.engine.blobs import FileBlobs
from lastgood.errors import IntegrityError
from lastgood.model.checkpoint import VALUES, Record, ValueRef, decode_record
from lastgood.model.digest import digest
from lastgood.model.tree import File, Folder, decode_chunks, decode_tree

READ_AT_ONCE = 256

# How a blob of files is read; in a task's partition it is the flag of a reference.
CONTENT, TREE, CHUNKS = b"\0", b"\1", b"\2"


class Graph:
    """Nodes are numbers. Each has the bytes on disk that are its own, and leads to those in `below`. A blob that is a
    tree to one and a file to another has a node for each, above one for its bytes.
    """

    def __init__(self) -> None:
        self.below: list[tuple[int, ...]] = []
        self.stored: list[int] = []

    def add(self, stored: int, below: tuple[int, ...] = ()) -> int:
        self.below.append(below)
        self.stored.append(stored)
        return len(self.below) - 1

    def added(self, nodes: Iterable[int]) -> dict[int, int]:
        """Count the bytes that each of `nodes` is the first to reach. Follows every edge once."""
        seen = bytearray(len(self.below))
        found = {}
        for node in nodes:
            total = 0
            waiting = [node]
            while waiting:
                one = waiting.pop()
                if not seen[one]:
                    seen[one] = 1
                    total += self.stored[one]
                    waiting += self.below[one]
            found[node] = total
        return found

    def exclusive(self, nodes: Sequence[int]) -> dict[int, int]:
        """Count the bytes that each of `nodes` reaches and no other of them does. Follows every edge twice at most."""
        nobody, several = -1, -2
        reached_by = [nobody] * len(self.below)
        for start in nodes:
            waiting = [start]
            while waiting:
                node = waiting.pop()
                if reached_by[node] == nobody:
                    reached_by[node] = start
                elif reached_by[node] not in (start, several):
                    reached_by[node] = several
                else:
                    continue
                waiting += self.below[node]
        found = dict.fromkeys(nodes, 0)
        for node, start in enumerate(reached_by):
            if start >= 0:
                found[start] += self.stored[node]
        return found


class Holder(NamedTuple):
    """A checkpoint in the graph, without its record. `created_at` None: that is damaged, and what it names is not
    known."""

    node: int
    stored: StoredCheckpoint
    created_at: int | None


class Reached(NamedTuple):
    """The graph of a store: checkpoints, all that they lead to, and every blob, also those that nobody leads to.

    `unreadable`: how many records, and things that name content or are named, are missing or damaged; what they alone
    led to is as if nobody reached it.
    """

    graph: Graph
    holders: list[Holder]
    unreadable: int


def read_reached(catalog: Catalog, files: FileBlobs) -> Reached:
    """Checkpoints first, then the index: what was saved meanwhile is at worst a blob that nobody reaches yet."""
    named = [Named(held) for held in each_held(catalog)]
    reading = _Reading(catalog, files)
    holders = []
    for name in named:
        below = reading.nodes(name.stored.task_number, name.parts) + reading.nodes(FILES, name.trees)
        holders.append(Holder(reading.graph.add(name.own_bytes, below), name.stored, name.created_at))
    reading.settle()
    damaged = sum(name.damaged for name in named)
    return Reached(reading.graph, holders, reading.unreadable + damaged)


def each_held(catalog: Catalog) -> Iterator[CheckpointRoot]:
    page = catalog.held()
    while page:
        yield from page
        page = catalog.held(page[-1].stored)


class Named:
    """A checkpoint and what it names itself. Its record and its root are let go: there may be many."""

    def __init__(self, held: CheckpointRoot) -> None:
        data, root = held.stored.data or b"", held.root
        self.stored = msgspec.structs.replace(held.stored, data=None)
        self.own_bytes = len(data) + (len(root.data) if root else 0)
        self.created_at: int | None = None
        self.parts: list[bytes] = []
        self.trees: list[bytes] = []
        self.damaged = False
        try:
            self._read(decode_record(data, held.stored.checksum, "it"), root)
        except IntegrityError:
            self.damaged = True

    def _read(self, record: Record, root: Blob | None) -> None:
        values: dict[str, ValueRef | None] = {name: getattr(record, name) for name in VALUES}
        self.created_at = record.created_at
        self.trees = [TREE + root.tree for root in record.files or ()]
        state = values.pop("state")
        self.parts = [ELEMENTS + value.digest for value in values.values() if value]
        if state is not None:
            self.parts += references_in(unpack_part(state.digest, root, {}))


class _Reading:
    """The graph on its way out of the store: what is named and not read yet is waiting."""

    def __init__(self, catalog: Catalog, files: FileBlobs) -> None:
        self._catalog = catalog
        self._files = files
        self.graph = Graph()
        self.unreadable = 0
        self._blobs: defaultdict[int, dict[bytes, int]] = defaultdict(dict)
        self._named: defaultdict[int, dict[bytes, int]] = defaultdict(dict)
        self._waiting: defaultdict[int, dict[bytes, int]] = defaultdict(dict)
        self._chunked: dict[bytes, File] = {}
        self._read_index()

    def _read_index(self) -> None:
        page = self._catalog.indexed()
        while page:
            for blob in page:
                self._blobs[blob.partition][blob.digest] = self.graph.add(blob.length)
            page = self._catalog.indexed(page[-1].number)
        parts = self._catalog.sliced()
        while parts:
            for partition, key, whole in parts:
                if (node := self._blobs[partition].get(whole, -1)) >= 0:
                    self._blobs[partition].setdefault(key, node)
            parts = self._catalog.sliced(parts[-1])

    def nodes(self, partition: int, references: Iterable[bytes]) -> tuple[int, ...]:
        """The node of each, without those that are missing."""
        blobs, named, waiting = self._blobs[partition], self._named[partition], self._waiting[partition]
        found: dict[int, None] = {}
        for reference in references:
            node = named.get(reference)
            if node is None:
                node = blobs.get(reference[1:], -1)
                if node < 0:
                    self.unreadable += 1
                elif not is_plain(reference):
                    node = waiting[reference] = self.graph.add(0, (node,))
                named[reference] = node
            if node >= 0:
                found[node] = None
        return tuple(found)

    def settle(self) -> None:
        """Read what is waiting, and what that names, until nothing is."""
        while any(self._waiting.values()):
            for partition, waiting in list(self._waiting.items()):
                some = {reference: waiting[reference] for reference in islice(waiting, READ_AT_ONCE)}
                for reference in some:
                    del waiting[reference]
                if some:
                    self._read(partition, some)

    def _read(self, partition: int, some: dict[bytes, int]) -> None:
        keys = [reference[1:] for reference in some]
        found = self._fetch_files(keys) if partition == FILES else self._fetch_parts(partition, keys)
        for reference, node in some.items():
            try:
                data = found[reference[1:]]
                names = self._file_names(reference, data) if partition == FILES else references_below(reference, data)
            except (KeyError, IntegrityError):
                self.unreadable += 1
                continue
            self.graph.below[node] += self.nodes(partition, names)

    def _fetch_files(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Those that can be read."""
        try:
            return self._files.read_all(keys)
        except IntegrityError:
            if len(keys) == 1:
                return {}
        return {key: data for one in keys for key, data in self._fetch_files([one]).items()}

    def _fetch_parts(self, partition: int, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        wholes: dict[bytes, bytes] = {}
        found = {}
        for key, blob in self._catalog.blobs(partition, keys).items():
            with suppress(IntegrityError):
                found[key] = unpack_part(key, blob, wholes)
        return found

    def _file_names(self, reference: bytes, data: bytes) -> list[bytes]:
        how, key = reference[:1], reference[1:]
        if how == CHUNKS:
            return [CONTENT + chunk.digest for chunk in decode_chunks(data, self._chunked.pop(key))]
        names = []
        for entry in decode_tree(data, key):
            if isinstance(entry, Folder):
                names.append(TREE + entry.tree)
            elif not isinstance(entry, File):
                continue
            elif entry.chunks is None:
                names.append(CONTENT + entry.digest)
            else:
                self._chunked[entry.chunks] = entry
                names.append(CHUNKS + entry.chunks)
        return names


def unpack_part(key: bytes, blob: Blob | None, wholes: dict[bytes, bytes]) -> bytes:
    """The bytes of a part of a state, checked; `wholes` keeps the blobs that it and others are parts of."""
    if blob is None:
        raise IntegrityError("a part of a state is missing")
    if (whole := blob.whole) is None:
        data = decompress(blob.encoding, blob.data, blob.size)
    else:
        if whole.digest not in wholes:
            wholes[whole.digest] = decompress(blob.encoding, blob.data, whole.size)
        data = wholes[whole.digest][whole.position : whole.position + blob.size]
    if digest(data) != key:
        raise IntegrityError("a part of a state is damaged")
    return data
