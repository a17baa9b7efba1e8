"""Whether a catalog agrees with itself: checkpoints one by one, and all that is derived from them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lastgood.catalog.upkeep import STORE, JournalRow, MoveRow, StepRow, TaskRow, WorkspaceRow
from lastgood.codec.compress import decompress
from lastgood.errors import IntegrityError
from lastgood.model.task import decode_journal, decode_step
from lastgood.upkeep.report import Code, Finding, Kind, Use
from lastgood.upkeep.snapshot import (
    CatalogSnapshot,
    CheckpointMarks,
    Derived,
    KnownCheckpoint,
    NameCode,
    Number,
    decode_attestation,
    read_attestations,
)

MAX_NAMED = 1000
"""So many checkpoints that are gone are findings of their own; more of them are one finding."""


def check_lineage(snapshot: CatalogSnapshot) -> Iterator[Finding]:
    """Check checkpoints one by one: record, place, parent, attestations, and whether one is gone."""
    yield from _check_missing(snapshot)
    by_id = {(known.row.owner, known.row.id): known for known in snapshot.checkpoints.values()}
    for known in snapshot.checkpoints.values():
        if known.damage is not None:
            yield checkpoint_finding(snapshot, known, "record", known.damage)
        if not snapshot.is_in_place(known):
            yield checkpoint_finding(
                snapshot, known, "placement", "its place (branch, sequence) does not match its digest"
            )
        record = known.record
        if record is not None and record.parent_id is not None:
            parent = by_id.get((known.row.owner, record.parent_id))
            if parent is None:
                if not _may_be_unread(snapshot, known):
                    yield checkpoint_finding(snapshot, known, "parent", "its parent is gone without a tombstone")
            elif parent.checksum != record.parent_checksum:
                yield checkpoint_finding(snapshot, known, "parent", "its parent is not the one it was made from")
        yield from _check_attestations(snapshot, known)


def _may_be_unread(snapshot: CatalogSnapshot, known: KnownCheckpoint) -> bool:
    """Return whether the parent may be one of the missing, which have findings of their own."""
    return any((known.row.task, sequence) not in snapshot.checkpoints for sequence in range(1, known.row.sequence))


def _check_missing(snapshot: CatalogSnapshot) -> Iterator[Finding]:
    for task in snapshot.tasks.values():
        if task.number == STORE:
            continue
        gone = [n for n in range(1, task.last_sequence + 1) if (task.number, n) not in snapshot.checkpoints]
        why = "cannot be read" if "checkpoints" in snapshot.unreadable else "is gone without a tombstone"
        if len(gone) > MAX_NAMED:
            uses = (Use(task.owner, task.id, sequence, None) for sequence in gone)
            sentence = f"{len(gone):,} checkpoints of {task.id!r} are gone or cannot be read"
            name = f"@{gone[0]} to @{gone[-1]}"
            yield _finding("missing", "checkpoint", name, sentence, task.owner, task.id, *uses)
            continue
        for sequence in gone:
            sentence = f"checkpoint @{sequence} of {task.id!r} {why}"
            use = Use(task.owner, task.id, sequence, None)
            yield _finding("missing", "checkpoint", f"@{sequence}", sentence, task.owner, task.id, use)


def _check_attestations(snapshot: CatalogSnapshot, known: KnownCheckpoint) -> Iterator[Finding]:
    wrong: list[str] = []
    rows = sorted(snapshot.attestations.get(known.number, ()), key=lambda row: row.number)
    for row in rows:
        said = decode_attestation(row)
        if said is None:
            wrong.append(f"attestation {row.number} ({row.kind}) cannot be read")
        elif said.digest(known.checksum) != row.digest:
            wrong.append(f"attestation {row.number} ({row.kind}) does not match its digest")
    if [row.number for row in rows] != list(range(1, len(rows) + 1)):
        wrong.append("an attestation is gone")
    for sentence in wrong:
        yield checkpoint_finding(snapshot, known, "attestation", sentence)


def checkpoint_finding(
    snapshot: CatalogSnapshot, known: KnownCheckpoint, code: Code, problem: str, *parts: str
) -> Finding:
    """Make a finding about one checkpoint, or about a part of it."""
    use, sentence = snapshot.use(known, *parts), f"checkpoint {known.row.id}: {problem}"
    return _finding(code, "checkpoint", known.row.id, sentence, use.owner, use.task_id, use)


# --- what is derived ----------------------------------------------------------------------------------------------


def check_derived(snapshot: CatalogSnapshot, derived: Derived) -> Iterator[Finding]:
    """Check counters, marks, names, moves and the log against what they are derived from."""
    for task in snapshot.tasks.values():
        yield from _check_task(snapshot, derived, task)
    yield from _check_branches(snapshot, derived)
    for number, marks in derived.marks.items():
        yield from _check_marks(snapshot, number, marks)
    yield from _check_names(snapshot, derived, "key")
    yield from _check_names(snapshot, derived, "tag")
    yield from _check_moves(snapshot)
    yield from _check_orphans(snapshot)
    for journal in unreadable_journals(snapshot):
        sentence = f"what is known of the interrupted restore {journal.id} cannot be read"
        yield _finding("journal", "journal", journal.id, sentence, journal.owner, journal.task_id)
    for step in unreadable_steps(snapshot):
        sentence = f"what is known of the open step {step.id!r} cannot be read"
        yield _finding("step", "step", step.id, sentence, step.owner, step.task_id)


def unreadable_journals(snapshot: CatalogSnapshot) -> Iterator[JournalRow]:
    for journal in snapshot.journals:
        try:
            decode_journal(journal.data)
        except msgspec.DecodeError:
            yield journal


def unreadable_steps(snapshot: CatalogSnapshot) -> Iterator[StepRow]:
    for step in snapshot.steps:
        try:
            decode_step(step.data)
            if step.snapshot is not None:
                decompress(step.encoding or 0, step.snapshot, step.size or 0)
        except (msgspec.DecodeError, IntegrityError):
            yield step


def _check_task(snapshot: CatalogSnapshot, derived: Derived, task: TaskRow) -> Iterator[Finding]:
    has_holes = task.number in snapshot.incomplete
    figures = derived.tasks[task.number]
    stored = (task.last_sequence, task.last_event, task.checkpoints)
    names = ("last_sequence", "last_event", "checkpoints")
    for name, is_, should in zip(names, stored, figures, strict=True):
        if is_ != should and not (has_holes or (name == "last_event" and is_ > should)):
            yield _counter(task.owner, task.id, "task", task.id or "store", name, is_, should)
    if task.number != STORE:
        active = snapshot.branches.get(task.active_branch)
        is_there = active is not None and active.task == task.number and not active.deleted
        if not is_there and "branches" not in snapshot.unreadable:
            sentence = f"the active branch of {task.id!r} is not there"
            yield _finding("task", "task", task.id, sentence, task.owner, task.id)
    if not has_holes and not {"events", "checkpoints"} & snapshot.unreadable:
        yield from _check_log(snapshot, task)


def _check_log(snapshot: CatalogSnapshot, task: TaskRow) -> Iterator[Finding]:
    """Find gaps in the log. Its numbers are dense: each belongs to an event or to the creation of a checkpoint."""
    told = snapshot.creations.get(task.number, set()) | snapshot.events.get(task.number, set())
    gone = sorted(set(range(1, task.last_event + 1)) - told)
    if gone:
        shown = ", ".join(map(str, gone[:10])) + (" …" if len(gone) > 10 else "")
        whose = f"the log of {task.id!r}" if task.number != STORE else "the store's own log"
        sentence = f"{whose} has lost {len(gone):,} of its entries: {shown}"
        yield _finding("event", "task", task.id or "store", sentence, task.owner, task.id)


def _check_branches(snapshot: CatalogSnapshot, derived: Derived) -> Iterator[Finding]:
    for branch in snapshot.branches.values():
        owner, task_id = snapshot.owner_and_task(branch.task)
        figures = derived.branches.get(branch.number)
        if figures is not None and branch.task not in snapshot.incomplete:
            stored = (branch.head, branch.version, branch.own, branch.inherited)
            for name, is_, should in zip(figures._fields, stored, figures, strict=True):
                if is_ != should:
                    yield _counter(owner, task_id, "branch", branch.id, name, is_, should)
        if branch.origin_branch is None or branch.task in snapshot.incomplete:
            continue
        origin = snapshot.checkpoints.get((branch.task, branch.origin))
        if origin is None or (origin.row.branch, origin.row.id) != (branch.origin_branch, branch.origin_id):
            sentence = f"the branch {branch.name!r} of {task_id!r} does not begin where it says"
            yield _finding("branch", "branch", branch.id, sentence, owner, task_id)


def _check_marks(snapshot: CatalogSnapshot, number: Number, marks: CheckpointMarks) -> Iterator[Finding]:
    known = snapshot.checkpoints[number]
    wrong = [name for name, is_, should in zip(marks._fields, known.marks, marks, strict=True) if is_ != should]
    if wrong:
        owner, task_id = snapshot.owner_and_task(known.row.task)
        what = " and ".join(repr(name) for name in wrong)
        sentence = f"checkpoint {known.row.id} is listed with a wrong {what}; what was said of it is whole"
        yield _finding("derived", "checkpoint", known.row.id, sentence, owner, task_id)


def _check_names(snapshot: CatalogSnapshot, derived: Derived, code: NameCode) -> Iterator[Finding]:
    for at, number in wrong_names(snapshot, derived, code):
        known = None if number is None else snapshot.checkpoints[number]
        how = f"does not lead to checkpoint {known.row.id}" if known else "leads to a checkpoint that does not have it"
        owner, task_id = snapshot.owner_and_task(at[0])
        yield _finding(code, "task", at[1], f"the {code} {at[1]!r} of {task_id!r} {how}", owner, task_id)


def wrong_names(
    snapshot: CatalogSnapshot, derived: Derived, code: NameCode
) -> Iterator[tuple[tuple[int, str], Number | None]]:
    """Yield keys and tags that lead elsewhere than they should, and where they should; None: they should not exist.

    Keys are in records, tags in attestations; where these are damaged, the row is all there is.
    """
    expected = derived.names[code]
    stored = {(row.task, row.name): (row.owner_task, row.sequence) for row in snapshot.names[code]}
    for at, number in expected.items():
        if stored.get(at) != number and f"{code}s" not in snapshot.unreadable:
            yield at, number
    for at, number in stored.items():
        known = snapshot.checkpoints.get(number)
        if at in expected or (known is None and at[0] in snapshot.incomplete):
            continue
        if known is None or known.purged or _is_source_intact(snapshot, code, number):
            yield at, None


def _is_source_intact(snapshot: CatalogSnapshot, code: NameCode, number: Number) -> bool:
    known = snapshot.checkpoints[number]
    return known.record is not None if code == "key" else read_attestations(snapshot, known) is not None


def _check_moves(snapshot: CatalogSnapshot) -> Iterator[Finding]:
    for move in lost_moves(snapshot):
        owner, task_id = snapshot.owner_and_task(move.task)
        sentence = f"move {move.number} of {task_id!r} leads to what is not there; undo cannot go along it"
        yield _finding("move", "task", f"{task_id} {move.number}", sentence, owner, task_id)
    for workspace in lost_workspaces(snapshot):
        owner, task_id = snapshot.owner_and_task(workspace.task)
        sentence = f"the files in {workspace.path} are said to be those of a branch that is not there"
        yield _finding("workspace", "task", workspace.path, sentence, owner, task_id)


def lost_moves(snapshot: CatalogSnapshot) -> Iterator[MoveRow]:
    """Yield moves that lead to a branch or a checkpoint that is not there; none where that is not known."""
    for move in snapshot.moves if "branches" not in snapshot.unreadable else ():
        ends = [snapshot.branches.get(number) for number in (move.from_branch, move.to_branch)]
        files = [number for number in (move.before, move.after) if number is not None]
        is_lost = (
            any(number not in snapshot.checkpoints for number in files) and "checkpoints" not in snapshot.unreadable
        )
        if is_lost or any(end is None or end.task != move.task for end in ends):
            yield move


def lost_workspaces(snapshot: CatalogSnapshot) -> Iterator[WorkspaceRow]:
    """Yield workspaces of branches that are not there."""
    for workspace in snapshot.workspaces if "branches" not in snapshot.unreadable else ():
        branch = snapshot.branches.get(workspace.branch)
        if branch is None or branch.task != workspace.task:
            yield workspace


def _check_orphans(snapshot: CatalogSnapshot) -> Iterator[Finding]:
    if not {"tasks", "branches"} & snapshot.unreadable:
        tasks = {number[0] for number in snapshot.checkpoints} | {row.task for row in snapshot.branches.values()}
        for task in sorted((tasks | set(snapshot.events)) - set(snapshot.tasks)):
            yield _finding("task", "task", f"number {task}", f"task number {task} is gone, and its checkpoints are not")
        for branch, task in sorted({(known.row.branch, known.row.task) for known in snapshot.checkpoints.values()}):
            row = snapshot.branches.get(branch)
            if row is None or row.task != task:
                owner, task_id = snapshot.owner_and_task(task)
                sentence = f"branch number {branch} of {task_id!r} is gone, and its checkpoints are not"
                yield _finding("branch", "branch", f"number {branch}", sentence, owner, task_id)
    if "checkpoints" not in snapshot.unreadable:
        said_of = {number[0] for number in snapshot.attestations if number not in snapshot.checkpoints}
        for task in sorted(said_of - snapshot.incomplete):
            owner, task_id = snapshot.owner_and_task(task)
            sentence = f"something was said of checkpoints of {task_id!r} that are not there"
            yield _finding("attestation", "task", task_id, sentence, owner, task_id)


def _counter(owner: str, task_id: str, kind: Kind, name: str, what: str, is_: int, should: int) -> Finding:
    sentence = f"the {kind} {name!r} has {what} {is_}; by its checkpoints it is {should}"
    return _finding("counter", kind, name, sentence, owner, task_id)


def _finding(
    code: Code, kind: Kind, name: str, sentence: str, owner: str = "", task_id: str = "", *uses: Use
) -> Finding:
    return Finding(code, kind, name, sentence, owner or None, task_id or None, uses=uses)
