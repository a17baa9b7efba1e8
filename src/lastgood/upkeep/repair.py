"""Repairing a store: books are brought back to what they follow from, damaged content is had again from wherever it
still is, and what nobody has is given up in the open. All that is changed is copied first, and nothing is invented.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lastgood.catalog.contract import Catalog
from lastgood.catalog.upkeep import Audit, Corrections
from lastgood.errors import LostCommitsError, UnavailableError
from lastgood.local.location import objects_beside
from lastgood.model.digest import to_text
from lastgood.upkeep.check import check_store, report
from lastgood.upkeep.checking.derived import derive
from lastgood.upkeep.checking.examination import Examination, examine
from lastgood.upkeep.checking.ledger import Ledger, read_ledger
from lastgood.upkeep.checking.reading import Progress
from lastgood.upkeep.checking.report import CheckReport, Finding, LookedAt
from lastgood.upkeep.checking.shelf import Key
from lastgood.upkeep.repairing.books import plan_books
from lastgood.upkeep.repairing.quarantine import Quarantine
from lastgood.upkeep.repairing.report import Mended, RepairReport
from lastgood.upkeep.repairing.search import BROKEN, Search
from lastgood.upkeep.repairing.tombstones import find_tombstones

if TYPE_CHECKING:
    from lastgood.store import Store

_BOOKS = frozenset(("database", "counter", "derived", "key", "tag", "move", "workspace", "step", "journal"))


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
    _require_objects(catalog, found)
    if dry_run:
        return _foretell(store, found, before, accept_loss)
    quarantine, accepted = Quarantine(catalog.file), 0
    if found.lost:  # first of all: until then nothing else can be written
        with catalog.queue():
            quarantine.copy_catalog()
            accepted = catalog.accept_loss()
    if any(finding.code == "database" for finding in found.findings):
        with catalog.queue():
            quarantine.copy_catalog()
            catalog.rebuild()
        found = examine(catalog, objects, "data", None, progress)
    sources: dict[Key, str] = {}
    # What a directory held comes to light when it is back: so once more, as long as something is found.
    while True:
        search = Search(store, found, quarantine)
        search.run()
        _change(store, search, quarantine)
        for name in _emptied(catalog, search.broken):
            quarantine.take(objects, name)
        if search.sources.keys() <= sources.keys():
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


def _require_objects(catalog: Catalog, found: Examination) -> None:
    """A folder that is not mounted is no reason to give up what is in it."""
    if not found.shelf.packs or catalog.file is None:
        return
    objects = objects_beside(catalog.file)
    packs = objects / "packs"
    if not objects.is_dir() or (os.path.lexists(packs) and not packs.is_dir()):
        raise UnavailableError(
            "the folder of the store's objects is not there, so nothing was repaired",
            hint="is a disk not mounted? If it is gone for good, make an empty folder in its place",
        )


def _foretell(store: Store, found: Examination, before: CheckReport, accept_loss: bool) -> RepairReport:
    """What a repair would do, as far as it can be told without doing it."""
    search, ledger = Search(store, found, None), found.ledger
    search.run()
    lost = {to_text(digest) for _, digest in search.lost()}
    certain = {("record", known.row.id) for known in ledger.checkpoints.values() if known.damage and known.record}
    stones = {(*ledger.owner_and_task(stone.task), stone.sequence) for stone in find_tombstones(ledger)}
    revived = {ledger.owner_and_task(task)[1] for task, _ in plan_books(ledger, derive(ledger))["active"]}

    def is_mendable(one: Finding) -> bool:
        if one.blobs or one.code in BROKEN:
            return not lost.intersection(one.blobs)
        if one.code == "missing":
            return {(use.owner, use.task_id, use.sequence) for use in one.uses} <= stones
        if one.code == "task":
            return one.name in revived
        return one.code in _BOOKS or (one.code, one.name) in certain or (one.code == "lost_commits" and accept_loss)

    mended = [one for one in before.findings if is_mendable(one)]
    return RepairReport(
        dry_run=True,
        accepted=found.lost if accept_loss else 0,
        mended=tuple(_told(search.sources, mended)),
        lost=tuple(one for one in before.findings if one not in mended),
        check=before,
    )


def _change(store: Store, search: Search, quarantine: Quarantine) -> None:
    """Everybody else waits: what books follow from must not change meanwhile."""
    catalog = store.catalog
    with catalog.queue():
        with catalog.audit() as audit:
            ledger, content = _read_ledger(audit), search.plan(audit)
        stones = Corrections(tombstones=list(find_tombstones(ledger)))
        books = Corrections(**plan_books(ledger, derive(ledger)), **content)
        if not (stones.is_empty() and books.is_empty()):
            quarantine.copy_catalog()
        if not stones.is_empty():  # with them the books can be told
            catalog.mend(stones, store.actor())
            with catalog.audit() as audit:
                ledger = _read_ledger(audit)
            books = Corrections(**plan_books(ledger, derive(ledger)), **content)
        if not books.is_empty():
            catalog.mend(books, store.actor())
        store.log("repair", "")


def _emptied(catalog: Catalog, packs: Sequence[str]) -> list[str]:
    """Those in which nothing lies any more."""
    with catalog.audit() as audit:
        needed = {row.name for row in audit.packs()}
    return [name for name in packs if name not in needed]


def _read_ledger(audit: Audit) -> Ledger:
    return read_ledger(audit, LookedAt(), lambda known, row: None)


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
