"""Repairing a store: what is derived is derived again, damaged content is replaced by intact copies, and what has none
is given up. All that is changed is copied first, and nothing is invented.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lastgood.catalog.contract import Catalog
from lastgood.catalog.upkeep import STORE, Audit, Corrections, NameFix, Tombstone
from lastgood.engine.engine import Engine, acting
from lastgood.errors import LostCommitsError, UnavailableError
from lastgood.local.location import Location
from lastgood.model.checkpoint import Placement
from lastgood.model.identity import DIGEST_SIZE, digest_text
from lastgood.observe.log import log_action
from lastgood.upkeep.check import Examination, check_store, examine, report
from lastgood.upkeep.check_catalog import (
    lost_moves,
    lost_workspaces,
    unreadable_journals,
    unreadable_steps,
    wrong_names,
)
from lastgood.upkeep.check_content import Progress
from lastgood.upkeep.inventory import Key
from lastgood.upkeep.quarantine import Quarantine
from lastgood.upkeep.report import CheckCounts, CheckReport, Finding, Mended, RepairReport
from lastgood.upkeep.salvage import BROKEN, BlobSearch
from lastgood.upkeep.snapshot import CatalogSnapshot, Derived, KnownCheckpoint, derive, read_snapshot

UNKNOWN = bytes(DIGEST_SIZE)
_DERIVED = frozenset(("database", "counter", "derived", "key", "tag", "move", "workspace", "step", "journal"))


def repair_store(
    engine: Engine,
    user: str,
    *,
    accept_loss: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> RepairReport:
    """Repair a store; see `Store.repair`."""
    catalog, objects = engine.catalog, engine.objects
    found = examine(catalog, objects, "data", None, progress)
    before = report(catalog, objects, found, "data")
    if found.lost and not accept_loss and not dry_run:
        raise LostCommitsError(
            f"{found.lost} acknowledged commit(s) are gone from the store; nothing was repaired",
            hint="bring it back from a copy, or say that they may be given up: accept_loss=True, --accept-loss",
            lost=found.lost,
        )
    _require_objects(engine.location, found)
    if dry_run:
        return _foresee(engine, found, before, accept_loss)
    quarantine, accepted = Quarantine(engine.location), 0
    if found.lost:  # first of all: until then nothing else can be written
        with catalog.exclusive():
            quarantine.copy_catalog()
            accepted = catalog.accept_loss()
    if any(finding.code == "database" for finding in found.findings):
        with catalog.exclusive():
            quarantine.copy_catalog()
            catalog.rebuild()
        found = examine(catalog, objects, "data", None, progress)
    sources: dict[Key, str] = {}
    # What a directory held comes to light when it is back: so once more, as long as something is found.
    while True:
        search = BlobSearch(engine, found, quarantine)
        search.run()
        _change(catalog, user, search, quarantine)
        for name in _emptied(catalog, search.broken):
            quarantine.take(objects, name)
        if search.sources.keys() <= sources.keys():
            break
        sources |= search.sources
        found = examine(catalog, objects, "structure", None, None)
    after = check_store(catalog, objects)
    _attest_losses(catalog, user, after)
    return RepairReport(
        dry_run=False,
        accepted=accepted,
        mended=tuple(_describe_mended(sources, _find_repaired(before, after))),
        lost=after.findings,
        check=after,
        quarantine=quarantine.path,
    )


def _require_objects(location: Location, found: Examination) -> None:
    """Refuse to repair without the folder of packs: one that is not mounted is no reason to give up its content."""
    objects = location.objects
    if not found.inventory.packs or objects is None:
        return
    packs = objects / "packs"
    if not objects.is_dir() or (os.path.lexists(packs) and not packs.is_dir()):
        raise UnavailableError(
            "the folder of the store's objects is not there, so nothing was repaired",
            hint="is a disk not mounted? If it is gone for good, make an empty folder in its place",
        )


def _foresee(engine: Engine, found: Examination, before: CheckReport, accept_loss: bool) -> RepairReport:
    """Report what a repair would do, as far as that is known without doing it."""
    search, snapshot = BlobSearch(engine, found, None), found.snapshot
    search.run()
    lost = {digest_text(digest) for _, digest in search.lost()}
    certain = {("record", known.row.id) for known in snapshot.checkpoints.values() if known.damage and known.record}
    tombstones = {(*snapshot.owner_and_task(stone.task), stone.sequence) for stone in find_tombstones(snapshot)}
    revived = {snapshot.owner_and_task(task)[1] for task, _ in plan_corrections(snapshot, derive(snapshot))["active"]}

    def is_repairable(one: Finding) -> bool:
        if one.blobs or one.code in BROKEN:
            return not lost.intersection(one.blobs)
        if one.code == "missing":
            return {(use.owner, use.task_id, use.sequence) for use in one.uses} <= tombstones
        if one.code == "task":
            return one.name in revived
        return one.code in _DERIVED or (one.code, one.name) in certain or (one.code == "lost_commits" and accept_loss)

    mended = [one for one in before.findings if is_repairable(one)]
    return RepairReport(
        dry_run=True,
        accepted=found.lost if accept_loss else 0,
        mended=tuple(_describe_mended(search.sources, mended)),
        lost=tuple(one for one in before.findings if one not in mended),
        check=before,
    )


def _change(catalog: Catalog, user: str, search: BlobSearch, quarantine: Quarantine) -> None:
    """Write corrections. Other writers wait: what is derived follows from what must not change meanwhile."""
    with catalog.exclusive():
        with catalog.audit() as audit:
            snapshot, content = _read_snapshot(audit), search.plan(audit)
        tombstones = Corrections(tombstones=list(find_tombstones(snapshot)))
        derived = Corrections(**plan_corrections(snapshot, derive(snapshot)), **content)
        if not (tombstones.is_empty() and derived.is_empty()):
            quarantine.copy_catalog()
        if not tombstones.is_empty():  # with them more can be derived
            catalog.correct(tombstones, acting(user))
            with catalog.audit() as audit:
                snapshot = _read_snapshot(audit)
            derived = Corrections(**plan_corrections(snapshot, derive(snapshot)), **content)
        if not derived.is_empty():
            catalog.correct(derived, acting(user))
        log_action(user, "repair", "")


def _emptied(catalog: Catalog, packs: Sequence[str]) -> list[str]:
    """Return the packs in which nothing lies any more."""
    with catalog.audit() as audit:
        needed = {row.name for row in audit.packs()}
    return [name for name in packs if name not in needed]


def _read_snapshot(audit: Audit) -> CatalogSnapshot:
    return read_snapshot(audit, CheckCounts(), lambda known, row: None)


def _find_repaired(before: CheckReport, after: CheckReport) -> Iterator[Finding]:
    """Yield the findings of `before` that are repaired."""
    left = {(one.code, one.name) for one in after.findings}
    lost = {blob for one in after.findings for blob in one.blobs}
    for one in before.findings:
        if (one.code, one.name) not in left and not any(blob in lost for blob in one.blobs):
            yield one


def _describe_mended(sources: Mapping[Key, str], findings: Iterable[Finding]) -> Iterator[Mended]:
    where = {digest_text(digest): source for (_, digest), source in sources.items()}
    for finding in findings:
        found = sorted({where[blob] for blob in finding.blobs if blob in where})
        how = f"found again in {', '.join(found[:3])}" if found else "set right"
        yield Mended(finding.code, finding.name, f"{finding.sentence}: {how}")


def _attest_losses(catalog: Catalog, user: str, after: CheckReport) -> None:
    """Attest that checkpoints which have lost something are not verified any more."""
    for finding in after.findings:
        for use in finding.uses:
            stored = None if use.id is None else catalog.checkpoint(use.owner, use.id)
            if stored is not None and stored.verified and not stored.deleted:
                data = {"verified": False, "problems": [finding.sentence]}
                catalog.attest(stored.owner, [stored.id], "verification", data, acting(user))


# --- what is written into the catalog ------------------------------------------------------------------------------


def plan_corrections(snapshot: CatalogSnapshot, derived: Derived) -> dict[str, Any]:
    """Return fields of Corrections: what follows from records and attestations.

    Where checkpoints of a task are gone, its figures are left alone: they cannot be told.
    """
    plan: dict[str, Any] = {
        "checksums": [
            (*known.number, known.checksum)
            for known in snapshot.checkpoints.values()
            if known.record is not None and known.checksum != known.row.checksum
        ],
        "marks": [
            (*number, *marks) for number, marks in derived.marks.items() if marks != snapshot.checkpoints[number].marks
        ],
        "branches": list(_branches(snapshot, derived)),
        "tasks": list(_tasks(snapshot, derived)),
        "active": list(_active(snapshot)),
        "moves": [(move.task, move.number) for move in lost_moves(snapshot)],
        "workspaces": [(row.task, row.host, row.path) for row in lost_workspaces(snapshot)],
        "steps": [(step.owner, step.id) for step in unreadable_steps(snapshot)],
        "journals": [journal.id for journal in unreadable_journals(snapshot)],
    }
    for code, rows, expected in (("key", snapshot.keys, derived.keys), ("tag", snapshot.tags, derived.tags)):
        wrong = wrong_names(snapshot, "key" if code == "key" else "tag", rows, expected)
        plan[f"{code}s"] = [NameFix(*at, None if number is None else number[1]) for at, number in wrong]
    return plan


def _branches(snapshot: CatalogSnapshot, derived: Derived) -> Iterator[tuple[int, int, int, int, int]]:
    for number, figures in derived.branches.items():
        row = snapshot.branches[number]
        if row.task not in snapshot.incomplete and (row.head, row.version, row.own, row.inherited) != figures:
            yield number, *figures


def _tasks(snapshot: CatalogSnapshot, derived: Derived) -> Iterator[tuple[int, int, int, int]]:
    """Yield counters of tasks. The log is never made shorter: a number that is taken is not given again."""
    for row in snapshot.tasks.values():
        figures = derived.tasks[row.number]
        last_event = max(row.last_event, figures.last_event)
        stored = row.last_sequence, row.last_event, row.checkpoints
        if row.number not in snapshot.incomplete and stored != (figures.last_sequence, last_event, figures.checkpoints):
            yield row.number, figures.last_sequence, last_event, figures.checkpoints


def _active(snapshot: CatalogSnapshot) -> Iterator[tuple[int, int]]:
    """Yield new active branches where one is not there: the branch that was advanced last."""
    for task in snapshot.tasks.values():
        mine = [row for row in snapshot.branches.values() if row.task == task.number and not row.deleted]
        if task.number != STORE and mine and task.active_branch not in {row.number for row in mine}:
            yield task.number, max(mine, key=lambda row: row.head).number


def find_tombstones(snapshot: CatalogSnapshot) -> Iterator[Tombstone]:
    """Make tombstones for checkpoints that are gone, of what their descendants still prove of them.

    A child has its parent's id and checksum; versions on a branch and numbers of the log are dense. Where that leaves
    more than one answer, there is none. Of one whose child is gone, too, only the place is known: then it is called
    `lost-…`.
    """
    for task in snapshot.tasks.values():
        present = {
            known.row.sequence: known for known in snapshot.checkpoints.values() if known.row.task == task.number
        }
        missing = [sequence for sequence in range(1, task.last_sequence + 1) if sequence not in present]
        if task.number and missing and "checkpoints" not in snapshot.unreadable:
            yield from _MissingCheckpoints(snapshot, task.number, present, missing).fill()


class _MissingCheckpoints:
    """The sequences of one task that are missing."""

    def __init__(
        self, snapshot: CatalogSnapshot, task: int, present: dict[int, KnownCheckpoint], missing: list[int]
    ) -> None:
        self._ledger = snapshot
        self._task = task
        self._present = present
        self._missing = missing
        used = snapshot.events.get(task, set()) | snapshot.creations.get(task, set())
        self._unused_events = sorted(set(range(1, snapshot.tasks[task].last_event + 1)) - used)

    def fill(self) -> Iterator[Tombstone]:
        links = self._links()
        for sequence, (branch, version) in self._places().items():
            event = self._event(sequence)
            if event is None:
                continue
            id_, checksum = links.get((branch, version), (f"lost-{self._task}-{sequence}", UNKNOWN))
            row = self._ledger.branches[branch]
            placement = Placement(row.id, sequence, version, event).digest(checksum)
            yield Tombstone(self._task, sequence, branch, row.owner, id_, version, event, checksum, placement)

    def _links(self) -> dict[tuple[int, int], tuple[str, bytes]]:
        """Return ids and checksums of parents, by branch and version, as their children have them."""
        found: dict[tuple[int, int], tuple[str, bytes]] = {}
        places = self._places()
        for known in self._present.values():
            record, row = known.record, known.row
            if record is None or record.parent_id is None or record.parent_checksum is None:
                continue
            branch = self._ledger.branches.get(row.branch)
            at = (row.branch, row.version - 1) if row.version > 1 else branch and places.get(branch.origin)
            if at is not None:
                found[at] = record.parent_id, record.parent_checksum
        return found

    def _places(self) -> dict[int, tuple[int, int]]:
        """Return branch and version of the missing: between two checkpoints of a branch as many are gone as versions
        are missing, if no other's are gone there."""
        own: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for known in self._present.values():
            own[known.row.branch].append((known.row.sequence, known.row.version))
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for branch, placed in own.items():
            if branch not in self._ledger.branches:
                continue
            start = (self._ledger.branches[branch].origin, 0)
            for (low, before), (high, after) in zip([start, *sorted(placed)], sorted(placed), strict=False):
                between = [sequence for sequence in self._missing if low < sequence < high]
                missing = range(before + 1, after)
                if missing and len(between) == len(missing):
                    for sequence, version in zip(between, missing, strict=True):
                        found[sequence].append((branch, version))
        return {sequence: places[0] for sequence, places in found.items() if len(places) == 1}

    def _event(self, sequence: int) -> int | None:
        """Return the number in the log that was its own: the one between its neighbours' that nothing else has."""
        low, high = self._bounds(sequence)
        if high is None:
            return None
        near = [n for n in self._missing if self._bounds(n) == (low, high)]
        free = [event for event in self._unused_events if low < event < high]
        return free[near.index(sequence)] if len(near) == len(free) else None

    def _bounds(self, sequence: int) -> tuple[int, int | None]:
        low = max((known.row.last_event for n, known in self._present.items() if n < sequence), default=0)
        high = min((known.row.last_event for n, known in self._present.items() if n > sequence), default=None)
        return low, high
