"""Repairing a store: what is derived is derived again, damaged content is replaced by intact copies, and what has none
is given up. All that is changed is copied first, and nothing is invented.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from lastgood.catalog.contract import Catalog
from lastgood.catalog.upkeep import STORE, Corrections, NameFix, TaskRow, Tombstone
from lastgood.engine.engine import Engine, acting
from lastgood.engine.verify import recorded_damage, verify_stored
from lastgood.errors import LostCommitsError, UnavailableError
from lastgood.local.location import Location
from lastgood.model.checkpoint import Placement
from lastgood.model.identity import DIGEST_SIZE
from lastgood.observe.log import log_action
from lastgood.observe.log import report as tell
from lastgood.upkeep.check import Examination, check_store, examine, report
from lastgood.upkeep.check_catalog import (
    lost_moves,
    lost_workspaces,
    unreadable_journals,
    unreadable_steps,
    wrong_names,
)
from lastgood.upkeep.damage import Key
from lastgood.upkeep.report import CheckReport, Finding, RepairReport
from lastgood.upkeep.salvage import BlobSearch, Quarantine
from lastgood.upkeep.snapshot import CatalogSnapshot, Derived, KnownCheckpoint, NameCode, derive

UNKNOWN = bytes(DIGEST_SIZE)


def _tell(done: int, of: int) -> None:
    tell("bytes read", done, of)


def repair_store(engine: Engine, user: str, *, accept_loss: bool = False) -> RepairReport:
    """Repair a store; see `Store.repair`."""
    catalog, objects = engine.catalog, engine.objects
    found = examine(catalog, objects, engine.blob_id, read_data=True, progress=_tell)
    before = report(catalog, objects, found, "data")
    if found.lost and not accept_loss:
        raise LostCommitsError(
            f"{found.lost} acknowledged commit(s) are gone from the store; nothing was repaired",
            hint="bring it back from a copy, or say that they may be given up: accept_loss=True",
            lost=found.lost,
        )
    _require_objects(engine.location, found)
    quarantine, accepted = Quarantine(engine.location), 0
    if found.lost:  # first of all: until then nothing else can be written
        with catalog.exclusive():
            quarantine.copy_catalog()
            accepted = catalog.accept_loss()
    if any(finding.code == "database" for finding in found.findings):
        with catalog.exclusive():
            quarantine.copy_catalog()
            catalog.rebuild()
        found = examine(catalog, objects, engine.blob_id, read_data=True, progress=_tell)
    restored: set[Key] = set()
    # What a directory held comes to light when it is back: so once more, as long as something is found.
    while True:
        search = BlobSearch(engine, found)
        search.run()
        _change(catalog, user, search, quarantine)
        for name in _emptied(catalog, search.broken):
            quarantine.take(objects, name)
        if search.found <= restored:
            break
        restored |= search.found
        found = examine(catalog, objects, engine.blob_id)
    after = check_store(catalog, objects, engine.blob_id)
    _attest_losses(catalog, user, after)
    repaired = tuple(_find_repaired(before, after))
    _verify_again(engine, user, repaired)
    return RepairReport(
        accepted=accepted,
        mended=repaired,
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


def _change(catalog: Catalog, user: str, search: BlobSearch, quarantine: Quarantine) -> None:
    """Write corrections. Other writers wait: what is derived follows from what must not change meanwhile."""
    with catalog.exclusive():
        with catalog.audit() as audit:
            snapshot, content = CatalogSnapshot(audit), search.plan(audit)
        tombstones = Corrections(tombstones=list(find_tombstones(snapshot)))
        derived = Corrections(**plan_corrections(snapshot, derive(snapshot)), **content)
        if not (tombstones.is_empty() and derived.is_empty()):
            quarantine.copy_catalog()
        if not tombstones.is_empty():  # with them more can be derived
            catalog.correct(tombstones, acting(user))
            with catalog.audit() as audit:
                snapshot = CatalogSnapshot(audit)
            derived = Corrections(**plan_corrections(snapshot, derive(snapshot)), **content)
        if not derived.is_empty():
            catalog.correct(derived, acting(user))
        log_action(user, "repair", "")


def _emptied(catalog: Catalog, packs: Sequence[str]) -> list[str]:
    """Return the packs in which nothing lies any more."""
    with catalog.audit() as audit:
        needed = {row.name for row in audit.packs()}
    return [name for name in packs if name not in needed]


def _find_repaired(before: CheckReport, after: CheckReport) -> Iterator[Finding]:
    """Yield the findings of `before` that are repaired."""
    left = {(one.code, one.name) for one in after.findings}
    lost = {blob for one in after.findings for blob in one.blobs}
    for one in before.findings:
        if (one.code, one.name) not in left and not any(blob in lost for blob in one.blobs):
            yield one


def _attest_losses(catalog: Catalog, user: str, after: CheckReport) -> None:
    """Attest that checkpoints which have lost something are not verified any more."""
    for finding in after.findings:
        for use in finding.uses:
            stored = None if use.id is None else catalog.checkpoint(use.owner, use.id)
            if stored is not None and stored.verified and not stored.deleted:
                data = {"verified": False, "problems": [finding.sentence]}
                catalog.attest(stored.owner, [stored.id], "verification", data, acting(user))


def _verify_again(engine: Engine, user: str, repaired: Sequence[Finding]) -> None:
    """Verify checkpoints that damage is recorded of, and of which something was repaired: only that clears it."""
    for owner, id_ in {(use.owner, use.id): None for finding in repaired for use in finding.uses if use.id}:
        if (stored := engine.catalog.checkpoint(owner, id_)) is not None and recorded_damage(engine, stored):
            verify_stored(engine, user, stored)


# --- what is written into the catalog ------------------------------------------------------------------------------


def plan_corrections(snapshot: CatalogSnapshot, derived: Derived) -> dict[str, Any]:
    """Return fields of Corrections: what follows from records and attestations.

    Where checkpoints of a task are gone, its figures are left alone: they cannot be told.
    """

    def fixes(code: NameCode) -> list[NameFix]:
        wrong = wrong_names(snapshot, derived, code)
        return [NameFix(*at, None if number is None else number[1]) for at, number in wrong]

    return {
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
        "workspaces": [(row.task, row.inode, row.device, row.path) for row in lost_workspaces(snapshot)],
        "steps": [(step.owner, step.id) for step in unreadable_steps(snapshot)],
        "journals": [journal.id for journal in unreadable_journals(snapshot)],
        "keys": fixes("key"),
        "tags": fixes("tag"),
    }


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
        present = {number[1]: known for number, known in snapshot.checkpoints.items() if number[0] == task.number}
        missing = [sequence for sequence in range(1, task.last_sequence + 1) if sequence not in present]
        if not task.number or not missing or "checkpoints" in snapshot.unreadable:
            continue
        places = _find_places(snapshot, present, missing)
        parents = _find_parents(snapshot, present, places)
        events = _find_events(snapshot, task, present, missing)
        for sequence, (branch, version) in places.items():
            if sequence in events:
                row, event = snapshot.branches[branch], events[sequence]
                id_, checksum = parents.get((branch, version), (f"lost-{task.number}-{sequence}", UNKNOWN))
                placement = Placement(row.id, sequence, version, event).digest(checksum)
                yield Tombstone(task.number, sequence, branch, row.owner, id_, version, event, checksum, placement)


def _find_places(
    snapshot: CatalogSnapshot, present: Mapping[int, KnownCheckpoint], missing: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """Return branch and version of the missing: between two checkpoints of a branch as many are gone as versions
    are missing, if no other's are gone there."""
    own: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for known in present.values():
        own[known.row.branch].append((known.row.sequence, known.row.version))
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for branch, placed in own.items():
        if branch not in snapshot.branches:
            continue
        for (low, before), (high, after) in pairwise([(snapshot.branches[branch].origin, 0), *sorted(placed)]):
            between = [sequence for sequence in missing if low < sequence < high]
            versions = range(before + 1, after)
            if len(between) == len(versions):
                for sequence, version in zip(between, versions, strict=True):
                    found[sequence].append((branch, version))
    return {sequence: places[0] for sequence, places in found.items() if len(places) == 1}


def _find_parents(
    snapshot: CatalogSnapshot, present: Mapping[int, KnownCheckpoint], places: Mapping[int, tuple[int, int]]
) -> dict[tuple[int, int], tuple[str, bytes]]:
    """Return ids and checksums of parents, by branch and version, as their children have them."""
    found: dict[tuple[int, int], tuple[str, bytes]] = {}
    for known in present.values():
        record, row = known.record, known.row
        if record is None or record.parent_id is None or record.parent_checksum is None:
            continue
        branch = snapshot.branches.get(row.branch)
        at = (row.branch, row.version - 1) if row.version > 1 else branch and places.get(branch.origin)
        if at is not None:
            found[at] = record.parent_id, record.parent_checksum
    return found


def _find_events(
    snapshot: CatalogSnapshot, task: TaskRow, present: Mapping[int, KnownCheckpoint], missing: Sequence[int]
) -> dict[int, int]:
    """Return the number in the log of each: those between its neighbours' numbers that nothing else has, if they are as
    many as checkpoints are missing there."""
    used = snapshot.events.get(task.number, set()) | snapshot.creations.get(task.number, set())
    unused = sorted(set(range(1, task.last_event + 1)) - used)
    gaps: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for sequence in missing:
        low = max((known.row.last_event for n, known in present.items() if n < sequence), default=0)
        high = min((known.row.last_event for n, known in present.items() if n > sequence), default=0)
        gaps[low, high].append(sequence)
    found: dict[int, int] = {}
    for (low, high), sequences in gaps.items():
        free = [event for event in unused if low < event < high]
        if len(free) == len(sequences):
            found |= dict(zip(sequences, free, strict=True))
    return found
