"""Checking a whole store: by its structure, and if asked by every byte. Changes nothing."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from lastgood.catalog.audit import STORE, Audit, BlobRow, PackRow
from lastgood.catalog.contract import FILES, Catalog
from lastgood.content.packs import Entry
from lastgood.engine.checking.books import examine_books
from lastgood.engine.checking.derived import derive
from lastgood.engine.checking.ledger import Known, Ledger, read_ledger
from lastgood.engine.checking.lineage import examine_lineage
from lastgood.engine.checking.packs import Examined, Progress, examine_packs, find_unmentioned, read_packs
from lastgood.engine.checking.parts import Parts
from lastgood.engine.checking.report import CheckReport, Depth, Finding, LookedAt, Standing, Use
from lastgood.engine.checking.shelf import Damage, Key, Reader, Shelf, read_shelf
from lastgood.engine.checking.trees import walk_trees
from lastgood.engine.checking.uses import find_uses
from lastgood.errors import FormatError, IntegrityError, InvalidError
from lastgood.model.digest import to_text

if TYPE_CHECKING:
    from lastgood.objects.contract import ObjectStore

MAX_SEPARATE = 64
"""So many damaged blobs of one kind and place are told one by one; more of them together."""


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
    looked_at = LookedAt()
    with catalog.audit() as audit:
        found = _Found(audit)
        parts = Parts()
        found.ledger = ledger = read_ledger(audit, looked_at, parts.add)
        found.findings += examine_lineage(ledger)
        found.findings += examine_books(ledger, derive(ledger))
        found.findings += _damaged_states(ledger, parts)
        found.shelf = shelf = read_shelf(audit, looked_at, None if depth == "structure" else pick or _always)
        examined: list[Examined] = []
        if objects is not None:
            broken, examined = examine_packs(objects, shelf, looked_at)
            found.packs += broken
        parts.walk(shelf, audit)
        walk_trees(_trees(ledger), shelf, audit, Reader(shelf, audit, objects), looked_at)
        found.say_unreadable(audit)
    if objects is not None:
        if depth != "structure":
            found.packs += read_packs(objects, shelf, examined, looked_at, pick, progress)
        found.remarks += find_unmentioned(objects, shelf)
    if shelf.damage or found.packs:
        with catalog.audit() as audit:
            found.findings += attribute(audit, found.ledger, shelf, found.packs, Reader(shelf, audit, objects))
    return CheckReport(
        depth=depth,
        findings=tuple(found.findings),
        remarks=tuple(found.remarks),
        standings=tuple(_standings(ledger, found.findings)),
        looked_at=looked_at,
        seed=seed,
    )


def check_at(target: str | os.PathLike[str] | None, **how: Any) -> CheckReport:
    """As `check_store`, also of a store whose database cannot be opened: then of its packs alone."""
    from lastgood.engine.filing import Filing
    from lastgood.engine.location import locate, objects_beside
    from lastgood.engine.store import open_catalog
    from lastgood.objects.local import LocalObjects

    try:
        with closing(open_catalog(target)) as catalog:
            return check_store(catalog, Filing(catalog).objects, **how)
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
    culprits = _blame(shelf.damage, packs)
    blobs: defaultdict[int, list[Key]] = defaultdict(list)
    for key, culprit in culprits.items():
        blobs[culprit].append(key)
    findings = [_complete(draft, blobs.get(number, []), []) for number, draft in enumerate(packs)]
    return CheckReport(
        depth=depth,
        findings=(_database(f"{problem} (only packs could be looked at)"), *findings),
        remarks=(),
        standings=(),
        looked_at=looked_at,
        seed=seed,
    )


def _row(pack: PackRow, entry: Entry) -> BlobRow:
    id_, position, length, size, encoding = entry
    return BlobRow(0, FILES, id_, size, encoding, pack.number, position, length, None)


class _Found:
    """What was found so far."""

    def __init__(self, audit: Audit) -> None:
        self.findings: list[Finding] = []
        self.packs: list[Finding] = []
        self.remarks: list[Finding] = []
        self.ledger = Ledger()
        self.shelf = Shelf()
        if audit.lost:
            sentence = f"{audit.lost} acknowledged commit(s) are gone from the store; what follows is about the rest"
            self.findings.append(Finding(code="lost_commits", kind="store", name="store", sentence=sentence))
        for problem in audit.problems():
            self.findings.append(_database(problem))

    def say_unreadable(self, audit: Audit) -> None:
        if audit.unreadable:
            self.findings.append(_database(f"rows of {', '.join(audit.unreadable)} cannot be read"))


def _how_deep(
    read_data: bool, sample: float | None, seed: int | None
) -> tuple[Depth, Callable[[], bool] | None, int | None]:
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


def _always() -> bool:
    return True


def _trees(ledger: Ledger) -> Iterator[bytes]:
    for known in ledger.checkpoints.values():
        for root in (known.record and known.record.files) or ():
            yield root.tree


def _damaged_states(ledger: Ledger, parts: Parts) -> Iterator[Finding]:
    for known, how in parts.damaged_roots:
        owner, task_id = ledger.owner_and_task(known.row.task)
        yield Finding(
            code="state",
            kind="checkpoint",
            name=known.row.id,
            sentence=f"checkpoint {known.row.id}: {how}",
            owner=owner,
            task_id=task_id,
            uses=(ledger.use(known, "state"),),
        )


def attribute(
    audit: Audit, ledger: Ledger, shelf: Shelf, packs: Sequence[Finding], reader: Reader
) -> Iterator[Finding]:
    """Damaged packs and blobs as findings, with who needs them. What is gone from the catalog by now was collected."""
    present = {row.name for row in audit.packs()}
    drafts = [pack for pack in packs if pack.name in present or "packs" in audit.unreadable]
    culprits = _blame(shelf.damage, drafts)
    uses = find_uses(audit, ledger, reader, culprits)
    blobs: defaultdict[int, list[Key]] = defaultdict(list)
    for key, culprit in culprits.items():
        blobs[culprit].append(key)
    for number, draft in enumerate(drafts):
        keys = blobs.get(number, [])
        if not keys or uses.get(number) or _is_still_there(audit, keys):
            yield _complete(draft, keys, uses.get(number, []))


def _blame(damage: dict[Key, Damage], drafts: list[Finding]) -> dict[Key, int]:
    """Which finding each damaged blob belongs to. Findings of blobs are added to the `drafts`."""
    broken = {draft.name: number for number, draft in enumerate(drafts)}
    culprits: dict[Key, int] = {}
    groups: defaultdict[Damage, list[Key]] = defaultdict(list)
    for key, what in damage.items():
        if what.code == "blob_missing" and what.pack in broken:
            culprits[key] = broken[what.pack]
        else:
            groups[what].append(key)
    for what, keys in groups.items():
        if len(keys) > MAX_SEPARATE:
            culprits |= dict.fromkeys(keys, len(drafts))
            where = f" of the pack {what.pack}" if what.pack else ""
            name = what.pack or f"{len(keys)} blobs"
            sentence = f"{len(keys):,} blobs{where}: each {what.sentence}"
            drafts.append(Finding(code=what.code, kind="blob", name=name, sentence=sentence))
            continue
        for key in keys:
            culprits[key] = len(drafts)
            name = to_text(key[1])
            drafts.append(Finding(code=what.code, kind="blob", name=name, sentence=f"blob {name} {what.sentence}"))
    return culprits


def _is_still_there(audit: Audit, keys: Iterable[Key]) -> bool:
    return any(audit.read(partition, [digest]) for partition, digest in keys)


def _complete(draft: Finding, keys: Iterable[Key], uses: Sequence[Use]) -> Finding:
    import msgspec

    owners = {(use.owner, use.task_id) for use in uses}
    owner, task_id = next(iter(owners)) if len(owners) == 1 else (None, None)
    blobs = tuple(to_text(digest) for _, digest in keys)
    return msgspec.structs.replace(draft, blobs=blobs, uses=tuple(uses), owner=owner, task_id=task_id)


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


def _database(problem: str) -> Finding:
    return Finding(code="database", kind="store", name="database", sentence=f"the database: {problem}")
