"""Counters, marks, keys, tags and moves, brought back to what follows from records and attestations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from lastgood.catalog.upkeep import STORE, NameFix
from lastgood.codec.compress import decompress
from lastgood.errors import IntegrityError
from lastgood.model.journal import decode_journal
from lastgood.model.step import decode_step
from lastgood.upkeep.checking.books import lost_moves, lost_workspaces, wrong_names
from lastgood.upkeep.checking.derived import Derived
from lastgood.upkeep.checking.ledger import Ledger


def plan_books(ledger: Ledger, derived: Derived) -> dict[str, Any]:
    """Fields of a Mending. Where checkpoints of a task are gone, its figures are left alone: nothing tells them."""
    plan: dict[str, Any] = {
        "checksums": [
            (*known.number, known.checksum)
            for known in ledger.checkpoints.values()
            if known.record is not None and known.checksum != known.row.checksum
        ],
        "marks": [(*number, *marks) for number, marks in derived.marks.items() if marks != _marks(ledger, number)],
        "branches": list(_branches(ledger, derived)),
        "tasks": list(_tasks(ledger, derived)),
        "active": list(_active(ledger)),
        "moves": [(move.task, move.number) for move in lost_moves(ledger)],
        "workspaces": [(row.task, row.host, row.path) for row in lost_workspaces(ledger)],
        "steps": list(_unreadable_steps(ledger)),
        "journals": list(_unreadable_journals(ledger)),
    }
    for code, rows, expected in (("key", ledger.keys, derived.keys), ("tag", ledger.tags, derived.tags)):
        wrong = wrong_names(ledger, "key" if code == "key" else "tag", rows, expected)
        plan[f"{code}s"] = [NameFix(*at, None if number is None else number[1]) for at, number in wrong]
    return plan


def _marks(ledger: Ledger, number: tuple[int, int]) -> tuple[str, int, int, int | None]:
    row = ledger.checkpoints[number].row
    return row.type, row.deleted, row.verified, row.verified_at


def _branches(ledger: Ledger, derived: Derived) -> Iterator[tuple[int, int, int, int, int]]:
    for number, figures in derived.branches.items():
        row = ledger.branches[number]
        if row.task not in ledger.holed and (row.head, row.version, row.own, row.inherited) != figures:
            yield number, *figures


def _tasks(ledger: Ledger, derived: Derived) -> Iterator[tuple[int, int, int, int]]:
    """The log is never made shorter: a number that is taken is not given again."""
    for row in ledger.tasks.values():
        figures = derived.tasks[row.number]
        last_event = max(row.last_event, figures.last_event)
        stored = row.last_sequence, row.last_event, row.checkpoints
        if row.number not in ledger.holed and stored != (figures.last_sequence, last_event, figures.checkpoints):
            yield row.number, figures.last_sequence, last_event, figures.checkpoints


def _active(ledger: Ledger) -> Iterator[tuple[int, int]]:
    """A task whose active branch is not there goes on with the branch that was advanced last."""
    for task in ledger.tasks.values():
        mine = [row for row in ledger.branches.values() if row.task == task.number and not row.deleted]
        if task.number != STORE and mine and task.active_branch not in {row.number for row in mine}:
            yield task.number, max(mine, key=lambda row: row.head).number


def _unreadable_steps(ledger: Ledger) -> Iterator[tuple[str, str]]:
    for step in ledger.steps:
        try:
            decode_step(step.data)
            if step.snapshot is not None:
                decompress(step.encoding or 0, step.snapshot, step.size or 0)
        except (msgspec.DecodeError, IntegrityError):
            yield step.owner, step.id


def _unreadable_journals(ledger: Ledger) -> Iterator[str]:
    for journal in ledger.journals:
        try:
            decode_journal(journal.data)
        except msgspec.DecodeError:
            yield journal.id
