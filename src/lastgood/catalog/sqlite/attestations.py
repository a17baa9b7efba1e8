"""What is said of checkpoints after they were made: attestations, deletion, purge, removal of a task.

Each function runs inside a writing transaction.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import apsw

from lastgood.catalog.sqlite.files import read_needed
from lastgood.catalog.sqlite.reading import MAX_SEQUENCE, key, one_row, read_attestations, read_creation, read_task
from lastgood.catalog.values import Actor
from lastgood.errors import ConflictError, InvalidError, NotFoundError
from lastgood.model.checkpoint import Attestation, encode_plain
from lastgood.model.identity import now

DELETED, PURGED = 1, 2
STORE = 0
"""The task that is the store itself."""

INSERT_EVENT = """
  INSERT INTO events (number, branch, checkpoint, kind, at, actor, correlation_id, data)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_DESCENDANTS = """
  WITH RECURSIVE heirs (branch) AS (
    SELECT branch FROM branches WHERE origin_branch = ?1 AND origin >= ?2
    UNION ALL SELECT b.branch FROM branches b JOIN heirs h ON b.origin_branch = h.branch)
  UPDATE branches SET inherited = inherited + ?3 WHERE branch IN heirs"""


class Subject(NamedTuple):
    """The checkpoint that something is said about."""

    number: int
    task: int
    branch: int
    id: str
    checksum: bytes
    deleted: int
    is_active_head: int


_EVENT_OF = {
    "tag": "tagged",
    "untag": "untagged",
    "verification": "verified",
    "deleted": "deleted",
    "undeleted": "undeleted",
}


def attest(
    connection: apsw.Connection, owner: str, checkpoint_id: str, kind: str, data: dict[str, Any], actor: Actor
) -> Attestation:
    subject = read_subject(connection, owner, checkpoint_id)
    if kind not in _EVENT_OF:
        raise InvalidError(f"there is no attestation {kind!r}")
    if subject.deleted and kind in ("tag", "verification"):
        raise NotFoundError(f"checkpoint {checkpoint_id!r} was deleted", hint="undelete it first")
    if _holds_already(connection, subject, kind, data):
        last = [a for a, _ in read_attestations(connection, subject.number) if a.kind == kind]
        return last[-1] if last else Attestation(0, kind, now(), actor.user, data)
    if kind == "tag":
        _move_tag(connection, subject, data, actor)
    elif kind == "untag":
        connection.execute("DELETE FROM tags WHERE task = ? AND name = ?", (subject.task, data["name"]))
    elif kind == "deleted":
        _refuse_active_head(subject)
        hide(connection, subject, DELETED)
    elif kind == "undeleted":
        _count(connection, subject, 1)
        connection.execute("UPDATE checkpoints SET deleted = 0 WHERE number = ?", (subject.number,))
    attestation = append(connection, subject.number, subject.checksum, kind, data, actor)
    told = data if kind != "verification" else {"verified": bool(data.get("verified"))}
    log(connection, subject.task, subject.branch, subject.number, _EVENT_OF[kind], actor, told)
    return attestation


def purge(connection: apsw.Connection, owner: str, checkpoint_id: str, actor: Actor) -> None:
    subject = read_subject(connection, owner, checkpoint_id)
    _refuse_active_head(subject)
    _refuse_needed(connection, owner, checkpoint_id)
    if subject.deleted == 0:
        hide(connection, subject, PURGED)
    _keep_creation(connection, subject)
    connection.execute("DELETE FROM tags WHERE number = ?", (subject.number,))
    connection.execute("DELETE FROM keys WHERE task = ? AND number = ?", (subject.task, subject.number))
    connection.execute("DELETE FROM attestations WHERE checkpoint = ?", (subject.number,))
    connection.execute(
        """UPDATE checkpoints SET record = NULL, root_size = NULL, encoding = NULL, root = NULL,
                                  deleted = ?, verified = 0, verified_at = NULL WHERE number = ?""",
        (PURGED, subject.number),
    )
    append(connection, subject.number, subject.checksum, "purged", {}, actor)
    log(connection, subject.task, subject.branch, subject.number, "purged", actor, {})


def _keep_creation(connection: apsw.Connection, subject: Subject) -> None:
    """The row that tells when and by whom it was made is about to go: write that into the log, and no more."""
    event = read_creation(connection, subject.number)
    about = {"type": event.data["type"]} if "type" in event.data else {}
    values = (event.kind, event.at, event.actor, event.correlation_id, encode_plain(about))
    connection.execute(INSERT_EVENT, (key(subject.task, event.sequence), subject.branch, subject.number, *values))


def delete_task(connection: apsw.Connection, owner: str, task_id: str, actor: Actor) -> int:
    task = read_task(connection, owner, task_id)
    if task is None:
        raise NotFoundError(f"there is no task {task_id!r}", hint="`lastgood tasks` lists them")
    low, high = key(task.number, 0), key(task.number, MAX_SEQUENCE)
    for table, column in (("checkpoints", "number"), ("events", "number"), ("attestations", "checkpoint")):
        connection.execute(f"DELETE FROM {table} WHERE {column} BETWEEN ? AND ?", (low, high))
    for table in ("leases", "requests"):
        connection.execute(
            f"DELETE FROM {table} WHERE branch IN (SELECT branch FROM branches WHERE task = ?)", (task.number,)
        )
    for table, column in (
        ("tags", "task"),
        ("keys", "task"),
        ("blobs", "partition"),
        ("slices", "partition"),
        ("moves", "task"),
        ("workspaces", "task"),
        ("branches", "task"),
        ("tasks", "task"),
    ):
        connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (task.number,))
    for table in ("steps", "journals"):
        connection.execute(f"DELETE FROM {table} WHERE owner = ? AND task_id = ?", (owner, task_id))
    data = {"task_id": task_id, "owner": owner, "checkpoints": task.checkpoints}
    log(connection, STORE, None, None, "task_deleted", actor, data)
    return task.checkpoints


def read_subject(connection: apsw.Connection, owner: str, checkpoint_id: str) -> Subject:
    row = one_row(
        connection,
        """SELECT c.number, b.task, c.branch, c.id, c.checksum, c.deleted,
                  t.active_branch = c.branch AND b.head = c.number & 4294967295
           FROM checkpoints c JOIN branches b USING (branch) JOIN tasks t USING (task)
           WHERE c.id = ? AND c.owner = ? AND c.record IS NOT NULL""",
        (checkpoint_id, owner),
    )
    if row is None:
        raise NotFoundError(f"there is no checkpoint {checkpoint_id!r}", hint="`lastgood log` lists them")
    return Subject(*row)


def _refuse_active_head(subject: Subject) -> None:
    if subject.is_active_head:
        raise ConflictError(
            "this is the newest checkpoint of the active branch; the work stands on it",
            hint="save or restore another one first, or delete the whole task",
        )


def _refuse_needed(connection: apsw.Connection, owner: str, checkpoint_id: str) -> None:
    if (owner, checkpoint_id) in read_needed(connection):
        raise ConflictError(
            "a restore of files that is under way, or was interrupted, may go back to this checkpoint",
            hint="open the task with that workspace, which takes it back; `lastgood status` tells of it",
        )


def _holds_already(connection: apsw.Connection, subject: Subject, kind: str, data: dict[str, Any]) -> bool:
    if kind in ("deleted", "undeleted"):
        return bool(subject.deleted) == (kind == "deleted")
    if kind in ("tag", "untag"):
        at = connection.execute("SELECT number FROM tags WHERE task = ? AND name = ?", (subject.task, data["name"])).get
        return bool(at == subject.number) == (kind == "tag")
    return False


def _move_tag(connection: apsw.Connection, subject: Subject, data: dict[str, Any], actor: Actor) -> None:
    name = data["name"]
    other = connection.execute("SELECT number FROM tags WHERE task = ? AND name = ?", (subject.task, name)).get
    if other is not None:
        if not data.get("move"):
            raise ConflictError(
                f"another checkpoint is tagged {name!r}", hint="move the tag on purpose (move=True, --move)"
            )
        checksum = connection.execute("SELECT checksum FROM checkpoints WHERE number = ?", (other,)).get
        append(connection, other, checksum, "untag", {"name": name}, actor)
    connection.execute("INSERT OR REPLACE INTO tags VALUES (?, ?, ?)", (subject.task, name, subject.number))


def hide(connection: apsw.Connection, subject: Subject, how: int) -> None:
    connection.execute("UPDATE checkpoints SET deleted = ? WHERE number = ?", (how, subject.number))
    _count(connection, subject, -1)


def _count(connection: apsw.Connection, subject: Subject, change: int) -> None:
    """Keep every total that counts this checkpoint: its task's, its branch's, and those of branches from it."""
    connection.execute("UPDATE tasks SET checkpoints = checkpoints + ? WHERE task = ?", (change, subject.task))
    connection.execute("UPDATE branches SET own = own + ? WHERE branch = ?", (change, subject.branch))
    connection.execute(_DESCENDANTS, (subject.branch, subject.number & MAX_SEQUENCE, change))


def append(
    connection: apsw.Connection, number: int, checksum: bytes, kind: str, data: dict[str, Any], actor: Actor
) -> Attestation:
    last = connection.execute("SELECT max(number) FROM attestations WHERE checkpoint = ?", (number,)).get or 0
    attestation = Attestation(last + 1, kind, now(), actor.user, data)
    insert(connection, number, checksum, attestation)
    if kind == "verification":
        connection.execute(
            "UPDATE checkpoints SET verified = ?, verified_at = ? WHERE number = ?",
            (bool(data.get("verified")), attestation.at, number),
        )
    return attestation


def insert(connection: apsw.Connection, number: int, checksum: bytes, said: Attestation) -> None:
    connection.execute(
        "INSERT INTO attestations (checkpoint, number, kind, at, actor, data, digest) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (number, said.number, said.kind, said.at, said.actor, encode_plain(said.data), said.digest(checksum)),
    )


def log(
    connection: apsw.Connection,
    task: int,
    branch: int | None,
    checkpoint: int | None,
    kind: str,
    actor: Actor,
    data: dict[str, Any],
) -> None:
    """Append to a task's log."""
    event = connection.execute(
        "UPDATE tasks SET last_event = last_event + 1 WHERE task = ? RETURNING last_event", (task,)
    ).get
    about = encode_plain(data) if data else None
    connection.execute(
        INSERT_EVENT, (key(task, event), branch, checkpoint, kind, now(), actor.user, actor.correlation_id, about)
    )
