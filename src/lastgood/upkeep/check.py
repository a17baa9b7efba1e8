"""Checking a whole store: by its structure, and if asked by every byte. Changes nothing."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from lastgood.catalog.contract import Catalog
from lastgood.catalog.upkeep import STORE, BlobRow, PackRow
from lastgood.catalog.values import FILES
from lastgood.codec.pack import PackEntry
from lastgood.errors import FormatError, IntegrityError, InvalidError
from lastgood.upkeep.checking.blame import attribute, blame_without_catalog
from lastgood.upkeep.checking.examination import Examination, Pick, database_finding, examine
from lastgood.upkeep.checking.ledger import Known, Ledger
from lastgood.upkeep.checking.packs import examine_packs
from lastgood.upkeep.checking.reading import Progress, read_packs
from lastgood.upkeep.checking.report import CheckReport, Depth, Finding, LookedAt, Standing
from lastgood.upkeep.checking.shelf import Reader, Shelf

if TYPE_CHECKING:
    from lastgood.objects.contract import ObjectStore


def check_store(
    catalog: Catalog,
    objects: ObjectStore | None,
    *,
    read_data: bool = False,
    sample: float | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> CheckReport:
    """What is damaged in a store, who needs it, and what still works. See `Store.check`."""
    depth, pick, seed = _how_deep(read_data, sample, seed)
    return report(catalog, objects, examine(catalog, objects, depth, pick, progress), depth, seed)


def report(
    catalog: Catalog, objects: ObjectStore | None, found: Examination, depth: Depth, seed: int | None = None
) -> CheckReport:
    """What an examination found, with who needs it."""
    findings = list(found.findings)
    if found.shelf.damage or found.packs:
        with catalog.audit() as audit:
            reader = Reader(found.shelf, audit, objects)
            findings += attribute(audit, found.ledger, found.shelf, found.packs, reader)
    return CheckReport(
        depth=depth,
        findings=tuple(findings),
        remarks=tuple(found.remarks),
        standings=tuple(_standings(found.ledger, findings)),
        looked_at=found.looked_at,
        seed=seed,
    )


def check_at(target: str | os.PathLike[str] | None, **how: Any) -> CheckReport:
    """As `check_store`, also of a store whose database cannot be opened: then of its packs alone."""
    from lastgood.local.location import locate, objects_beside
    from lastgood.objects.local import LocalObjects
    from lastgood.objects.verified import VerifiedObjects
    from lastgood.store import find_location, open_catalog

    try:
        location = find_location(target)
        with closing(open_catalog(location)) as catalog:
            folder = location.objects
            objects = None if folder is None else VerifiedObjects(LocalObjects(folder))
            return check_store(catalog, objects, **how)
    except (IntegrityError, FormatError) as error:
        file = locate(target).catalog
        if file is None:
            raise
        return _check_packs_alone(LocalObjects(objects_beside(file)), str(error), **how)


def _check_packs_alone(
    objects: ObjectStore,
    problem: str,
    *,
    read_data: bool = False,
    sample: float | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> CheckReport:
    depth, pick, seed = _how_deep(read_data, sample, seed)
    looked_at, shelf = LookedAt(), Shelf()
    listed = enumerate(objects.list("packs/"), 1)
    shelf.packs = {number: PackRow(number, one.name, one.size) for number, one in listed}
    packs, examined = examine_packs(objects, shelf, looked_at)
    for pack in examined:
        shelf.placed |= {entry.blob_id: _row(pack.row, entry) for entry in pack.entries}
    if depth != "structure":
        packs += read_packs(objects, shelf, examined, looked_at, pick, progress)
    return CheckReport(
        depth=depth,
        findings=(
            database_finding(f"{problem} (only packs could be looked at)"),
            *blame_without_catalog(shelf, packs),
        ),
        remarks=(),
        standings=(),
        looked_at=looked_at,
        seed=seed,
    )


def _row(pack: PackRow, entry: PackEntry) -> BlobRow:
    id_, position, length, size, encoding = entry
    return BlobRow(0, FILES, id_, size, encoding, pack.number, position, length, None)


def _how_deep(read_data: bool, sample: float | None, seed: int | None) -> tuple[Depth, Pick | None, int | None]:
    """How much to read, which blobs (None: all), and the seed that chooses them."""
    if sample is None:
        return ("data" if read_data else "structure"), None, None
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


def _standings(ledger: Ledger, findings: Iterable[Finding]) -> Iterator[Standing]:
    damaged: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for use in (use for finding in findings for use in finding.uses):
        damaged[use.owner, use.task_id].add(use.sequence)
    of_task: defaultdict[int, list[Known]] = defaultdict(list)
    for known in ledger.checkpoints.values():
        if not known.purged and known.row.deleted == 0:
            of_task[known.row.task].append(known)
    for task in ledger.tasks.values():
        if task.number != STORE:
            bad = damaged[task.owner, task.id]
            branch = ledger.branches.get(task.active_branch)
            head = branch and ledger.checkpoints.get((task.number, branch.head))
            living = of_task[task.number]
            whole = [known for known in living if known.row.sequence not in bad]
            gone = sum((task.number, sequence) not in ledger.checkpoints for sequence in bad)
            newest = max(whole, key=lambda known: known.row.sequence, default=None)
            yield Standing(
                task.owner,
                task.id,
                len(living) + gone,
                len(living) + gone - len(whole),
                head in whole,
                newest.row.id if newest else None,
            )
