"""The search for what is damaged or gone, in all places that may still have it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lastgood.catalog.upkeep import Audit
from lastgood.catalog.values import FILES, Blob, NewPack, PackedBlob
from lastgood.codec.compress import compress
from lastgood.engine.draft import PackDraft
from lastgood.local.process import this_process
from lastgood.upkeep.checking.examination import Examination
from lastgood.upkeep.checking.shelf import Key
from lastgood.upkeep.repairing.quarantine import Quarantine, kept_packs
from lastgood.upkeep.repairing.sources import (
    find_in_catalog,
    find_in_folder,
    find_in_packs,
    read_blob,
    read_entries,
    read_part,
)

if TYPE_CHECKING:
    from lastgood.objects.contract import ObjectStore
    from lastgood.store import Store

BROKEN = frozenset(("pack_index", "pack_size", "pack_damaged"))
"""Packs that are put aside when what is whole in them lies elsewhere."""
_UNMENDABLE = frozenset(("tree",))
"""What is exactly as it was stored, and was no good then."""


class Search:
    """What is damaged, and what of it was found again, where. Without a `quarantine` nothing is written."""

    def __init__(self, store: Store, found: Examination, quarantine: Quarantine | None) -> None:
        self._store = store
        self._quarantine = quarantine
        self._shelf = found.shelf
        self._ledger = found.ledger
        self._draft: PackDraft | None = None
        self._inline: list[tuple[int, Blob]] = []
        self._packs: list[NewPack] = []
        self.sources: dict[Key, str] = {}
        self.wanted = {key for key, damage in found.shelf.damage.items() if damage.code not in _UNMENDABLE}
        hurt = {damage.pack or "" for damage in found.shelf.damage.values() if damage.code == "blob_damaged"}
        present = {pack.name for pack in found.shelf.packs.values()}
        self.broken = sorted(({one.name for one in found.packs if one.code in BROKEN} | hurt) & present)
        self._gone = [one.name for one in found.packs if one.code == "pack_missing"]
        away = {one.name for one in found.packs if one.code == "pack_unreadable"}
        self._withheld = {key for key, damage in found.shelf.damage.items() if damage.pack in away}

    def run(self) -> None:
        """Look everywhere. What was found of files is in a new pack then, durably, and nothing refers to it yet."""
        try:
            self._look_everywhere()
        except BaseException:
            if self._draft is not None:
                self._draft.discard()
            raise

    def _look_everywhere(self) -> None:
        objects = self._store.filing.objects
        if objects is not None:
            files = {digest for partition, digest in self.wanted if partition == FILES}
            for name, size, entries in find_in_packs(objects, files, set(self.broken)):
                self._packs.append(NewPack(name, size, [PackedBlob(*entry) for entry in entries]))
                self.sources |= {(FILES, entry.blob_id): f"the pack {name}" for entry in entries}
            for name in self.broken:
                self._salvage(objects, name)
            for kept in kept_packs(self._store.catalog.file) if self.lost() else ():
                for listed in kept.list("packs/"):
                    self._salvage(kept, listed.name)
        with self._store.catalog.audit() as audit:
            find_in_catalog(audit, self._shelf, self.lost(), self._take)
        left = {digest for partition, digest in self.lost() if partition == FILES}
        for path in self._folders() if left else ():
            find_in_folder(path, [str(own) for own in self._store.filing.own_paths()], left, self._take)
            left -= {digest for partition, digest in self.sources if partition == FILES}
        if self._draft is not None and objects is not None:
            pack = self._draft.finish()
            self._store.filing.blobs.adopt(pack.name, self._draft.path)
            self._packs.append(pack)

    def plan(self, audit: Audit) -> dict[str, Any]:
        """Fields of a Mending. What somebody has saved anew since it was looked for is not lost any more."""
        return {
            "blobs": self._inline,
            "packs": self._packs,
            "lost": [key for key in self.lost() if not self._is_back(audit, key)],
            "retired": [*self.broken, *self._gone],
        }

    def lost(self) -> list[Key]:
        """What nobody has. What lies in a pack that cannot be read just now may be whole: it is not given up."""
        return sorted(self.wanted - self.sources.keys() - self._withheld)

    def _is_back(self, audit: Audit, key: Key) -> bool:
        partition, id_ = key
        blob = audit.read(partition, [id_]).get(id_)
        if blob is None or blob.place is None:
            return read_part(audit, partition, id_) is not None
        row = self._shelf.placed.get(id_)
        pack = None if row is None or row.pack is None else self._shelf.packs[row.pack].name
        return row is None or blob.place != (pack, row.position, row.length)

    def _salvage(self, objects: ObjectStore, name: str) -> None:
        """What lies in a broken pack and is whole goes into a new one, so that the broken one can be put aside."""
        numbers = {row.name: row.number for row in self._shelf.packs.values()}
        for entry in read_entries(objects, name, salvage=True):
            key = FILES, entry.blob_id
            row = self._shelf.placed.get(entry.blob_id)
            is_here = name in self.broken and row is not None and row.pack == numbers.get(name)
            if key not in self.sources and (key in self.wanted or is_here):
                data = read_blob(objects, name, entry)
                if data is not None:
                    self._take(key, data, f"what is left of the pack {name}")

    def _take(self, key: Key, data: bytes, where: str) -> None:
        if key in self.sources:
            return
        self.sources[key] = where
        objects = self._store.filing.objects
        if objects is not None and key[0] == FILES:
            if self._quarantine is not None:
                self._draft = self._draft or PackDraft(objects.draft())
                self._draft.add(key[1], data)
            return
        encoding, stored = compress(data)
        self._inline.append((key[0], Blob(key[1], len(data), encoding, stored)))

    def _folders(self) -> Iterator[str]:
        """The workspaces on this host, of every task."""
        host = this_process().host
        yield from dict.fromkeys(row.path for row in self._ledger.workspaces if row.host == host)
