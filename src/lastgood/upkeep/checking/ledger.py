"""All that a catalog says but content: read once, kept by number, believed as far as digests go."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cached_property

import msgspec

from lastgood.catalog.upkeep import (
    STORE,
    AttestationRow,
    Audit,
    BranchRow,
    CheckpointRow,
    JournalRow,
    MoveRow,
    NameRow,
    StepRow,
    TaskRow,
    WorkspaceRow,
)
from lastgood.errors import IntegrityError
from lastgood.model.checkpoint import Attestation, Placement, Record, decode_plain, decode_record
from lastgood.model.digest import digest
from lastgood.upkeep.checking.report import LookedAt, Use

Number = tuple[int, int]
"""A checkpoint: its task and sequence."""


class Known(msgspec.Struct):
    """A checkpoint's row without its bytes, and its record if that can be believed.

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


class Ledger:
    def __init__(self) -> None:
        self.tasks: dict[int, TaskRow] = {}
        self.branches: dict[int, BranchRow] = {}
        self.checkpoints: dict[Number, Known] = {}
        self.attestations: defaultdict[Number, list[AttestationRow]] = defaultdict(list)
        self.events: defaultdict[int, set[int]] = defaultdict(set)
        self.creations: defaultdict[int, set[int]] = defaultdict(set)
        self.keys: list[NameRow] = []
        self.tags: list[NameRow] = []
        self.moves: list[MoveRow] = []
        self.workspaces: list[WorkspaceRow] = []
        self.journals: list[JournalRow] = []
        self.steps: list[StepRow] = []
        self.unreadable: frozenset[str] = frozenset()

    def owner_and_task(self, task: int) -> tuple[str, str]:
        row = self.tasks.get(task)
        return (row.owner, row.id) if row else ("", f"number {task}")

    def use(self, known: Known, *parts: str) -> Use:
        owner, task_id = self.owner_and_task(known.row.task)
        return Use(owner, task_id, known.row.sequence, known.row.id, parts)

    @cached_property
    def holed(self) -> set[int]:
        """Tasks of which a checkpoint is gone or misplaced: their figures cannot be told from what is left."""
        count = Counter(task for task, _ in self.checkpoints)
        gone = {row.number for row in self.tasks.values() if row.number and count[row.number] < row.last_sequence}
        return gone | {known.row.task for known in self.checkpoints.values() if not self.is_in_place(known)}

    def is_in_place(self, known: Known) -> bool:
        return self.placement(known.row).digest(known.checksum) == known.row.placement

    def placement(self, row: CheckpointRow) -> Placement:
        branch = self.branches.get(row.branch)
        return Placement(branch.id if branch else "", row.sequence, row.version, row.last_event)


def read_ledger(audit: Audit, looked_at: LookedAt, each: Callable[[Known, CheckpointRow], None]) -> Ledger:
    """`each` is given every checkpoint with the bytes of its row, which are not kept."""
    ledger = Ledger()
    ledger.tasks = {row.number: row for row in audit.tasks()}
    ledger.branches = {row.number: row for row in audit.branches()}
    for row in audit.checkpoints():
        known = know(ledger, row)
        ledger.checkpoints[known.number] = known
        if not known.purged:  # of a purged one the log has it
            ledger.creations[row.task].add(row.last_event)
        each(known, row)
    for said in audit.attestations():
        ledger.attestations[said.task, said.sequence].append(said)
    for task, sequence in audit.events():
        ledger.events[task].add(sequence)
    ledger.keys, ledger.tags, ledger.moves = list(audit.keys()), list(audit.tags()), list(audit.moves())
    ledger.workspaces, ledger.journals = list(audit.workspaces()), list(audit.journals())
    ledger.steps = list(audit.steps())
    ledger.unreadable = frozenset(audit.unreadable)
    looked_at.tasks = len(ledger.tasks) - (STORE in ledger.tasks)
    looked_at.branches, looked_at.checkpoints = len(ledger.branches), len(ledger.checkpoints)
    looked_at.attestations = sum(map(len, ledger.attestations.values()))
    looked_at.events = sum(map(len, ledger.events.values()))
    return ledger


def decode_attestation(row: AttestationRow) -> Attestation | None:
    try:
        return Attestation(row.number, row.kind, row.at, row.actor, decode_plain(row.data))
    except IntegrityError:
        return None


def know(ledger: Ledger, row: CheckpointRow) -> Known:
    """How far a checkpoint's row can be believed."""
    slim = row._replace(record=None, root=None)
    if row.record is None:
        return Known(slim, None, row.checksum, purged=True)
    checksum, damage = row.checksum, None
    if (actual := digest(row.record)) != checksum:
        damage = "its record does not match its checksum"
        if ledger.placement(row).digest(actual) != row.placement:
            return Known(slim, None, checksum, purged=False, damage=damage)
        checksum = actual
    try:
        record = decode_record(row.record, checksum, "it")
    except IntegrityError:
        return Known(slim, None, checksum, purged=False, damage="its record cannot be read")
    if (record.id, record.task_id) != (row.id, ledger.owner_and_task(row.task)[1]) and row.task in ledger.tasks:
        return Known(slim, None, checksum, purged=False, damage="its record is that of another checkpoint")
    return Known(slim, record, checksum, purged=False, damage=damage)
