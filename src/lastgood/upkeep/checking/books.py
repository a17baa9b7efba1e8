"""Whether the books agree: counters, marks, names, moves and the log, against what they are derived from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from lastgood.catalog.upkeep import STORE, MoveRow, NameRow, TaskRow, WorkspaceRow
from lastgood.codec.compress import decompress
from lastgood.errors import IntegrityError
from lastgood.model.journal import decode_journal
from lastgood.model.step import decode_step
from lastgood.upkeep.checking.derived import Derived, Marks, attested
from lastgood.upkeep.checking.ledger import Ledger, Number
from lastgood.upkeep.checking.report import Code, Finding, Kind

NameCode = Literal["key", "tag"]


def examine_books(ledger: Ledger, derived: Derived) -> Iterator[Finding]:
    for task in ledger.tasks.values():
        yield from _examine_task(ledger, derived, task)
    yield from _examine_branches(ledger, derived)
    for number, marks in derived.marks.items():
        yield from _examine_marks(ledger, number, marks)
    yield from _examine_names(ledger, "key", ledger.keys, derived.keys)
    yield from _examine_names(ledger, "tag", ledger.tags, derived.tags)
    yield from _examine_moves(ledger)
    yield from _examine_orphans(ledger)
    for journal in ledger.journals:
        try:
            decode_journal(journal.data)
        except msgspec.DecodeError:
            sentence = f"what is known of the interrupted restore {journal.id} cannot be read"
            yield _finding("journal", "journal", journal.id, sentence, journal.owner, journal.task_id)
    for step in ledger.steps:
        try:
            decode_step(step.data)
            if step.snapshot is not None:
                decompress(step.encoding or 0, step.snapshot, step.size or 0)
        except (msgspec.DecodeError, IntegrityError):
            sentence = f"what is known of the open step {step.id!r} cannot be read"
            yield _finding("step", "step", step.id, sentence, step.owner, step.task_id)


def _examine_task(ledger: Ledger, derived: Derived, task: TaskRow) -> Iterator[Finding]:
    has_holes = task.number in ledger.holed
    figures = derived.tasks[task.number]
    stored = (task.last_sequence, task.last_event, task.checkpoints)
    names = ("last_sequence", "last_event", "checkpoints")
    for name, is_, should in zip(names, stored, figures, strict=True):
        if is_ != should and not (has_holes or (name == "last_event" and is_ > should)):
            yield _counter(task.owner, task.id, "task", task.id or "store", name, is_, should)
    if task.number != STORE:
        active = ledger.branches.get(task.active_branch)
        is_there = active is not None and active.task == task.number and not active.deleted
        if not is_there and "branches" not in ledger.unreadable:
            sentence = f"the active branch of {task.id!r} is not there"
            yield _finding("task", "task", task.id, sentence, task.owner, task.id)
    if not has_holes and not {"events", "checkpoints"} & ledger.unreadable:
        yield from _examine_log(ledger, task)


def _examine_log(ledger: Ledger, task: TaskRow) -> Iterator[Finding]:
    """Numbers of the log are dense: each is an event's, or that of a checkpoint that tells how it was made."""
    told = ledger.creations.get(task.number, set()) | ledger.events.get(task.number, set())
    gone = sorted(set(range(1, task.last_event + 1)) - told)
    if gone:
        shown = ", ".join(map(str, gone[:10])) + (" …" if len(gone) > 10 else "")
        whose = f"the log of {task.id!r}" if task.number != STORE else "the store's own log"
        sentence = f"{whose} has lost {len(gone):,} of its entries: {shown}"
        yield _finding("event", "task", task.id or "store", sentence, task.owner, task.id)


def _examine_branches(ledger: Ledger, derived: Derived) -> Iterator[Finding]:
    for branch in ledger.branches.values():
        owner, task_id = ledger.owner_and_task(branch.task)
        figures = derived.branches.get(branch.number)
        if figures is not None and branch.task not in ledger.holed:
            stored = (branch.head, branch.version, branch.own, branch.inherited)
            for name, is_, should in zip(figures._fields, stored, figures, strict=True):
                if is_ != should:
                    yield _counter(owner, task_id, "branch", branch.id, name, is_, should)
        if branch.origin_branch is None or branch.task in ledger.holed:
            continue
        origin = ledger.checkpoints.get((branch.task, branch.origin))
        if origin is None or (origin.row.branch, origin.row.id) != (branch.origin_branch, branch.origin_id):
            sentence = f"the branch {branch.name!r} of {task_id!r} does not begin where it says"
            yield _finding("branch", "branch", branch.id, sentence, owner, task_id)


def _examine_marks(ledger: Ledger, number: Number, marks: Marks) -> Iterator[Finding]:
    known = ledger.checkpoints[number]
    stored = (known.row.type, known.row.deleted, known.row.verified, known.row.verified_at)
    wrong = [name for name, is_, should in zip(marks._fields, stored, marks, strict=True) if is_ != should]
    if wrong:
        owner, task_id = ledger.owner_and_task(known.row.task)
        what = " and ".join(repr(name) for name in wrong)
        sentence = f"checkpoint {known.row.id} is listed with a wrong {what}; what was said of it is whole"
        yield _finding("derived", "checkpoint", known.row.id, sentence, owner, task_id)


def _examine_names(
    ledger: Ledger, code: NameCode, rows: list[NameRow], expected: dict[tuple[int, str], Number]
) -> Iterator[Finding]:
    for at, number in wrong_names(ledger, code, rows, expected):
        known = None if number is None else ledger.checkpoints[number]
        how = f"does not lead to checkpoint {known.row.id}" if known else "leads to a checkpoint that does not have it"
        owner, task_id = ledger.owner_and_task(at[0])
        yield _finding(code, "task", at[1], f"the {code} {at[1]!r} of {task_id!r} {how}", owner, task_id)


def wrong_names(
    ledger: Ledger, code: NameCode, rows: list[NameRow], expected: dict[tuple[int, str], Number]
) -> Iterator[tuple[tuple[int, str], Number | None]]:
    """Keys and tags that lead elsewhere than they should, and where that is; None: they should not be.

    Keys are in records, tags in attestations; where these are damaged, the row is all there is.
    """
    stored = {(row.task, row.name): (row.owner_task, row.sequence) for row in rows}
    for at, number in expected.items():
        if stored.get(at) != number and f"{code}s" not in ledger.unreadable:
            yield at, number
    for at, number in stored.items():
        known = ledger.checkpoints.get(number)
        if at in expected or (known is None and at[0] in ledger.holed):
            continue
        if known is None or known.purged or _is_ground_whole(ledger, code, number):
            yield at, None


def _is_ground_whole(ledger: Ledger, code: NameCode, number: Number) -> bool:
    known = ledger.checkpoints[number]
    return known.record is not None if code == "key" else attested(ledger, known) is not None


def _examine_moves(ledger: Ledger) -> Iterator[Finding]:
    for move in lost_moves(ledger):
        owner, task_id = ledger.owner_and_task(move.task)
        sentence = f"move {move.number} of {task_id!r} leads to what is not there; undo cannot go along it"
        yield _finding("move", "task", f"{task_id} {move.number}", sentence, owner, task_id)
    for workspace in lost_workspaces(ledger):
        owner, task_id = ledger.owner_and_task(workspace.task)
        sentence = f"the files in {workspace.path} are said to be those of a branch that is not there"
        yield _finding("workspace", "task", workspace.path, sentence, owner, task_id)


def lost_moves(ledger: Ledger) -> Iterator[MoveRow]:
    """Those that lead to a branch or a checkpoint that is not there; none where that cannot be told."""
    for move in ledger.moves if "branches" not in ledger.unreadable else ():
        ends = [ledger.branches.get(number) for number in (move.from_branch, move.to_branch)]
        files = [number for number in (move.before, move.after) if number is not None]
        is_lost = any(number not in ledger.checkpoints for number in files) and "checkpoints" not in ledger.unreadable
        if is_lost or any(end is None or end.task != move.task for end in ends):
            yield move


def lost_workspaces(ledger: Ledger) -> Iterator[WorkspaceRow]:
    for workspace in ledger.workspaces if "branches" not in ledger.unreadable else ():
        branch = ledger.branches.get(workspace.branch)
        if branch is None or branch.task != workspace.task:
            yield workspace


def _examine_orphans(ledger: Ledger) -> Iterator[Finding]:
    if not {"tasks", "branches"} & ledger.unreadable:
        tasks = {number[0] for number in ledger.checkpoints} | {row.task for row in ledger.branches.values()}
        for task in sorted((tasks | set(ledger.events)) - set(ledger.tasks)):
            yield _finding("task", "task", f"number {task}", f"task number {task} is gone, and its checkpoints are not")
        for branch, task in sorted({(known.row.branch, known.row.task) for known in ledger.checkpoints.values()}):
            row = ledger.branches.get(branch)
            if row is None or row.task != task:
                owner, task_id = ledger.owner_and_task(task)
                sentence = f"branch number {branch} of {task_id!r} is gone, and its checkpoints are not"
                yield _finding("branch", "branch", f"number {branch}", sentence, owner, task_id)
    if "checkpoints" not in ledger.unreadable:
        said_of = {number[0] for number in ledger.attestations if number not in ledger.checkpoints}
        for task in sorted(said_of - ledger.holed):
            owner, task_id = ledger.owner_and_task(task)
            sentence = f"something was said of checkpoints of {task_id!r} that are not there"
            yield _finding("attestation", "task", task_id, sentence, owner, task_id)


def _counter(owner: str, task_id: str, kind: Kind, name: str, what: str, is_: int, should: int) -> Finding:
    sentence = f"the {kind} {name!r} has {what} {is_}; by its checkpoints it is {should}"
    return _finding("counter", kind, name, sentence, owner, task_id)


def _finding(
    code: Code, kind: Kind, name: str, sentence: str, owner: str | None = None, task_id: str | None = None
) -> Finding:
    return Finding(code=code, kind=kind, name=name, sentence=sentence, owner=owner or None, task_id=task_id or None)
