"""Marking what checkpoints need: every blob that they lead to, each read once, whoever leads to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from lastgood.catalog.contract import Catalog
from lastgood.catalog.values import FILES, CheckpointRoot, SlicedBlob
from lastgood.codec.pieces import is_plain, references_below
from lastgood.engine.blobs import FileBlobs
from lastgood.errors import IntegrityError
from lastgood.model.tree import File, Folder, Versions, decode_chunks
from lastgood.upkeep.reach import Named, each_held, unpack_part

T = TypeVar("T")

READ_AT_ONCE = 512


class Marks:
    """Which blobs are needed, by partition. IntegrityError when something that leads to others cannot be read: what it
    led to is not known, so nothing can be said to be garbage."""

    def __init__(self, catalog: Catalog, files: FileBlobs, *, without: Collection[tuple[str, str]] = ()) -> None:
        """`without`: owner and id of checkpoints that do not count."""
        self._catalog = catalog
        self._files = files
        self.without = without
        self._checkpoints: set[tuple[int, int]] = set()
        self._needed: defaultdict[int, set[bytes]] = defaultdict(set)
        self._trees: set[bytes] = set()
        self._versions = Versions()
        self._chunked: set[bytes] = set()
        self._parts: defaultdict[int, set[bytes]] = defaultdict(set)

    def has(self, partition: int, digest: bytes) -> bool:
        return digest in self._needed[partition]

    def has_part(self, part: SlicedBlob) -> bool:
        """Whether it is needed as a part of its whole."""
        return self.has(part.partition, part.digest) and self.has(part.partition, part.whole)

    def mark_all(self) -> int:
        """Mark what the store's checkpoints need, those that were marked before excepted; how many were not."""
        trees: list[bytes] = []
        parts: defaultdict[int, list[bytes]] = defaultdict(list)
        count = len(self._checkpoints)
        for held in each_held(self._catalog):
            number = held.stored.task_number, held.stored.placement.sequence
            if number not in self._checkpoints and (held.stored.owner, held.stored.id) not in self.without:
                named = _read(held)
                trees += named.trees
                parts[held.stored.task_number] += named.parts
                self._checkpoints.add(number)
        self._mark_trees(reference[1:] for reference in trees)
        for task, references in parts.items():
            self._mark_parts(task, references)
        self._mark_wholes()
        return len(self._checkpoints) - count

    def _mark_trees(self, trees: Iterable[bytes]) -> None:
        waiting = self._unmet(trees, self._trees)
        chunked: dict[bytes, File] = {}
        needed = self._needed[FILES]
        for data in self._read_ahead(waiting):
            for entry in self._versions.decode_new(data):
                if isinstance(entry, Folder):
                    waiting += self._unmet([entry.tree], self._trees)
                elif isinstance(entry, File) and entry.chunks is None:
                    needed.add(entry.digest)
                elif isinstance(entry, File) and entry.chunks is not None:
                    chunked[entry.chunks] = entry
        needed |= self._trees
        for lists in _groups(self._unmet(chunked, self._chunked)):
            needed.update(lists)
            for key, data in self._files.read_all(lists).items():
                needed.update(chunk.digest for chunk in decode_chunks(data, chunked[key]))

    def _read_ahead(self, waiting: list[bytes]) -> Iterator[bytes]:
        """What is waiting, also what comes to it meanwhile, in that order: versions of a tree follow each other. The
        next ones are read in another thread."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as reader:
            at = 0
            some = waiting[:READ_AT_ONCE]
            coming = reader.submit(self._files.read_all, some)
            while some:
                found, now, at = coming.result(), some, at + len(some)
                some = waiting[at : at + READ_AT_ONCE]
                if some:
                    coming = reader.submit(self._files.read_all, some)
                yield from map(found.__getitem__, now)
                if not some:
                    some = waiting[at : at + READ_AT_ONCE]
                    coming = reader.submit(self._files.read_all, some)

    def _mark_parts(self, task: int, references: Iterable[bytes]) -> None:
        """The parts of states. A reference is a flag and a digest."""
        needed, met = self._needed[task], self._parts[task]
        waiting = self._unmet(references, met)
        try:
            while waiting:
                some, waiting = waiting[-READ_AT_ONCE:], waiting[:-READ_AT_ONCE]
                needed.update(reference[1:] for reference in some)
                leading = [reference for reference in some if not is_plain(reference)]
                blobs, wholes = self._catalog.blobs(task, [each[1:] for each in leading]), dict[bytes, bytes]()
                for reference in leading:
                    data = unpack_part(reference[1:], blobs.get(reference[1:]), wholes)
                    waiting += self._unmet(references_below(reference, data), met)
        except IntegrityError:
            if self._is_there(task):
                raise

    @staticmethod
    def _unmet(each: Iterable[bytes], met: set[bytes]) -> list[bytes]:
        new = list(dict.fromkeys(one for one in each if one not in met))
        met.update(new)
        return new

    def _is_there(self, task: int) -> bool:
        """Whether the task has not been deleted meanwhile, with all that it had."""
        return any(each.number == task for each in self._catalog.tasks(None, after=task + 1, limit=1))

    def _mark_wholes(self) -> None:
        """A blob is needed as long as one of its parts is, unless that was brought again and has its own bytes."""
        page = self._catalog.sliced()
        while page:
            needed: defaultdict[int, list[SlicedBlob]] = defaultdict(list)
            for part in page:
                if part.digest in self._needed[part.partition]:
                    needed[part.partition].append(part)
            for partition, parts in needed.items():
                own = self._catalog.has_blobs(partition, [part.digest for part in parts])
                self._needed[partition].update(part.whole for part in parts if part.digest not in own)
            page = self._catalog.sliced(page[-1])


def _read(held: CheckpointRoot) -> Named:
    named = Named(held)
    if named.damaged:
        raise IntegrityError(f"the record of checkpoint {held.stored.id} is damaged")
    return named


def _groups(things: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(things), READ_AT_ONCE):
        yield things[start : start + READ_AT_ONCE]
