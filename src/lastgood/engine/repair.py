"""Repairing a store: books are brought back to what they follow from, damaged content is had again from wherever it
still is, and what nobody has is given up in the open. All that is changed is copied first, and nothing is invented.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastgood.catalog.contract import FILES, Blob, Catalog, NewPack, Packed
from lastgood.catalog.mending import Mending
from lastgood.content.compression import compress
from lastgood.content.packs import PackWriter, pack_name
from lastgood.engine.check import check_store, report
from lastgood.engine.checking.derived import derive
from lastgood.engine.checking.examination import Examination, examine
from lastgood.engine.checking.ledger import Ledger, read_ledger
from lastgood.engine.checking.reading import Progress
from lastgood.engine.checking.report import CheckReport, Finding, LookedAt
from lastgood.engine.checking.shelf import Key
from lastgood.engine.process import this_process
from lastgood.engine.repairing.books import plan_books
from lastgood.engine.repairing.quarantine import Quarantine, kept_packs
from lastgood.engine.repairing.report import Mended, RepairReport
from lastgood.engine.repairing.sources import find_in_catalog, find_in_folder, find_in_packs, read_blob, read_entries
from lastgood.engine.repairing.tombstones import find_tombstones
from lastgood.errors import LostCommitsError, UnavailableError
from lastgood.model.digest import to_text

if TYPE_CHECKING:
    from lastgood.engine.store import Store
    from lastgood.objects.contract import ObjectStore

_UNMENDABLE = frozenset(("tree",))
"""What is exactly as it was stored, and was no good then."""
_BOOKS = frozenset(("database", "counter", "derived", "key", "tag", "move", "workspace", "step", "journal"))
_BROKEN = frozenset(("pack_index", "pack_size", "pack_damaged", "pack_unreadable"))


def repair_store(
    store: Store, *, accept_loss: bool = False, dry_run: bool = False, progress: Progress | None = None
) -> RepairReport:
    """See `Store.repair`."""
    catalog, objects = store.catalog, store.filing.objects
    found = examine(catalog, objects, "data", None, progress)
    before = report(catalog, objects, found, "data")
    if found.lost and not accept_loss and not dry_run:
        raise LostCommitsError(
            f"{found.lost} acknowledged commit(s) are gone from the store; nothing was repaired",
            hint="bring it back from a copy, or say that they may be given up: accept_loss=True, --accept-loss",
            lost=found.lost,
        )
    if dry_run:
        return _foretell(store, found, before, accept_loss)
    quarantine = Quarantine(catalog.file)
    if any(finding.code == "database" for finding in found.findings):
        with catalog.queue():
            quarantine.copy_catalog()
            catalog.rebuild()
        found = examine(catalog, objects, "data", None, progress)
    accepted, sources = found.lost if accept_loss else 0, dict[Key, str]()
    # What a directory held comes to light when it is back: so once more, as long as something is found.
    while True:
        search = _Search(store, found, quarantine)
        search.run()
        _change(store, search, quarantine, found.lost if accept_loss else 0)
        for name in search.broken:
            quarantine.take(store.filing.objects, name)
        if not search.sources:
            break
        sources |= search.sources
        found = examine(catalog, objects, "structure", None, None)
    after = check_store(catalog, objects)
    _mark(store, after)
    return RepairReport(
        dry_run=False,
        accepted=accepted,
        mended=tuple(_told(sources, _gone(before, after))),
        lost=after.findings,
        check=after,
        quarantine=quarantine.path,
    )


def _foretell(store: Store, found: Examination, before: CheckReport, accept_loss: bool) -> RepairReport:
    """What a repair would do, as far as it can be told without doing it."""
    search = _Search(store, found, None)
    search.run()
    mended = [one for one in before.findings if _is_mendable(one, search, accept_loss)]
    return RepairReport(
        dry_run=True,
        accepted=found.lost if accept_loss else 0,
        mended=tuple(_told(search.sources, mended)),
        lost=tuple(one for one in before.findings if one not in mended),
        check=before,
    )


def _change(store: Store, search: _Search, quarantine: Quarantine, lost: int) -> None:
    """Everybody else waits: what books follow from must not change meanwhile."""
    catalog = store.catalog
    with catalog.queue():
        ledger = _read_ledger(catalog)
        stones = Mending(tombstones=list(find_tombstones(ledger)))
        books = Mending(**plan_books(ledger, derive(ledger)), **search.plan())
        if lost or not (stones.is_empty() and books.is_empty()):
            quarantine.copy_catalog()
        if lost:
            catalog.accept_loss()
        if not stones.is_empty():  # with them the books can be told
            catalog.mend(stones, store.actor())
            ledger = _read_ledger(catalog)
            books = Mending(**plan_books(ledger, derive(ledger)), **search.plan())
        if not books.is_empty():
            catalog.mend(books, store.actor())
        store.log("repair", "")


def _read_ledger(catalog: Catalog) -> Ledger:
    with catalog.audit() as audit:
        return read_ledger(audit, LookedAt(), lambda known, row: None)


class _Search:
    """What is damaged, and what of it was found again, where. Without a `quarantine` nothing is written."""

    def __init__(self, store: Store, found: Examination, quarantine: Quarantine | None) -> None:
        self._store = store
        self._quarantine = quarantine
        self._shelf = found.shelf
        self._ledger = found.ledger
        self._writer: _Writer | None = None
        self._inline: list[tuple[int, Blob]] = []
        self._packs: list[NewPack] = []
        self.sources: dict[Key, str] = {}
        self.wanted = {key for key, damage in found.shelf.damage.items() if damage.code not in _UNMENDABLE}
        hurt = {damage.pack or "" for damage in found.shelf.damage.values() if damage.code == "blob_damaged"}
        present = {pack.name for pack in found.shelf.packs.values()}
        self.broken = sorted(({one.name for one in found.packs if one.code in _BROKEN} | hurt) & present)
        self._gone = [one.name for one in found.packs if one.code == "pack_missing"]
        self.mendable_records = {
            known.row.id for known in found.ledger.checkpoints.values() if known.damage and known.record
        }

    def run(self) -> None:
        objects = self._store.filing.objects
        if objects is not None:
            files = {digest for partition, digest in self.wanted if partition == FILES}
            for name, size, entries in find_in_packs(objects, files, set(self.broken)):
                self._packs.append(NewPack(name, size, [Packed(*entry) for entry in entries]))
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
        if self._writer is not None and objects is not None:
            self._packs.append(self._publish(self._writer, objects))

    def plan(self) -> dict[str, Any]:
        """Fields of a Mending."""
        return {
            "blobs": self._inline,
            "packs": self._packs,
            "lost": self.lost(),
            "retired": [*self.broken, *self._gone],
        }

    def lost(self) -> list[Key]:
        return sorted(self.wanted - self.sources.keys())

    def _publish(self, writer: _Writer, objects: ObjectStore) -> NewPack:
        """The same blobs make the same pack: then the broken one makes room, and is found in quarantine if need be."""
        pack = writer.finish()
        if self._quarantine is not None and pack.name in self.broken:
            self._quarantine.take(objects, pack.name)
            self.broken.remove(pack.name)
            if not objects.adopt(pack.name, writer.path):
                raise UnavailableError("a damaged pack cannot be moved out of the way", hint=f"it is {pack.name}")
        else:
            objects.adopt(pack.name, writer.path)
        return pack

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
                self._writer = self._writer or _Writer(objects.draft())
                self._writer.add(key[1], data)
            return
        encoding, stored = compress(data)
        self._inline.append((key[0], Blob(key[1], len(data), encoding, stored)))

    def _folders(self) -> Iterator[str]:
        """The workspaces on this host, of every task."""
        host = this_process().host
        yield from dict.fromkeys(row.path for row in self._ledger.workspaces if row.host == host)


class _Writer:
    """A pack for what was found."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("xb")
        self._writer = PackWriter(self._file.write)

    def add(self, id_: bytes, data: bytes) -> None:
        self._writer.add(id_, data)

    def finish(self) -> NewPack:
        index = self._writer.finish()
        self._file.close()
        assert index.digest is not None
        return NewPack(pack_name(index.digest), index.size, [Packed(*entry) for entry in index.entries])


def _is_mendable(finding: Finding, search: _Search, accept_loss: bool) -> bool:
    if finding.code == "lost_commits":
        return accept_loss
    if finding.blobs or finding.code in _BROKEN:
        lost = {to_text(digest) for _, digest in search.lost()}
        return not any(blob in lost for blob in finding.blobs)
    if finding.code == "record":
        return finding.name in search.mendable_records
    return finding.code in _BOOKS


def _gone(before: CheckReport, after: CheckReport) -> Iterator[Finding]:
    """Findings that are none any more."""
    left = {(one.code, one.name) for one in after.findings}
    lost = {blob for one in after.findings for blob in one.blobs}
    for one in before.findings:
        if (one.code, one.name) not in left and not any(blob in lost for blob in one.blobs):
            yield one


def _told(sources: Mapping[Key, str], findings: Iterable[Finding]) -> Iterator[Mended]:
    where = {to_text(digest): source for (_, digest), source in sources.items()}
    for finding in findings:
        found = sorted({where[blob] for blob in finding.blobs if blob in where})
        how = f"found again in {', '.join(found[:3])}" if found else "set right"
        yield Mended(finding.code, finding.name, f"{finding.sentence}: {how}")


def _mark(store: Store, after: CheckReport) -> None:
    """A checkpoint that has lost something is not verified any more, whatever was recorded."""
    for finding in after.findings:
        for use in finding.uses:
            stored = None if use.id is None else store.catalog.checkpoint(use.owner, use.id)
            if stored is not None and stored.verified and not stored.deleted:
                data = {"verified": False, "problems": [finding.sentence]}
                store.catalog.attest(stored.owner, [stored.id], "verification", data, store.actor())
