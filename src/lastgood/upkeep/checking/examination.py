"""Looking at everything once: what is wrong, before anybody asks who needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from lastgood.catalog.contract import Catalog
from lastgood.catalog.upkeep import Audit
from lastgood.upkeep.checking.books import examine_books
from lastgood.upkeep.checking.derived import derive
from lastgood.upkeep.checking.ledger import Ledger, read_ledger
from lastgood.upkeep.checking.lineage import examine_lineage
from lastgood.upkeep.checking.packs import Examined, examine_packs, find_unmentioned
from lastgood.upkeep.checking.parts import Parts
from lastgood.upkeep.checking.reading import Progress, read_packs
from lastgood.upkeep.checking.report import Depth, Finding, LookedAt
from lastgood.upkeep.checking.shelf import Reader, Shelf, read_shelf
from lastgood.upkeep.checking.trees import walk_trees

if TYPE_CHECKING:
    from lastgood.objects.contract import ObjectStore

Pick = Callable[[], bool]
"""Says of one blob after the other whether it is read."""


class Examination:
    """What was found. `findings` are about checkpoints and books; `packs` about packs; of blobs the shelf tells."""

    def __init__(self, audit: Audit) -> None:
        self.looked_at = LookedAt()
        self.findings: list[Finding] = []
        self.packs: list[Finding] = []
        self.remarks: list[Finding] = []
        self.ledger = Ledger()
        self.shelf = Shelf()
        self.lost = audit.lost
        if audit.lost:
            sentence = f"{audit.lost} acknowledged commit(s) are gone from the store; what follows is about the rest"
            self.findings.append(Finding(code="lost_commits", kind="store", name="store", sentence=sentence))
        self.findings += map(database_finding, audit.problems())


def examine(
    catalog: Catalog, objects: ObjectStore | None, depth: Depth, pick: Pick | None, progress: Progress | None
) -> Examination:
    """Changes nothing. With `pick` those blobs are read that it says yes to."""
    with catalog.audit() as audit:
        found = Examination(audit)
        looked_at, parts = found.looked_at, Parts()
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
        if audit.unreadable:
            found.findings.append(database_finding(f"rows of {', '.join(audit.unreadable)} cannot be read"))
    if objects is not None:  # objects never change: the snapshot is not held while they are read
        if depth != "structure":
            found.packs += read_packs(objects, shelf, examined, looked_at, pick, progress)
        found.remarks += find_unmentioned(objects, shelf)
    return found


def database_finding(problem: str) -> Finding:
    return Finding(code="database", kind="store", name="database", sentence=f"the database: {problem}")


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
