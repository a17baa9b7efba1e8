"""Where damaged or missing blobs can be had again. What is found is compared with its id; nothing else counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from lastgood.catalog.upkeep import Audit, SliceRow
from lastgood.catalog.values import FILES, Blob
from lastgood.codec.compress import decompress
from lastgood.codec.pack import PackEntry, read_index, rebuild_index, unpack
from lastgood.errors import CheckpointError, IntegrityError
from lastgood.model.digest import digest
from lastgood.objects.contract import ObjectStore
from lastgood.upkeep.checking.shelf import Key, Shelf

Take = Callable[[Key, bytes, str], None]
"""Called with a blob that was found, its bytes, and where."""


def find_in_packs(
    objects: ObjectStore, wanted: set[bytes], avoided: set[str]
) -> Iterator[tuple[str, int, list[PackEntry]]]:
    """Packs that hold some of what is wanted, whole, with the pack's size; those in `avoided` are not looked at."""
    left = set(wanted)
    for listed in objects.list("packs/"):
        if not left:
            return
        if listed.name in avoided:
            continue
        found = [entry for entry in read_entries(objects, listed.name) if entry.blob_id in left]
        whole = [entry for entry in found if read_blob(objects, listed.name, entry) is not None]
        if whole:
            left -= {entry.blob_id for entry in whole}
            yield listed.name, listed.size, whole


def read_entries(objects: ObjectStore, name: str, *, salvage: bool = False) -> Sequence[PackEntry]:
    """What a pack holds; with `salvage` what is left of it, each blob read and checked, whatever its index says."""
    try:
        read = rebuild_index if salvage else read_index
        return read(partial(objects.get, name), objects.size(name)).entries
    except CheckpointError:
        return [] if salvage else read_entries(objects, name, salvage=True)


def read_blob(objects: ObjectStore, name: str, entry: PackEntry) -> bytes | None:
    try:
        return unpack(entry, objects.get(name, entry.position, entry.length))
    except CheckpointError:
        return None


def find_in_catalog(audit: Audit, shelf: Shelf, wanted: Iterable[Key], take: Take) -> None:
    """Blobs that another task, or a larger blob of the same one, has, too."""
    wanted = set(wanted)
    inside: defaultdict[Key, list[SliceRow]] = defaultdict(list)
    for row in audit.slices() if wanted else ():
        if (row.partition, row.digest) in wanted:
            inside[row.partition, row.digest].append(row)
    names = {row.number: row.digest for row in audit.blobs()} if inside else {}
    for key in sorted(wanted):
        for data, where in _elsewhere(audit, shelf, key, inside.get(key, ()), names):
            if digest(data) == key[1]:
                take(key, data, where)
                break


def _elsewhere(
    audit: Audit, shelf: Shelf, key: Key, inside: Iterable[SliceRow], names: Mapping[int, bytes]
) -> Iterator[tuple[bytes, str]]:
    partition, id_ = key
    for other, stored in shelf.stored.items():
        if other not in (partition, FILES) and id_ in stored:
            yield read_part(audit, other, id_) or b"", "another task"
    for row in inside:
        whole = read_part(audit, partition, names[row.whole]) if row.whole in names else None
        yield (whole or b"")[row.position : row.position + row.size], "a larger part of the same state"


def find_in_folder(path: str, own: Sequence[str], wanted: set[bytes], take: Take) -> None:
    """Content and directories of a workspace, as a capture would read them now."""
    from pathlib import Path

    from lastgood.files.capture import capture
    from lastgood.files.index import StatIndex
    from lastgood.files.roots import open_roots
    from lastgood.files.rules.rules import Rules
    from lastgood.local.process import descriptors

    sink = _Sink(wanted, path, take)
    try:
        (root,) = open_roots(path, store=list(own))
        index = StatIndex(Path(), root.path, "")
        # A file that this process has open is not looked at: closing it would drop the locks on it.
        capture(root, Rules.of(root), index, sink, leave=own, is_open=descriptors.is_open_elsewhere)
    except (CheckpointError, OSError):
        if sink.failure is not None:
            raise sink.failure from None
        # Else the folder is gone, or cannot be read: then it has nothing to give.


class _Sink:
    """Takes what is wanted out of a capture; everything else is as if it were stored."""

    def __init__(self, wanted: set[bytes], path: str, take: Take) -> None:
        self._wanted = wanted
        self._path = path
        self._take = take
        self.failure: CheckpointError | None = None
        """What was found could not be taken."""

    def has(self, ids: Sequence[bytes]) -> set[bytes]:
        return set(ids) - self._wanted

    def put(self, data: bytes) -> bytes:
        id_ = digest(data)
        if id_ in self._wanted:
            try:
                self._take((FILES, id_), data, f"the files in {self._path}")
            except CheckpointError as error:
                self.failure = error
                raise
        return id_


def read_part(audit: Audit, partition: int, id_: bytes) -> bytes | None:
    """A blob that lies in the catalog; None unless its bytes give its id."""
    blob = audit.read(partition, [id_]).get(id_)
    try:
        data = None if blob is None else _unpack(blob)
    except IntegrityError:
        return None
    return data if data is not None and digest(data) == id_ else None


def _unpack(blob: Blob) -> bytes | None:
    if type(blob.data) is not bytes:
        return None
    if blob.whole is None:
        return decompress(blob.encoding, blob.data, blob.size)
    whole = decompress(blob.encoding, blob.data, blob.whole.size)
    return whole[blob.whole.position : blob.whole.position + blob.size]
