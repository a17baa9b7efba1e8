"""Marking what checkpoints need: every blob that they lead to, each read once, whoever leads to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from lastgood.catalog.contract import FILES, Catalog, Held
from lastgood.content.tracing import is_plain, references_below
from lastgood.engine.blobs import FileBlobs
from lastgood.engine.reach import CHUNKS, CONTENT, TREE, Named, each_held, unpack_part
from lastgood.errors import IntegrityError
from lastgood.model.tree import Entry, File, Folder, decode_chunks, decode_new_entries

READ_AT_ONCE = 256


class Marks:
    """Which blobs are needed, by partition. IntegrityError when something that leads to others cannot be read: what it
    led to is not known, so nothing can be said to be garbage."""

    def __init__(self, catalog: Catalog, files: FileBlobs, *, without: Collection[str] = ()) -> None:
        """`without`: ids of checkpoints that do not count."""
        self._catalog = catalog
        self._files = files
        self._needed: defaultdict[int, set[bytes]] = defaultdict(set)
        self._met: defaultdict[int, set[bytes]] = defaultdict(set)
        self._waiting: defaultdict[int, list[bytes]] = defaultdict(list)
        self._entries: set[Entry] = set()
        self._chunked: dict[bytes, File] = {}
        self._checkpoints: set[tuple[int, int]] = set()
        self._without = without

    def has(self, partition: int, digest: bytes) -> bool:
        return digest in self._needed[partition]

    def mark_all(self) -> int:
        """Mark what the store's checkpoints need, those that were marked before excepted; how many were not."""
        count = 0
        for held in each_held(self._catalog):
            stored = held.stored
            number = stored.task_number, stored.placement.sequence
            if number not in self._checkpoints and stored.id not in self._without:
                self._mark(held)
                count += 1
        while any(self._waiting.values()):
            for partition, waiting in list(self._waiting.items()):
                some, self._waiting[partition] = waiting[:READ_AT_ONCE], waiting[READ_AT_ONCE:]
                if some:
                    self._follow(partition, some)
        self._mark_wholes()
        return count

    def _mark(self, held: Held) -> None:
        named, task = Named(held), held.stored.task_number
        if named.damaged:
            raise _unreadable(f"the record of checkpoint {held.stored.id}")
        self._meet(task, named.parts)
        self._meet(FILES, named.trees)
        self._checkpoints.add((task, held.stored.placement.sequence))

    def _meet(self, partition: int, references: Iterable[bytes]) -> None:
        needed, met, waiting = self._needed[partition], self._met[partition], self._waiting[partition]
        for reference in references:
            if not is_plain(reference):
                if reference in met:
                    continue
                met.add(reference)
                waiting.append(reference)
            needed.add(reference[1:])

    def _follow(self, partition: int, some: Sequence[bytes]) -> None:
        keys = [reference[1:] for reference in some]
        if partition == FILES:
            found = self._files.read_all(keys)
            for reference in some:
                self._meet(FILES, self._names_in(reference, found[reference[1:]]))
            return
        blobs, wholes = self._catalog.blobs(partition, keys), dict[bytes, bytes]()
        try:
            for reference in some:
                data = unpack_part(reference[1:], blobs.get(reference[1:]), wholes)
                self._meet(partition, references_below(reference, data))
        except IntegrityError:
            if self._is_there(partition):
                raise

    def _is_there(self, task: int) -> bool:
        """Whether the task has not been deleted meanwhile, with all that it had."""
        return any(each.number == task for each in self._catalog.tasks(None, after=task + 1, limit=1))

    def _names_in(self, reference: bytes, data: bytes) -> Iterable[bytes]:
        how, key = reference[:1], reference[1:]
        if how == CHUNKS:
            yield from (CONTENT + chunk.digest for chunk in decode_chunks(data, self._chunked.pop(key)))
            return
        for entry in decode_new_entries(data, key, self._entries):
            if isinstance(entry, Folder):
                yield TREE + entry.tree
            elif isinstance(entry, File) and entry.chunks is None:
                yield CONTENT + entry.digest
            elif isinstance(entry, File) and entry.chunks is not None:
                self._chunked.setdefault(entry.chunks, entry)
                yield CHUNKS + entry.chunks

    def _mark_wholes(self) -> None:
        """A blob is needed as long as one of its parts is."""
        page = self._catalog.sliced()
        while page:
            for partition, key, whole in page:
                if key in self._needed[partition]:
                    self._needed[partition].add(whole)
            page = self._catalog.sliced(page[-1])


def _unreadable(what: str) -> IntegrityError:
    return IntegrityError(
        f"{what} is damaged: what it needs is not known, so nothing is collected",
        hint="`lastgood check` names all damage; `lastgood repair` mends what can be",
    )
