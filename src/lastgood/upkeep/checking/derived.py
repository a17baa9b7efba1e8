"""What follows from records, placements and attestations, and is kept beside them only to be found fast."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from lastgood.catalog.upkeep import STORE
from lastgood.model.checkpoint import Attestation
from lastgood.upkeep.checking.ledger import Known, Ledger, Number, decode_attestation

DELETED, PURGED = 1, 2


class Marks(NamedTuple):
    """Columns of a checkpoint that are derived."""

    type: str
    deleted: int
    verified: int
    verified_at: int | None


class BranchFigures(NamedTuple):
    head: int
    version: int
    own: int
    inherited: int


class TaskFigures(NamedTuple):
    last_sequence: int
    last_event: int
    checkpoints: int


class Derived(NamedTuple):
    """Only what can be told; where the ground is damaged, nothing is said."""

    marks: dict[Number, Marks]
    branches: dict[int, BranchFigures]
    tasks: dict[int, TaskFigures]
    keys: dict[tuple[int, str], Number]
    tags: dict[tuple[int, str], Number]


def derive(ledger: Ledger) -> Derived:
    marks: dict[Number, Marks] = {}
    keys: dict[tuple[int, str], Number] = {}
    tags: dict[tuple[int, str], Number] = {}
    for number, known in ledger.checkpoints.items():
        said = attested(ledger, known)
        if said is None:
            marks[number] = Marks(*_stored_marks(known))
        else:
            marks[number] = _marks(known, said)
            tags |= {(known.row.task, name): number for name in _tags(said)}
        if known.record is not None and known.record.key is not None:
            keys[known.row.task, known.record.key] = number
    return Derived(marks, _branches(ledger, marks), _tasks(ledger, marks), keys, tags)


def attested(ledger: Ledger, known: Known) -> list[Attestation] | None:
    """What was said of a checkpoint, in order; None if any of it cannot be believed."""
    found: list[Attestation] = []
    for row in sorted(ledger.attestations.get(known.number, ()), key=lambda row: row.number):
        said = decode_attestation(row)
        if said is None or said.digest(known.checksum) != row.digest or row.number != len(found) + 1:
            return None
        found.append(said)
    return None if "attestations" in ledger.unreadable else found


def _stored_marks(known: Known) -> tuple[str, int, int, int | None]:
    row = known.row
    return row.type, row.deleted, row.verified, row.verified_at


def _marks(known: Known, said: list[Attestation]) -> Marks:
    type_ = known.record.type if known.record else known.row.type
    if known.purged:
        return Marks(type_, PURGED, 0, None)
    deletion = next((one.kind for one in reversed(said) if one.kind in ("deleted", "undeleted")), None)
    verification = next((one for one in reversed(said) if one.kind == "verification"), None)
    verified = int(verification is not None and bool(verification.data.get("verified")))
    at = None if verification is None else verification.at
    return Marks(type_, DELETED if deletion == "deleted" else 0, verified, at)


def _tags(said: list[Attestation]) -> set[str]:
    names: set[str] = set()
    for one in said:
        if one.kind == "tag":
            names.add(str(one.data.get("name")))
        elif one.kind == "untag":
            names.discard(str(one.data.get("name")))
    return names


def _branches(ledger: Ledger, marks: dict[Number, Marks]) -> dict[int, BranchFigures]:
    own: defaultdict[int, list[Number]] = defaultdict(list)
    for number, known in sorted(ledger.checkpoints.items()):
        own[known.row.branch].append(number)
    found: dict[int, BranchFigures] = {}
    # A branch comes after its origin: their numbers only grow.
    for branch in sorted(ledger.branches.values()):
        mine = [number for number in own[branch.number] if number[0] == branch.task]
        if not mine:
            continue
        newest = ledger.checkpoints[mine[-1]].row
        inherited = 0
        if branch.origin_branch is not None:
            above = found.get(branch.origin_branch)
            if above is None:
                continue
            before = [number for number in own[branch.origin_branch] if number[1] <= branch.origin]
            inherited = above.inherited + sum(marks[number].deleted == 0 for number in before)
        living = sum(marks[number].deleted == 0 for number in mine)
        found[branch.number] = BranchFigures(newest.sequence, newest.version, living, inherited)
    return found


def _tasks(ledger: Ledger, marks: dict[Number, Marks]) -> dict[int, TaskFigures]:
    found = {}
    newest: defaultdict[int, int] = defaultdict(int)
    events: defaultdict[int, int] = defaultdict(int)
    living: defaultdict[int, int] = defaultdict(int)
    for (task, sequence), known in ledger.checkpoints.items():
        newest[task] = max(newest[task], sequence)
        events[task] = max(events[task], known.row.last_event)
        living[task] += marks[task, sequence].deleted == 0
    for task in ledger.tasks:
        last = max(events[task], max(ledger.events.get(task, ()), default=0))
        if task == STORE:  # its sequence counts commits, and nothing else tells how many there were
            found[task] = TaskFigures(ledger.tasks[task].last_sequence, last, 0)
        else:
            found[task] = TaskFigures(newest[task], last, living[task])
    return found
