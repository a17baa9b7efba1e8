"""Checking a whole store: by its structure, and if asked by every byte. Nothing is changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from lastgood.catalog.contract import Catalog
from lastgood.catalog.upkeep import STORE, Audit, BlobRow, PackRow
from lastgood.catalog.values import FILES
from lastgood.codec.pack import PackEntry
from lastgood.errors import InvalidError
from lastgood.model.identity import SHA256, BlobId
from lastgood.upkeep.check_catalog import check_derived, check_lineage, checkpoint_finding
from lastgood.upkeep.check_content import (
    CheckpointContent,
    Pick,
    Progress,
    check_pack_content,
    check_packs,
    find_unmentioned_packs,
    read_all,
)
from lastgood.upkeep.damage import Inventory, attribute, attribute_without_catalog, read_inventory
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
    sample: float | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> CheckReport:
    """Find what is damaged in a store, what needs it, and what still works. See `Store.check`."""
    depth, pick, seed = _choose_depth(read_data, sample, seed)
    return report(catalog, objects, examine(catalog, objects, blob_id, pick, progress), depth, seed)


def report(
    catalog: Catalog, objects: ObjectStore | None, found: Examination, depth: Depth, seed: int | None = None
) -> CheckReport:
    """Report what an examination found, with the checkpoints that need it."""
    findings = list(found.findings)
    if found.inventory.damage or found.packs:
        with catalog.audit() as audit:
            read = found.inventory.reader(audit, objects)
            findings += attribute(audit, found.snapshot, found.inventory, found.packs, read)
    return CheckReport(
        depth=depth,
        findings=tuple(findings),
        remarks=found.remarks,
        standings=tuple(_assess_tasks(found.snapshot, findings)),
        looked_at=found.looked_at,
        seed=seed,
    )


def check_packs_alone(
    objects: ObjectStore,
    problem: str,
    *,
    read_data: bool = False,
    sample: float | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> CheckReport:
    """Check the packs of a store whose database cannot be opened; `problem` says why."""
    depth, pick, seed = _choose_depth(read_data, sample, seed)
    counts, inventory = CheckCounts(), Inventory(SHA256)
    listed = enumerate(objects.list("packs/"), 1)
    inventory.packs = {number: PackRow(number, one.name, one.size) for number, one in listed}
    packs, readable = check_packs(objects, inventory, counts)
    for pack in readable:
        inventory.placed |= {entry.blob_id: _row(pack.row, entry) for entry in pack.entries}
    if pick is not None:
        packs += check_pack_content(objects, inventory, readable, counts, pick, progress)
    first = _database_finding(f"{problem} (only packs could be looked at)")
    findings = (first, *attribute_without_catalog(inventory, packs))
    return CheckReport(depth=depth, findings=findings, looked_at=counts, seed=seed)


def _row(pack: PackRow, entry: PackEntry) -> BlobRow:
    id_, position, length, size, encoding = entry
    return BlobRow(0, FILES, id_, size, encoding, pack.number, position, length, None)


def _choose_depth(read_data: bool, sample: float | None, seed: int | None) -> tuple[Depth, Pick | None, int | None]:
    """Return how much to read, which blobs (None: no content), and the seed that chooses them."""
    if sample is None:
        return ("data", read_all, None) if read_data else ("structure", None, None)
    share = float(sample)
    if read_data or not 0 < share <= 1:
        raise InvalidError(
            "a sample is a share of the blobs, above 0 and up to 1, and not with all of them",
            hint="sample=0.05 reads one in twenty",
            field="sample",
        )
    import random

    if seed is None:
        seed = random.SystemRandom().getrandbits(32)
    dice = random.Random(seed)  # noqa: S311  # it chooses what is read, and keeps no secret
    return "sample", lambda: dice.random() < share, seed


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
    remarks: tuple[Finding, ...]
    looked_at: CheckCounts
    lost: int


def examine(
    catalog: Catalog,
    objects: ObjectStore | None,
    blob_id: BlobId,
    pick: Pick | None = None,
    progress: Progress | None = None,
) -> Examination:
    """Look at everything once; change nothing. With `pick` the blobs are read for which it is true."""
    with catalog.audit() as audit:
        lost, findings, content = audit.lost, list(_check_database(audit)), CheckpointContent(blob_id)
        snapshot = CatalogSnapshot(audit, content.add)
        counts = CheckCounts(
            tasks=len(snapshot.tasks) - (STORE in snapshot.tasks),
            branches=len(snapshot.branches),
            checkpoints=len(snapshot.checkpoints),
            attestations=sum(map(len, snapshot.attestations.values())),
            events=sum(map(len, snapshot.events.values())),
        )
        findings += check_lineage(snapshot)
        findings += check_derived(snapshot, derive(snapshot))
        findings += [
            checkpoint_finding(snapshot, known, "state", how, "state") for known, how in content.damaged_states
        ]
        inventory = read_inventory(audit, blob_id, counts, pick)
        packs, readable = ([], []) if objects is None else check_packs(objects, inventory, counts)
        content.check(inventory, audit, objects, counts)
        if audit.unreadable:
            findings.append(_database_finding(f"rows of {', '.join(audit.unreadable)} cannot be read"))
    remarks: tuple[Finding, ...] = ()
    if objects is not None:  # objects never change: the snapshot is not held while they are read
        if pick is not None:
            packs += check_pack_content(objects, inventory, readable, counts, pick, progress)
        remarks = tuple(find_unmentioned_packs(objects, inventory))
    return Examination(snapshot, inventory, findings, packs, remarks, counts, lost)


def _check_database(audit: Audit) -> Iterator[Finding]:
    if audit.lost:
        sentence = f"{audit.lost} acknowledged commit(s) are gone from the store; what follows is about the rest"
        yield Finding("lost_commits", "store", "store", sentence)
    yield from map(_database_finding, audit.problems())


def _database_finding(problem: str) -> Finding:
    return Finding("database", "store", "database", f"the database: {problem}")
