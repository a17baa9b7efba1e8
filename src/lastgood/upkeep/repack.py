"""Rewriting packs: what is still needed of several wasteful ones goes into a new one, and they can go.

The new pack is durable before a row points to it. Rows move a few at a time; until then, and after a crash, each blob
is found where its row says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lastgood.catalog.values import IndexedBlob
from lastgood.codec.compress import decompress
from lastgood.codec.pack import HEAD_SIZE
from lastgood.engine.blobs import PACK_BYTES
from lastgood.engine.draft import PackDraft
from lastgood.engine.engine import Engine
from lastgood.errors import IntegrityError
from lastgood.model.digest import digest
from lastgood.objects.contract import ObjectStore

AT_ONCE = 200
WINDOW = 4 << 20


def repack(engine: Engine, packs: Mapping[str, Sequence[IndexedBlob]]) -> Iterator[tuple[list[str], int]]:
    """Rewrite packs, given by name with the blobs that lie in them; the names of some that nothing lies in any more,
    and the size of the new one, each time that one is done.

    A pack that holds something damaged stays as it is, and is told of.
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
                for blob, stored in _read(objects, name, blobs):
                    draft.copy(blob.digest, blob.size, blob.encoding, stored)
            except (IntegrityError, LookupError):
                told = f"the pack {name} is damaged and was not rewritten; `lastgood check` tells more"
                engine.alert(told, code="pack_damaged")
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


def _read(objects: ObjectStore, name: str, blobs: Sequence[IndexedBlob]) -> Iterator[tuple[IndexedBlob, bytes]]:
    """Each blob as it is stored, checked; neighbours are read at once."""
    run: list[IndexedBlob] = []
    for blob in sorted(blobs, key=lambda blob: blob.position or 0):
        if run and _end(blob) - _start(run[0]) > WINDOW:
            yield from _check(run, objects.get(name, _start(run[0]), _end(run[-1]) - _start(run[0])))
            run = []
        run.append(blob)
    if run:
        yield from _check(run, objects.get(name, _start(run[0]), _end(run[-1]) - _start(run[0])))


def _check(run: Sequence[IndexedBlob], data: bytes) -> Iterator[tuple[IndexedBlob, bytes]]:
    for blob in run:
        stored = data[_start(blob) - _start(run[0]) : _end(blob) - _start(run[0])]
        if digest(decompress(blob.encoding, stored, blob.size)) != blob.digest:
            raise IntegrityError("stored content is damaged")
        yield blob, stored


def _start(blob: IndexedBlob) -> int:
    assert blob.position is not None
    return blob.position


def _end(blob: IndexedBlob) -> int:
    return _start(blob) + blob.length
