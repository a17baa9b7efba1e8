"""What a store takes, found the slow way: every checkpoint is walked to its last blob, by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from lastgood import Store
from lastgood.catalog.values import FILES, StoredCheckpoint
from lastgood.codec.compress import decompress
from lastgood.codec.join import check
from lastgood.engine.browse import walk_files
from lastgood.model.checkpoint import VALUES, Record, decode_record
from lastgood.model.tree import File, Folder, decode_chunks

Key = tuple[object, ...]


class Walked(NamedTuple):
    """One checkpoint, and the bytes on disk of all that it needs, by what it is."""

    checkpoint: StoredCheckpoint
    record: Record
    needs: Mapping[Key, int]


def walk_store(store: Store) -> list[Walked]:
    """Every checkpoint that is not purged, by task and sequence."""
    tasks = sorted(store.tasks(limit=1000), key=lambda task: task.number)
    stored = [
        store._engine.catalog.checkpoint_at(task, sequence + 1)
        for task in tasks
        for sequence in range(task.last_sequence)
    ]
    return [_walk(store, one) for one in stored if one is not None and one.data is not None]


def _walk(store: Store, stored: StoredCheckpoint) -> Walked:
    assert stored.data is not None
    record = decode_record(stored.data, stored.checksum, "it")
    root = store._engine.catalog.root(stored)
    needs: dict[Key, int] = {("record", stored.id): len(stored.data)}
    if root is not None:
        needs["root", stored.id] = len(root.data)
    task = stored.task_number
    for name in VALUES:
        if (ref := getattr(record, name)) is None:
            continue
        asked: list[bytes] = []

        def fetch(digests: Sequence[bytes], asked: list[bytes] = asked) -> dict[bytes, bytes]:
            asked += digests
            return {key: _bytes_of_part(store, task, key) for key in digests}

        in_row = root is not None and name == "state"
        first = decompress(root.encoding, root.data, root.size) if root and in_row else fetch([ref.digest])[ref.digest]
        check(first, ref.size, fetch)
        for key in asked:
            needs |= _row(store, task, key)
    for file_root in record.files or ():
        for key in _keys_of_files(store, file_root.tree, walk_files(store._engine.blobs, file_root)):
            needs |= _row(store, FILES, key)
    return Walked(stored, record, needs)


def _keys_of_files(store: Store, tree: bytes, entries: Iterable[tuple[bytes, object]]) -> Iterable[bytes]:
    yield tree
    for _, entry in entries:
        if isinstance(entry, Folder):
            yield entry.tree
        elif isinstance(entry, File) and entry.chunks is None:
            yield entry.blob
        elif isinstance(entry, File) and entry.chunks is not None:
            yield entry.chunks
            yield from (chunk.digest for chunk in decode_chunks(store._engine.blobs.read(entry.chunks), entry))


def _bytes_of_part(store: Store, task: int, key: bytes) -> bytes:
    blob = store._engine.catalog.blobs(task, [key])[key]
    if blob.whole is None:
        return decompress(blob.encoding, blob.data, blob.size)
    whole = decompress(blob.encoding, blob.data, blob.whole.size)
    return whole[blob.whole.position : blob.whole.position + blob.size]


def _row(store: Store, partition: int, key: bytes) -> dict[Key, int]:
    """The row that has the bytes: of a part, that of its whole."""
    blob = store._engine.catalog.blobs(partition, [key])[key]
    if blob.whole is not None:
        return {(partition, blob.whole.digest): len(blob.data)}
    return {(partition, key): blob.place.length if blob.place else len(blob.data)}


def together(walked: Iterable[Walked]) -> dict[Key, int]:
    return {key: size for one in walked for key, size in one.needs.items()}


def alone(mine: Walked, everybody: Sequence[Walked]) -> int:
    """The bytes that no other checkpoint needs."""
    others = together(one for one in everybody if one is not mine)
    return sum(size for key, size in mine.needs.items() if key not in others)
