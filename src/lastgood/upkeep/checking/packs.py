"""Packs: whether they are there, as long as they were, and hold what the catalog says, by their indexes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from lastgood.catalog.upkeep import PackRow
from lastgood.catalog.values import FILES
from lastgood.codec.pack import PackEntry, read_index
from lastgood.errors import CheckpointError, IntegrityError, NotFoundError
from lastgood.objects.contract import ObjectStore
from lastgood.upkeep.checking.report import Code, Finding, LookedAt
from lastgood.upkeep.checking.shelf import Shelf


class Examined(NamedTuple):
    """A pack that can be read: what its index says it holds, or else the catalog."""

    row: PackRow
    entries: Sequence[PackEntry]
    has_index: bool


def examine_packs(objects: ObjectStore, shelf: Shelf, looked_at: LookedAt) -> tuple[list[Finding], list[Examined]]:
    """By their sizes and indexes alone."""
    findings: list[Finding] = []
    examined: list[Examined] = []
    by_pack = shelf.by_pack()
    for pack in shelf.packs.values():
        looked_at.packs += 1
        placed = by_pack.get(pack.number, [])
        found = _examine(objects, shelf, pack, placed)
        if isinstance(found, Finding):
            findings.append(found)
            size = _size(objects, pack.name)
            for entry in placed:
                if entry.position + entry.length > size:
                    shelf.lose((FILES, entry.blob_id), "blob_missing", "is gone with its pack", pack.name)
            examined.append(Examined(pack, [entry for entry in placed if entry.position + entry.length <= size], False))
        else:
            examined.append(found)
    return findings, examined


def find_unmentioned(objects: ObjectStore, shelf: Shelf) -> Iterator[Finding]:
    """Packs that the catalog does not speak of: work in progress, or what an interrupted save has left."""
    known = {pack.name for pack in shelf.packs.values()}
    for listed in objects.list("packs/"):
        if listed.name not in known:
            sentence = f"the pack {listed.name} ({listed.size:,} bytes) belongs to no checkpoint; it is no damage"
            yield pack_finding("pack_unmentioned", listed.name, sentence)


def _examine(objects: ObjectStore, shelf: Shelf, pack: PackRow, placed: Sequence[PackEntry]) -> Finding | Examined:
    try:
        size = objects.size(pack.name)
    except NotFoundError:
        return pack_finding("pack_missing", pack.name, f"the pack {pack.name} is gone")
    except CheckpointError as error:
        return _unreadable(pack, error)
    if size != pack.size:
        sentence = f"the pack {pack.name} has {size:,} bytes; it was stored with {pack.size:,}"
        return pack_finding("pack_size", pack.name, sentence)
    try:
        index = read_index(partial(objects.get, pack.name), size)
    except IntegrityError:
        sentence = f"the index of the pack {pack.name} is damaged; its blobs may be whole"
        return pack_finding("pack_index", pack.name, sentence)
    except CheckpointError as error:
        return _unreadable(pack, error)
    held = {entry.blob_id: entry for entry in index.entries}
    for entry in placed:
        if held.get(entry.blob_id) != entry:
            shelf.lose((FILES, entry.blob_id), "blob_place", "does not lie where the catalog says", pack.name)
    return Examined(pack, index.entries, True)


def _unreadable(pack: PackRow, error: CheckpointError) -> Finding:
    return pack_finding("pack_unreadable", pack.name, f"the pack {pack.name} cannot be read: {error}")


def _size(objects: ObjectStore, name: str) -> int:
    try:
        return objects.size(name)
    except CheckpointError:
        return 0


def pack_finding(code: Code, name: str, sentence: str) -> Finding:
    return Finding(code=code, kind="pack", name=name, sentence=sentence)
