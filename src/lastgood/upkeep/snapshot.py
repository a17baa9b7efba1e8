"""A snapshot of what a catalog holds beside content: its rows, as far as digests prove them, and what is derived.

Counters, marks, keys and tags follow from records, placements and attestations. They are kept to be found fast.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cached_property
from typing import Literal, NamedTuple

import msgspec

from lastgood.catalog.upkeep import (
    STORE,
    AttestationRow,
    Audit,
    CheckpointRow,
    NameRow,
)
from lastgood.catalog.values import Blob
from lastgood.errors import IntegrityError
from lastgood.model.checkpoint import Attestation, Placement, Record, decode_plain, decode_record
from lastgood.model.identity import digest
from lastgood.upkeep.report import Use

Number = tuple[int, int]
"""A checkpoint's task and sequence."""
NameCode = Literal["key", "tag"]


class CheckpointMarks(NamedTuple):
    """A checkpoint's derived columns."""

    type: str
    deleted: int
    verified: int
    verified_at: int | None


class KnownCheckpoint(msgspec.Struct):
    """A checkpoint's row without its bytes, and its record if that can be trusted.

    `checksum` is the one that its record has, where the placement's digest says so, else the row's. `purged`: of such
    a one only the tombstone is left. `damage`: what is wrong with the record, in words.
    """

    row: CheckpointRow
    record: Record | None
    checksum: bytes
    purged: bool
    damage: str | None = None

    @property
    def number(self) -> Number:
        return self.row.task, self.row.sequence

    @property
    def marks(self) -> CheckpointMarks:
        """The derived columns as they are stored."""
        return CheckpointMarks(self.row.type, self.row.deleted, self.row.verified, self.row.verified_at)


class CatalogSnapshot:
    """A catalog's rows, by number. `creations`: the numbers in the log that belong to checkpoints, by task."""

    def __init__(self, audit: Audit, each: Callable[[KnownCheckpoint, CheckpointRow], None] | None = None) -> None:
        """Read all rows. `each` is called with every checkpoint and the bytes of its row, which are not kept."""
        self.tasks = {row.number: row for row in audit.tasks()}
        self.branches = {row.number: row for row in audit.branches()}
        self.checkpoints: dict[Number, KnownCheckpoint] = {}
        self.creations: defaultdict[int, set[int]] = defaultdict(set)
        for row in audit.checkpoints():
            known = self.assess(row)
            self.checkpoints[known.number] = known
            if not known.purged:  # of a purged one the log has it
                self.creations[row.task].add(row.last_event)
            if each is not None:
                each(known, row)
        self.attestations: defaultdict[Number, list[AttestationRow]] = defaultdict(list)
        for said in audit.attestations():
            self.attestations[said.task, said.sequence].append(said)
        self.events: defaultdict[int, set[int]] = defaultdict(set)
        for task, sequence in audit.events():
            self.events[task].add(sequence)
        self.names: dict[NameCode, list[NameRow]] = {"key": list(audit.keys()), "tag": list(audit.tags())}
        self.moves, self.workspaces = list(audit.moves()), list(audit.workspaces())
        self.journals, self.steps = list(audit.journals()), list(audit.steps())
        self.unreadable = frozenset(audit.unreadable)

    def owner_and_task(self, task: int) -> tuple[str, str]:
        row = self.tasks.get(task)
        return (row.owner, row.id) if row else ("", f"number {task}")

    def assess(self, row: CheckpointRow) -> KnownCheckpoint:
        """Return a checkpoint with as much of its row as digests prove."""
        slim = row._replace(record=None, root=None)
        if row.record is None:
            return KnownCheckpoint(slim, None, row.checksum, purged=True)
        checksum, damage = row.checksum, None
        if (actual := digest(row.record)) != checksum:
            damage = "its record does not match its checksum"
            if self.placement(row).digest(actual) != row.placement:
                return KnownCheckpoint(slim, None, checksum, purged=False, damage=damage)
            checksum = actual
        try:
            record = decode_record(row.record, checksum, "it")
        except IntegrityError:
            return KnownCheckpoint(slim, None, checksum, purged=False, damage="its record cannot be read")
        if (record.id, record.task_id) != (row.id, self.owner_and_task(row.task)[1]) and row.task in self.tasks:
            return KnownCheckpoint(
                slim, None, checksum, purged=False, damage="its record is that of another checkpoint"
            )
        return KnownCheckpoint(slim, record, checksum, purged=False, damage=damage)

    def use(self, known: KnownCheckpoint, *parts: str) -> Use:
        owner, task_id = self.owner_and_task(known.row.task)
        return Use(owner, task_id, known.row.sequence, known.row.id, parts)

    @cached_property
    def incomplete(self) -> set[int]:
        """The tasks of which a checkpoint is gone or misplaced: their figures do not follow from what is left."""
        count = Counter(task for task, _ in self.checkpoints)
        gone = {row.number for row in self.tasks.values() if row.number and count[row.number] < row.last_sequence}
        return gone | {known.row.task for known in self.checkpoints.values() if not self.is_in_place(known)}

    def is_in_place(self, known: KnownCheckpoint) -> bool:
        return self.placement(known.row).digest(known.checksum) == known.row.placement

    def placement(self, row: CheckpointRow) -> Placement:
        branch = self.branches.get(row.branch)
        return Placement(branch.id if branch else "", row.sequence, row.version, row.last_event)


def state_root(row: CheckpointRow) -> Blob | None:
    """Return the root of a checkpoint's state, which lies in its row."""
    if row.root is None or row.root_size is None or row.encoding is None:
        return None
    return Blob(b"", row.root_size, row.encoding, row.root)


def decode_attestation(row: AttestationRow) -> Attestation | None:
    try:
        return Attestation(row.number, row.kind, row.at, row.actor, decode_plain(row.data))
    except IntegrityError:
        return None


# --- what follows from it -----------------------------------------------------------------------------------------

DELETED, PURGED = 1, 2


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
    """A catalog's derived values; where what they follow from is damaged, there are none."""

    marks: dict[Number, CheckpointMarks]
    branches: dict[int, BranchFigures]
    tasks: dict[int, TaskFigures]
    names: dict[NameCode, dict[tuple[int, str], Number]]


def derive(snapshot: CatalogSnapshot) -> Derived:
    """Derive counters, marks, keys and tags from records, placements and attestations."""
    marks: dict[Number, CheckpointMarks] = {}
    keys: dict[tuple[int, str], Number] = {}
    tags: dict[tuple[int, str], Number] = {}
    for number, known in snapshot.checkpoints.items():
        said = read_attestations(snapshot, known)
        if said is None:
            marks[number] = known.marks
        else:
            marks[number] = _marks(known, said)
            tags |= {(known.row.task, name): number for name in _tags(said)}
        if known.record is not None and known.record.key is not None:
            keys[known.row.task, known.record.key] = number
    return Derived(marks, _branches(snapshot, marks), _tasks(snapshot, marks), {"key": keys, "tag": tags})


def read_attestations(snapshot: CatalogSnapshot, known: KnownCheckpoint) -> list[Attestation] | None:
    """Return the attestations of a checkpoint, in order; None if any of them cannot be trusted."""
    found: list[Attestation] = []
    for row in sorted(snapshot.attestations.get(known.number, ()), key=lambda row: row.number):
        said = decode_attestation(row)
        if said is None or said.digest(known.checksum) != row.digest or row.number != len(found) + 1:
            return None
        found.append(said)
    return None if "attestations" in snapshot.unreadable else found


def _marks(known: KnownCheckpoint, said: list[Attestation]) -> CheckpointMarks:
    type_ = known.record.type if known.record else known.row.type
    if known.purged:
        return CheckpointMarks(type_, PURGED, 0, None)
    deletion = next((one.kind for one in reversed(said) if one.kind in ("deleted", "undeleted")), None)
    verification = next((one for one in reversed(said) if one.kind == "verification"), None)
    verified = int(verification is not None and bool(verification.data.get("verified")))
    at = None if verification is None else verification.at_us
    return CheckpointMarks(type_, DELETED if deletion == "deleted" else 0, verified, at)


def _tags(said: list[Attestation]) -> set[str]:
    names: set[str] = set()
    for one in said:
        if one.kind == "tag":
            names.add(str(one.data.get("name")))
        elif one.kind == "untag":
            names.discard(str(one.data.get("name")))
    return names


def _branches(snapshot: CatalogSnapshot, marks: dict[Number, CheckpointMarks]) -> dict[int, BranchFigures]:
    own: defaultdict[int, list[Number]] = defaultdict(list)
    for number, known in sorted(snapshot.checkpoints.items()):
        own[known.row.branch].append(number)
    found: dict[int, BranchFigures] = {}
    # A branch comes after its origin: their numbers only grow.
    for branch in sorted(snapshot.branches.values()):
        mine = [number for number in own[branch.number] if number[0] == branch.task]
        if not mine:
            continue
        newest = snapshot.checkpoints[mine[-1]].row
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


def _tasks(snapshot: CatalogSnapshot, marks: dict[Number, CheckpointMarks]) -> dict[int, TaskFigures]:
    found = {}
    newest: defaultdict[int, int] = defaultdict(int)
    events: defaultdict[int, int] = defaultdict(int)
    living: defaultdict[int, int] = defaultdict(int)
    for (task, sequence), known in snapshot.checkpoints.items():
        newest[task] = max(newest[task], sequence)
        events[task] = max(events[task], known.row.last_event)
        living[task] += marks[task, sequence].deleted == 0
    for task in snapshot.tasks:
        last = max(events[task], max(snapshot.events.get(task, ()), default=0))
        if task == STORE:  # its sequence counts commits, and nothing else tells how many there were
            found[task] = TaskFigures(snapshot.tasks[task].last_sequence, last, 0)
        else:
            found[task] = TaskFigures(newest[task], last, living[task])
    return found
