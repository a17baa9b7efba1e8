"""Which branch of a task is active, how it came to be, and the end of branches. Runs inside a writing transaction."""

from __future__ import annotations

from typing import NamedTuple

import apsw
import msgspec

from lastgood.catalog.sqlite.attestations import attest, log
from lastgood.catalog.sqlite.leases import carry, check_lease
from lastgood.catalog.sqlite.reading import (
    key,
    one_row,
    read_branch,
    read_checkpoint_number,
    read_position,
    read_task,
    rows,
)
from lastgood.catalog.values import Actor, Position, StoredCheckpoint
from lastgood.errors import ConflictError, NotFoundError
from lastgood.model.checkpoint import Head
from lastgood.model.task import BranchInfo, TaskInfo


class _Move(NamedTuple):
    number: int
    from_branch: int
    to_branch: int
    undone: int | None
    before: int | None
    after: int | None


class BranchMove(NamedTuple):
    """Who moves a task to another branch: the head of the active one as it was seen, the lease of who works there."""

    actor: Actor
    expects: str | None
    lease: int | None
    at: int


def expect_active(connection: apsw.Connection, task: TaskInfo, head_id: str | None) -> int:
    """The number of the active branch. ConflictError unless its head is `head_id`; None: whatever it is."""
    branch = read_branch(connection, task.owner, task.active_branch_id)
    head = branch.head if branch else None
    if branch is None or (head_id is not None and (head is None or head.id != head_id)):
        raise moved(task.id, head)
    return branch.number


def record_move(connection: apsw.Connection, task: TaskInfo, entered: int) -> None:
    """The active branch is about to become `entered`. What was undone before cannot be done again."""
    connection.execute("DELETE FROM moves WHERE task = ? AND undone IS NOT NULL", (task.number,))
    connection.execute(
        """INSERT INTO moves (task, number, from_branch, to_branch)
           SELECT task, 1 + coalesce((SELECT max(number) FROM moves m WHERE m.task = t.task), 0),
                        active_branch, ?2 FROM tasks t WHERE task = ?1""",
        (task.number, entered),
    )


def record_files_move(connection: apsw.Connection, task: int, branch: int, before: int, after: int) -> None:
    """Files alone were restored, from what the checkpoint `before` has to what `after` has."""
    connection.execute("DELETE FROM moves WHERE task = ? AND undone IS NOT NULL", (task,))
    connection.execute(
        """INSERT INTO moves (task, number, from_branch, to_branch, before, after)
           SELECT ?1, 1 + coalesce(max(number), 0), ?2, ?2, ?3, ?4 FROM moves WHERE task = ?1""",
        (task, branch, before, after),
    )


def keep_redo(connection: apsw.Connection, task: int, branch: int, old_version: int, new_version: int) -> None:
    """What could be redone when the branch had the old version still can."""
    connection.execute(
        "UPDATE moves SET undone = ? WHERE task = ? AND from_branch = ? AND undone = ?",
        (new_version, task, branch, old_version),
    )


def activate(connection: apsw.Connection, owner: str, branch_id: str, change: BranchMove) -> Position:
    branch = _require_branch(connection, owner, branch_id)
    task = _require_task(connection, owner, branch.task_id)
    left = expect_active(connection, task, change.expects)
    if task.active_branch_id != branch.id:
        _living_version(connection, branch.number)
        record_move(connection, task, branch.number)
        _go(connection, task, left, branch.number, change)
        log(connection, task.number, branch.number, None, "switched", change.actor, {"from": task.active_branch_id})
    return _position(connection, owner, task.id)


def undo(connection: apsw.Connection, owner: str, task_id: str, change: BranchMove) -> Position:
    task = _require_task(connection, owner, task_id)
    left = expect_active(connection, task, change.expects)
    move = _undoable(connection, task)
    version = _living_version(connection, move.from_branch)
    connection.execute("UPDATE moves SET undone = ? WHERE task = ? AND number = ?", (version, task.number, move.number))
    _go(connection, task, left, move.from_branch, change)
    log(connection, task.number, move.from_branch, move.before, "undone", change.actor, {"from": task.active_branch_id})
    return _position(connection, owner, task_id, move.before)


def redo(connection: apsw.Connection, owner: str, task_id: str, change: BranchMove) -> Position:
    task = _require_task(connection, owner, task_id)
    left = expect_active(connection, task, change.expects)
    move = _redoable(connection, task)
    # Files may have changed since the undo. The head has them as they are: there the next undo goes back to.
    connection.execute(
        """UPDATE moves SET undone = NULL, before = iif(before IS NULL, NULL,
                            (SELECT (b.task << 32) + b.head FROM branches b WHERE b.branch = moves.from_branch))
           WHERE task = ? AND number = ?""",
        (task.number, move.number),
    )
    _go(connection, task, left, move.to_branch, change)
    log(connection, task.number, move.to_branch, move.after, "redone", change.actor, {"from": task.active_branch_id})
    return _position(connection, owner, task_id, move.after)


def read_destination(connection: apsw.Connection, owner: str, task_id: str, way: str) -> StoredCheckpoint | None:
    task = read_task(connection, owner, task_id)
    if task is None:
        return None
    if way == "undo":
        move = _undoable(connection, task)
        branch, files = move.from_branch, move.before
    else:
        move = _redoable(connection, task)
        branch, files = move.to_branch, move.after
    head = connection.execute("SELECT (task << 32) + head FROM branches WHERE branch = ?", (branch,)).get
    number = head if files is None else files
    return None if number is None else read_checkpoint_number(connection, number)


def delete_branch(connection: apsw.Connection, owner: str, branch_id: str, actor: Actor, at: int) -> int:
    branch = _require_branch(connection, owner, branch_id)
    task = _require_task(connection, owner, branch.task_id)
    if task.active_branch_id == branch.id:
        raise ConflictError(
            "this is the active branch; the work stands on it", hint="switch to another one, or delete the whole task"
        )
    check_lease(connection, branch.number, None, at)
    doomed = rows(
        connection,
        """SELECT id FROM checkpoints c WHERE branch = ?1 AND deleted = 0 AND number > ?2
             AND NOT EXISTS (SELECT 1 FROM tags WHERE tags.number = c.number)""",
        (branch.number, key(task.number, _last_origin(connection, task.number, branch.number))),
    )
    for (checkpoint_id,) in doomed:
        attest(connection, owner, checkpoint_id, "deleted", {"by": "branch"}, actor)
    connection.execute(
        "UPDATE branches SET deleted = 1, name = name || ' (deleted ' || id || ' ' || hex(randomblob(4)) || ')' "
        "WHERE branch = ?",
        (branch.number,),
    )
    connection.execute("DELETE FROM leases WHERE branch = ?", (branch.number,))
    about = {"branch": branch.id, "name": branch.name, "checkpoints": len(doomed)}
    log(connection, task.number, branch.number, None, "branch_deleted", actor, about)
    return len(doomed)


def active_head(connection: apsw.Connection, owner: str, task_id: str) -> Head | None:
    task = read_task(connection, owner, task_id)
    branch = read_branch(connection, owner, task.active_branch_id) if task else None
    return branch.head if branch else None


def moved(task_id: str, head: Head | None) -> ConflictError:
    return ConflictError(
        f"{task_id!r} has moved on since this handle last saw it",
        hint="look at error.head, then task.refresh() and try again on top of it",
        head=head,
    )


def _last_origin(connection: apsw.Connection, task: int, branch: int) -> int:
    """The newest checkpoint of `branch` that a branch which still has checkpoints descends from."""
    sql = """WITH RECURSIVE origins (branch, sequence) AS (
               SELECT origin_branch, origin FROM branches
               WHERE task = ?1 AND origin_branch IS NOT NULL AND (deleted = 0 OR own > 0)
               UNION SELECT b.origin_branch, b.origin FROM branches b JOIN origins USING (branch)
                     WHERE b.origin_branch IS NOT NULL)
             SELECT max(sequence) FROM origins WHERE branch = ?2"""
    return connection.execute(sql, (task, branch)).get or 0


def _undoable(connection: apsw.Connection, task: TaskInfo) -> _Move:
    """The last move, if it can be taken back."""
    move = _move(connection, task, "undone IS NULL ORDER BY number DESC")
    if move is None:
        raise ConflictError(f"there is nothing to undo in {task.id!r}", hint="undo takes back restores and switches")
    _living_version(connection, move.from_branch)
    return move


def _redoable(connection: apsw.Connection, task: TaskInfo) -> _Move:
    """The move that was taken back last, if it can be made again."""
    move = _move(connection, task, "undone IS NOT NULL ORDER BY number")
    if move is None or move.undone != _living_version(connection, move.from_branch):
        raise ConflictError(f"there is nothing to redo in {task.id!r}", hint="a save after an undo ends redoing")
    _living_version(connection, move.to_branch)
    return move


def _move(connection: apsw.Connection, task: TaskInfo, which: str) -> _Move | None:
    sql = f"""SELECT number, from_branch, to_branch, undone, before, after
              FROM moves WHERE task = ? AND {which} LIMIT 1"""
    row = one_row(connection, sql, (task.number,))
    return _Move(*row) if row else None


def _living_version(connection: apsw.Connection, branch: int) -> int:
    """The version of a branch that work can go on from."""
    version: int | None = connection.execute(
        """SELECT b.version FROM branches b JOIN checkpoints c ON c.number = (b.task << 32) + b.head
           WHERE b.branch = ? AND b.deleted = 0 AND c.deleted = 0""",
        (branch,),
    ).get
    if version is None:
        raise ConflictError(
            "the branch to go to, or its newest checkpoint, was deleted", hint="`lastgood branch` lists what is left"
        )
    return version


def _go(connection: apsw.Connection, task: TaskInfo, left: int, entered: int, change: BranchMove) -> None:
    check_lease(connection, left, change.lease, change.at)
    if entered != left:
        check_lease(connection, entered, None, change.at)
        if change.lease is not None:
            carry(connection, change.lease, left, entered)
    connection.execute("UPDATE tasks SET active_branch = ? WHERE task = ?", (entered, task.number))


def _require_task(connection: apsw.Connection, owner: str, task_id: str) -> TaskInfo:
    task = read_task(connection, owner, task_id)
    if task is None:
        raise NotFoundError(f"there is no task {task_id!r}", hint="`lastgood tasks` lists them")
    return task


def _require_branch(connection: apsw.Connection, owner: str, branch_id: str) -> BranchInfo:
    branch = read_branch(connection, owner, branch_id)
    if branch is None:
        raise NotFoundError(f"there is no branch {branch_id!r}", hint="`lastgood branch` lists them")
    return branch


def _position(connection: apsw.Connection, owner: str, task_id: str, files: int | None = None) -> Position:
    position = read_position(connection, owner, task_id)
    assert position is not None
    if files is None:
        return position
    checkpoint_id = connection.execute("SELECT id FROM checkpoints WHERE number = ?", (files,)).get
    return msgspec.structs.replace(position, files=checkpoint_id)
