"""Which branch of a task is active, how it came to be, and which branch's files lie in which folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from lastgood.catalog.relational import connection as shapes
from lastgood.catalog.relational.connection import Connection, Queries, decoded, shaped
from lastgood.catalog.relational.records import (
    log,
    read_branch,
    read_checkpoint_number,
    read_position,
    read_task,
    require_branch,
    require_task,
)
from lastgood.catalog.relational.sessions import carry_lease, check_holder, check_lease
from lastgood.catalog.values import Actor, AppliedRestore, Binding, Position, StoredCheckpoint
from lastgood.errors import ConflictError
from lastgood.model.checkpoint import Head
from lastgood.model.task import FolderId, Journal, TaskInfo, decode_journal, encode_journal

SQL = Queries("branches")


class _Move(NamedTuple):
    number: int
    from_branch: int
    to_branch: int
    undone: int | None
    before: int | None
    after: int | None


_LOGGED = {"switch": "switched", "undo": "undone", "redo": "redone"}


# --- moves --------------------------------------------------------------------------------------------------------


def move(
    connection: Connection,
    owner: str,
    id: str,
    way: Literal["switch", "undo", "redo"],
    actor: Actor,
    *,
    expects: str | None = None,
    lease: int | None = None,
    binding: Binding | None = None,
    applied: AppliedRestore | None = None,
) -> Position:
    connection.lock_task(owner, id)
    chosen = require_branch(connection, owner, id) if way == "switch" else None
    task = require_task(connection, owner, chosen.task_id if chosen else id)
    active = expect_active(connection, task, expects)
    branch, files = chosen.number if chosen else active, None
    if applied is not None:
        connection.run(SQL.apply_journal, id=applied.journal, made=applied.made, at=applied.at)
    if way == "switch":
        if branch == active:
            _bind_all(connection, task, branch, binding)
            return _position(connection, owner, task.id)
        _living_version(connection, branch)
        record_move(connection, task, branch)
    else:
        move, branch, files = _find_move(connection, task, way)
        if way == "undo":
            version = _living_version(connection, branch)
            connection.run(SQL.undo_move, task=task.number, number=move.number, version=version)
        else:
            connection.run(SQL.redo_move, task=task.number, number=move.number)
    check_lease(connection, active, lease)
    if branch != active:
        check_lease(connection, branch, None)
        if lease is not None:
            carry_lease(connection, lease, active, branch)
    connection.run(SQL.activate, task=task.number, branch=branch)
    _bind_all(connection, task, branch, binding)
    log(connection, task.number, branch, files, _LOGGED[way], actor, {"from": task.active_branch_id})
    return _position(connection, owner, task.id, files)


def read_destination(
    connection: Connection, owner: str, task_id: str, way: Literal["undo", "redo"]
) -> StoredCheckpoint | None:
    task = read_task(connection, owner, task_id)
    if task is None:
        return None
    _, branch, files = _find_move(connection, task, way)
    number = connection.value(SQL.head_number, branch=branch) if files is None else files
    return None if number is None else read_checkpoint_number(connection, number)


def record_move(connection: Connection, task: TaskInfo, to_branch: int) -> None:
    """Record that `to_branch` is about to become the active one. What was undone before cannot be done again."""
    connection.run(SQL.remove_undone_moves, task=task.number)
    connection.run(SQL.insert_move, task=task.number, to_branch=to_branch)


def expect_active(connection: Connection, task: TaskInfo, head_id: str | None) -> int:
    """Return the number of the active branch. ConflictError unless its head is `head_id`; None: whatever it is."""
    branch = read_branch(connection, task.owner, task.active_branch_id)
    head = branch.head if branch else None
    if branch is None or (head_id is not None and (head is None or head.id != head_id)):
        raise moved(task.id, head)
    return branch.number


def active_head(connection: Connection, owner: str, task_id: str) -> Head | None:
    task = read_task(connection, owner, task_id)
    branch = read_branch(connection, owner, task.active_branch_id) if task else None
    return branch.head if branch else None


def moved(task_id: str, head: Head | None) -> ConflictError:
    return ConflictError(
        f"{task_id!r} has moved on since this handle last saw it",
        hint="look at error.head, then task.refresh() and try again on top of it",
        head=head,
    )


def _find_move(connection: Connection, task: TaskInfo, way: Literal["undo", "redo"]) -> tuple[_Move, int, int | None]:
    """Return the move to undo or redo, the branch that it leads to then, and the checkpoint that has the files."""
    if way == "undo":
        move = _undoable(connection, task)
        return move, move.from_branch, move.before
    move = _redoable(connection, task)
    return move, move.to_branch, move.after


def _undoable(connection: Connection, task: TaskInfo) -> _Move:
    """Return the last move, if it can be taken back."""
    row = connection.one(SQL.undoable, task=task.number)
    if row is None:
        raise ConflictError(f"there is nothing to undo in {task.id!r}", hint="only restores and switches can be undone")
    move = _Move(*row)
    _living_version(connection, move.from_branch)
    return move


def _redoable(connection: Connection, task: TaskInfo) -> _Move:
    """Return the move that was taken back last, if it can be made again."""
    row = connection.one(SQL.redoable, task=task.number)
    move = None if row is None else _Move(*row)
    if move is None or move.undone != _living_version(connection, move.from_branch):
        raise ConflictError(f"there is nothing to redo in {task.id!r}", hint="a save after an undo ends redoing")
    _living_version(connection, move.to_branch)
    return move


def _living_version(connection: Connection, branch: int) -> int:
    """Return the version of a branch that work can go on from."""
    version: int | None = connection.value(SQL.living_version, branch=branch)
    if version is None:
        raise ConflictError(
            "that branch, or its newest checkpoint, was deleted", hint="task.branches() lists what is left"
        )
    return version


def _position(connection: Connection, owner: str, task_id: str, files: int | None = None) -> Position:
    position = read_position(connection, owner, task_id)
    assert position is not None
    if files is None:
        return position
    return msgspec.structs.replace(position, files=connection.value(SQL.checkpoint_id, number=files))


# --- folders ------------------------------------------------------------------------------------------------------


def read_bound(connection: Connection, owner: str, task_id: str, folder: FolderId) -> str | None:
    row = connection.one(SQL.binding, owner=owner, task_id=task_id, **msgspec.structs.asdict(folder))
    return None if row is None else row[1]


def read_folders_of(connection: Connection, owner: str, branch_id: str) -> list[FolderId]:
    return [FolderId(*row) for row in connection.all(SQL.folders_of, owner=owner, branch_id=branch_id)]


def bind(connection: Connection, task: int, branch: int, folder: FolderId) -> None:
    """Note that the files in a folder are those of that branch from now on."""
    about = msgspec.structs.asdict(folder)
    connection.run(SQL.unbind, task=task, **about)
    connection.run(SQL.bind, task=task, branch=branch, **about)


def _bind_all(connection: Connection, task: TaskInfo, branch: int, binding: Binding | None) -> None:
    for folder in binding.folders if binding is not None else ():
        bind(connection, task.number, branch, folder)


def begin_journal(
    connection: Connection, journal: Journal, branches: Sequence[str] = (), lease: int | None = None
) -> None:
    for branch_id in branches:
        holder = connection.one(SQL.holder_by_id, owner=journal.owner, id=branch_id)
        if holder is not None and holder[0] != lease:
            check_holder(connection, holder, None)
    connection.run(
        SQL.insert_journal,
        id=journal.id,
        owner=journal.owner,
        task_id=journal.task_id,
        began_at=journal.began_at_us,
        journal=encode_journal(journal),
    )


def read_journals(connection: Connection) -> list[Journal]:
    found = shaped(connection.all(SQL.journals), shapes.JOURNAL)
    return [
        msgspec.structs.replace(decoded(decode_journal, data, f"the restore {id_!r}"), made=made, applied_at_us=at)
        for data, id_, made, at in found
    ]


def end_journal(connection: Connection, journal_id: str) -> None:
    connection.run(SQL.end_journal, id=journal_id)


def read_needed(connection: Connection) -> set[tuple[str, str]]:
    """Return owner and id of the checkpoints that restores under way go to, or back to."""
    return {(each.owner, needed) for each in read_journals(connection) for needed in each.needs()}
