"""What checkpoints reach: as a graph, to measure what each takes, and as a set, to know what is not garbage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from lastgood.catalog.contract import Catalog
from lastgood.catalog.values import (
    FILES,
    MAX_PAGE,
    Blob,
    CheckpointRoot,
    IndexedBlob,
    SlicedBlob,
    StoredCheckpoint,
)
from lastgood.codec.join import Reference, is_plain
from lastgood.engine.blobs import BlobReader, FileBlobs, UnreadableBlob, raise_unreadable
from lastgood.engine.walk import Walk, companion_references, state_references, tree_references
from lastgood.errors import IntegrityError
from lastgood.model.checkpoint import decode_record
from lastgood.model.identity import BlobId

T = TypeVar("T")


def _each_checkpoint(catalog: Catalog) -> Iterator[CheckpointRoot]:
    return all_pages(catalog.held, lambda last: last.stored)


def each_blob(catalog: Catalog) -> Iterator[IndexedBlob]:
    """Yield all blobs by number, a page at a time."""
    return all_pages(catalog.indexed, lambda last: last.number)


def each_slice(catalog: Catalog) -> Iterator[SlicedBlob]:
    """Yield all blobs that are parts of others, a page at a time."""
    return all_pages(catalog.sliced, lambda last: last)


def all_pages(read: Callable[..., Sequence[T]], place: Callable[[T], object]) -> Iterator[T]:
    """Yield all that `read` gives, a page at a time; called with the place of the last one it gives those after it."""
    page = read()
    while page:
        yield from page
        page = read(place(page[-1]))


class _Outgoing:
    """A checkpoint and what it refers to itself. Its record and its root are not kept: there may be many."""

    def __init__(self, blob_id: BlobId, held: CheckpointRoot) -> None:
        data = held.stored.data or b""
        self.stored = msgspec.structs.replace(held.stored, data=None)
        self.own_bytes = len(data) + (len(held.root.data) if held.root else 0)
        self.created_at: int | None = None
        self.parts: list[Reference] = []
        self.trees: list[Reference] = []
        self.is_damaged = False
        try:
            record = decode_record(data, held.stored.checksum, "it")
            self.created_at = record.created_at
            self.trees = tree_references(record)
            self.parts = [reference for _, reference in companion_references(record)]
            self.parts += state_references(blob_id, record, held.root)
        except IntegrityError:
            self.is_damaged = True


# --- the graph ----------------------------------------------------------------------------------------------------


class Graph:
    """A graph whose nodes are numbers. Each has the bytes on disk that are its own, and leads to those in `below`. A
    blob that is a tree to one and a file to another has a node for each, above one for its bytes."""

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

    def reaches_without(self, others: Iterable[int], least: int) -> Callable[[int], bool]:
        """Return whether a node reaches more bytes than `least` that none of `others` does, as a function."""
        reached = bytearray(len(self.below))
        waiting = list(others)
        while waiting:
            node = waiting.pop()
            if not reached[node]:
                reached[node] = 1
                waiting += self.below[node]

        def reaches(start: int) -> bool:
            total, seen, waiting = 0, set[int](), [start]
            while waiting and total <= least:
                node = waiting.pop()
                if not reached[node] and node not in seen:
                    seen.add(node)
                    total += self.stored[node]
                    waiting += self.below[node]
            return total > least

        return reaches

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


class CheckpointNode(NamedTuple):
    """A checkpoint in the graph, without its record. `created_at` None: that is damaged, and what it refers to is not
    known."""

    node: int
    stored: StoredCheckpoint
    created_at: int | None


class StoreGraph(Graph):
    """The graph of a store: checkpoints, all that they lead to, and every blob, also those that nothing leads to.

    `unreadable`: how many records, and blobs that refer to others or are referred to, are missing or damaged; what
    they alone led to is as if nothing reached it.
    """

    def __init__(self, catalog: Catalog, files: FileBlobs) -> None:
        super().__init__()
        self._catalog = catalog
        self._blobs: defaultdict[int, dict[bytes, int]] = defaultdict(dict)
        self._referred: defaultdict[int, dict[Reference, int]] = defaultdict(dict)
        # Checkpoints first, then the index: what was saved meanwhile is at worst a blob that nothing reaches yet.
        found = [_Outgoing(files.blob_id, held) for held in _each_checkpoint(catalog)]
        self._read_index()
        self.unreadable = sum(one.is_damaged for one in found)
        self.checkpoints: list[CheckpointNode] = []
        references: defaultdict[int, list[Reference]] = defaultdict(list)
        for one in found:
            task = one.stored.task_number
            below = self._nodes(task, one.parts) + self._nodes(FILES, one.trees)
            self.checkpoints.append(CheckpointNode(self.add(one.own_bytes, below), one.stored, one.created_at))
            references[task] += one.parts
            references[FILES] += one.trees
        read = BlobReader(files.blob_id, self._look_up, files.objects, self._count_unreadable).read
        walk = Walk(read, self._count_malformed)
        for partition, named in references.items():
            for visit in walk.follow(partition, named):
                self.below[self._referred[partition][visit.reference]] += self._nodes(partition, visit.below)

    def _read_index(self) -> None:
        for blob in each_blob(self._catalog):
            self._blobs[blob.partition][blob.digest] = self.add(blob.length)
        for partition, key, whole in each_slice(self._catalog):
            if (node := self._blobs[partition].get(whole, -1)) >= 0:
                self._blobs[partition].setdefault(key, node)

    def _nodes(self, partition: int, references: Iterable[Reference]) -> tuple[int, ...]:
        """Return the node of each, without those that are missing."""
        blobs, referred = self._blobs[partition], self._referred[partition]
        found: dict[int, None] = {}
        for reference in references:
            node = referred.get(reference)
            if node is None:
                node = blobs.get(reference[1:], -1)
                if node < 0:
                    self.unreadable += 1
                elif not is_plain(reference):
                    node = self.add(0, (node,))
                referred[reference] = node
            if node >= 0:
                found[node] = None
        return tuple(found)

    def _look_up(self, partition: int, keys: Sequence[bytes]) -> dict[bytes, Blob]:
        """Look up those that are in the index and can be read."""
        there = [key for key in keys if key in self._blobs[partition]]
        try:
            return self._catalog.blobs(partition, there)
        except IntegrityError:
            if len(there) == 1:
                return {}
        return {key: blob for one in there for key, blob in self._look_up(partition, [one]).items()}

    def _count_unreadable(self, blob: UnreadableBlob) -> None:
        if blob.key in self._blobs[blob.partition]:  # else it is counted where it was referred to
            self.unreadable += 1

    def _count_malformed(self, partition: int, reference: Reference, error: IntegrityError) -> None:
        self.unreadable += 1


# --- the set ------------------------------------------------------------------------------------------------------


class NeededBlobs:
    """The blobs that checkpoints need, by partition. IntegrityError when something that leads to others cannot be read:
    what it led to is not known, so nothing can be said to be garbage."""

    def __init__(self, catalog: Catalog, files: FileBlobs, *, without: Collection[tuple[str, str]] = ()) -> None:
        """`without`: owner and id of checkpoints that do not count."""
        self._catalog = catalog
        self._blob_id = files.blob_id
        self.without = without
        self._checkpoints: set[tuple[int, int]] = set()
        self._needed: defaultdict[int, set[bytes]] = defaultdict(set)
        read = BlobReader(files.blob_id, catalog.blobs, files.objects, self._raise_unreadable).read
        self._walk = Walk(read, self._raise_malformed, changes_only=True)

    def has(self, partition: int, digest: bytes) -> bool:
        return digest in self._needed[partition]

    def has_part(self, part: SlicedBlob) -> bool:
        """Return whether it is needed as a part of its whole."""
        return self.has(part.partition, part.digest) and self.has(part.partition, part.whole)

    def mark_all(self) -> int:
        """Mark what the store's checkpoints need, those that were marked before excepted; return how many were not."""
        references: defaultdict[int, list[Reference]] = defaultdict(list)
        count = len(self._checkpoints)
        for held in _each_checkpoint(self._catalog):
            number = held.stored.task_number, held.stored.placement.sequence
            if number not in self._checkpoints and (held.stored.owner, held.stored.id) not in self.without:
                outgoing = _Outgoing(self._blob_id, held)
                if outgoing.is_damaged:
                    raise IntegrityError(f"the record of checkpoint {held.stored.id} is damaged")
                references[held.stored.task_number] += outgoing.parts
                references[FILES] += outgoing.trees
                self._checkpoints.add(number)
        for partition, named in references.items():
            needed = self._needed[partition]
            needed.update(reference[1:] for reference in named)
            for visit in self._walk.follow(partition, named):
                needed.update(reference[1:] for reference in visit.below)
        self._mark_wholes()
        return len(self._checkpoints) - count

    def _raise_unreadable(self, blob: UnreadableBlob) -> None:
        if blob.partition == FILES:
            raise_unreadable(blob)
        if self._is_there(blob.partition):
            how = "damaged" if blob.problem == "damaged" else "missing"
            raise IntegrityError(f"a part of a state is {how}")

    def _raise_malformed(self, partition: int, reference: Reference, error: IntegrityError) -> None:
        if partition == FILES or self._is_there(partition):
            raise error

    def _is_there(self, task: int) -> bool:
        """Return whether the task still exists: it may have been deleted meanwhile, with all that it had."""
        return any(each.number == task for each in self._catalog.tasks(None, after=task + 1, limit=1))

    def _mark_wholes(self) -> None:
        """Mark blobs with a part that is needed, unless that was brought again and has its own bytes."""
        needed = (part for part in each_slice(self._catalog) if part.digest in self._needed[part.partition])
        while parts := list(islice(needed, MAX_PAGE)):
            for partition in {part.partition for part in parts}:
                own = self._catalog.has_blobs(partition, [one.digest for one in parts if one.partition == partition])
                self._needed[partition].update(
                    one.whole for one in parts if one.partition == partition and one.digest not in own
                )
