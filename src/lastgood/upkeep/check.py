"""Checking a whole store: by its structure, and if asked by every byte. Nothing is changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from lastgood.catalog.contract import Catalog
from lastgood.catalog.upkeep import STORE
from lastgood.errors import IntegrityError
from lastgood.model.identity import BlobId
from lastgood.upkeep.check_catalog import check_derived, check_lineage, checkpoint_finding
from lastgood.upkeep.check_content import CheckpointContent, Progress, check_pack_content, check_packs
from lastgood.upkeep.damage import Inventory, attribute, read_inventory
from lastgood.upkeep.data_check import DataCheck
from lastgood.upkeep.report import CheckCounts, CheckReport, Depth, Finding, TaskHealth
from lastgood.upkeep.snapshot import CatalogSnapshot, KnownCheckpoint, derive

if TYPE_CHECKING:
    from lastgood.objects.contract import ObjectStore


def check_store(
    catalog: Catalog,
    objects: ObjectStore | None,
    blob_id: BlobId,
    *,
    read_data: bool = False,
    progress: Progress | None = None,
) -> CheckReport:
    """Find what is damaged in a store, what needs it, and what still works. See `Store.check`."""
    found = examine(catalog, objects, blob_id, read_data=read_data, progress=progress)
    return report(catalog, objects, found, "data" if read_data else "structure")


def report(catalog: Catalog, objects: ObjectStore | None, found: Examination, depth: Depth) -> CheckReport:
    """Report what an examination found, with the checkpoints that need it."""
    findings = list(found.findings)
    if found.inventory.damage or found.packs:
        with catalog.audit() as audit:
            read = found.inventory.reader(audit, objects)
            findings += attribute(audit, found.snapshot, found.inventory, found.packs, read)
    return CheckReport(
        depth=depth,
        findings=tuple(findings),
        standings=tuple(_assess_tasks(found.snapshot, findings)),
        looked_at=found.looked_at,
    )


def _assess_tasks(snapshot: CatalogSnapshot, findings: Iterable[Finding]) -> Iterator[TaskHealth]:
    damaged: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for use in (use for finding in findings for use in finding.uses):
        damaged[use.owner, use.task_id].add(use.sequence)
    of_task: defaultdict[int, list[KnownCheckpoint]] = defaultdict(list)
    for known in snapshot.checkpoints.values():
        if not known.purged and known.row.deleted == 0:
            of_task[known.row.task].append(known)
    for task in snapshot.tasks.values():
        if task.number != STORE:
            bad = damaged[task.owner, task.id]
            branch = snapshot.branches.get(task.active_branch)
            head = branch and snapshot.checkpoints.get((task.number, branch.head))
            living = of_task[task.number]
            whole = [known for known in living if known.row.sequence not in bad]
            gone = sum((task.number, sequence) not in snapshot.checkpoints for sequence in bad)
            newest = max(whole, key=lambda known: known.row.sequence, default=None)
            yield TaskHealth(
                task.owner,
                task.id,
                len(living) + gone,
                len(living) + gone - len(whole),
                head in whole,
                newest.row.id if newest else None,
            )


# --- the examination ---------------------------------------------------------------------------------------------


class Examination(NamedTuple):
    """What an examination found, before it is known what needs it. `findings` are about checkpoints and what is
    derived from them, `packs` about packs; the inventory has what is wrong with blobs. `lost`: how many acknowledged
    commits are gone."""

    snapshot: CatalogSnapshot
    inventory: Inventory
    findings: list[Finding]
    packs: list[Finding]
    looked_at: CheckCounts
    lost: int


def examine(
    catalog: Catalog,
    objects: ObjectStore | None,
    blob_id: BlobId,
    *,
    read_data: bool = False,
    progress: Progress | None = None,
) -> Examination:
    """Look at everything once; change nothing. With `read_data` every blob is read."""
    reading = DataCheck.of(catalog, objects) if read_data else None
    if reading is not None:
        with closing(reading):
            found = _examine(catalog, objects, blob_id, beside=reading)
            if reading.finish(found.looked_at, progress):
                return found
    return _examine(catalog, objects, blob_id, read_data=read_data, progress=progress)


def _examine(
    catalog: Catalog,
    objects: ObjectStore | None,
    blob_id: BlobId,
    *,
    read_data: bool = False,
    progress: Progress | None = None,
    beside: DataCheck | None = None,
) -> Examination:
    """Examine all but the packs and the bytes of blobs if another process does, `beside` this."""
    # SQLite's own check needs no Python: it goes on in a thread.
    with ThreadPoolExecutor(1, "lastgood check") as thread:
        problems = thread.submit(_list_problems, catalog)
        with catalog.audit() as audit:
            if beside is not None:  # so its snapshot is no older than this one
                beside.begin(catalog, objects, blob_id)
            lost, findings, content = audit.lost, list[Finding](), CheckpointContent(blob_id)
            snapshot = CatalogSnapshot(audit, content.add)
            counts = CheckCounts(checkpoints=len(snapshot.checkpoints))
            findings += check_lineage(snapshot)
            findings += check_derived(snapshot, derive(snapshot))
            findings += [
                checkpoint_finding(snapshot, known, "state", how, "state") for known, how in content.damaged_states
            ]
            inventory = read_inventory(audit, blob_id, counts, read_data)
            packs, readable = ([], []) if objects is None or beside else check_packs(objects, inventory, counts)
            content.check(inventory, audit, objects)
            findings += [checkpoint_finding(snapshot, known, "tree", how, "files") for known, how in content.miscounted]
            if audit.unreadable:
                findings.append(database_finding(f"rows of {', '.join(audit.unreadable)} cannot be read"))
        if objects is not None and read_data:  # objects never change: the snapshot is not held while they are read
            packs += check_pack_content(objects, inventory, readable, counts, progress)
        try:
            found = problems.result()
        except IntegrityError:  # a connection that is open already may tell more
            found = _list_problems(catalog)
    first = list(map(database_finding, found))
    if lost:
        sentence = f"{lost} acknowledged commit(s) are gone from the store; what follows is about the rest"
        first.insert(0, Finding("lost_commits", "store", "store", sentence))
    return Examination(snapshot, inventory, [*first, *findings], packs, counts, lost)


def _list_problems(catalog: Catalog) -> list[str]:
    with catalog.audit() as audit:
        return audit.problems()


def database_finding(problem: str) -> Finding:
    """Make a finding about the database as a whole."""
    return Finding("database", "store", "database", f"the database: {problem}")
