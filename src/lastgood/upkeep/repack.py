"""Rewriting packs: what is still needed of several wasteful ones goes into a new one, and they can go.

The new pack is durable before a row points to it. Rows move a few at a time; until then, and after a crash, each blob
is found where its row says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lastgood.catalog.values import IndexedBlob
from lastgood.codec.pack import HEAD_SIZE, PackEntry, unpack
from lastgood.engine.engine import Engine
from lastgood.engine.gather import PACK_BYTES, PackDraft
from lastgood.errors import IntegrityError
from lastgood.model.identity import BlobId
from lastgood.objects.contract import ObjectStore

AT_ONCE = 200
WINDOW = 4 << 20


def repack(engine: Engine, packs: Mapping[str, Sequence[IndexedBlob]]) -> Iterator[tuple[list[str], int]]:
    """Rewrite packs, given by name with the blobs that lie in them. Yields for each new pack the names of those that
    nothing lies in any more, and its size.

    A pack that holds something damaged stays as it is, and an alert is sent.
    """
    group: dict[str, Sequence[IndexedBlob]] = {}
    size = 0
    for name, blobs in packs.items():
        needed = sum(HEAD_SIZE + blob.length for blob in blobs)
        if group and size + needed > PACK_BYTES:
            yield _rewrite(engine, group)
            group, size = {}, 0
        group[name] = blobs
        size += needed
    if group:
        yield _rewrite(engine, group)


def _rewrite(engine: Engine, group: Mapping[str, Sequence[IndexedBlob]]) -> tuple[list[str], int]:
    objects = engine.objects
    assert objects is not None
    draft = PackDraft(objects.draft())
    emptied: list[str] = []
    try:
        for name, blobs in group.items():
            try:
                for entry, stored in _read(engine.blobs.blob_id, objects, name, blobs):
                    draft.copy(entry.blob_id, entry.size, entry.encoding, stored)
            except (IntegrityError, LookupError):
                message = f"the pack {name} is damaged and was not rewritten; store.check() tells more"
                engine.alert(message, code="pack_damaged")
            else:
                emptied.append(name)
        new = draft.finish()
    except BaseException:
        draft.discard()
        raise
    if not emptied:
        draft.discard()
        return [], 0
    engine.blobs.adopt(new.name, draft.path)
    places = {entry.digest: entry for entry in new.entries}
    for name in emptied:
        moving = [places[blob.digest] for blob in group[name]]
        for start in range(0, len(moving), AT_ONCE):
            engine.catalog.move_blobs(new._replace(entries=moving[start : start + AT_ONCE]), name)
    return emptied, new.size


def _read(
    blob_id: BlobId, objects: ObjectStore, name: str, blobs: Sequence[IndexedBlob]
) -> Iterator[tuple[PackEntry, bytes]]:
    """Yield each blob as it is stored, checked; neighbours are read at once."""
    entries = [PackEntry(blob.digest, blob.position or 0, blob.length, blob.size, blob.encoding) for blob in blobs]
    run: list[PackEntry] = []
    for entry in sorted(entries, key=lambda entry: entry.position):
        if run and entry.position + entry.length - run[0].position > WINDOW:
            yield from _read_run(blob_id, objects, name, run)
            run = []
        run.append(entry)
    if run:
        yield from _read_run(blob_id, objects, name, run)


def _read_run(
    blob_id: BlobId, objects: ObjectStore, name: str, run: Sequence[PackEntry]
) -> Iterator[tuple[PackEntry, bytes]]:
    start, last = run[0].position, run[-1]
    data = objects.get(name, start, last.position + last.length - start)
    for entry in run:
        stored = data[entry.position - start : entry.position - start + entry.length]
        unpack(entry, stored, blob_id)
        yield entry, stored
