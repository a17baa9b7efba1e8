"""What is said of checkpoints after they were made; deleting and purging them, branches and tasks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from lastgood.catalog.relational.branches import read_needed
from lastgood.catalog.relational.connection import MAX_SEQUENCE, Connection, Queries, key, sequence_of
from lastgood.catalog.relational.records import SQL as RECORDS
from lastgood.catalog.relational.records import (
    STORE,
    attestations_of,
    log,
    read_creation,
    require_branch,
    require_task,
)
from lastgood.catalog.relational.sessions import check_lease, require_unleased
from lastgood.catalog.values import Actor
from lastgood.errors import ConflictError, InvalidError, NotFoundError
from lastgood.model.checkpoint import Attestation, encode_plain

SQL = Queries("deletion")
DELETED, PURGED = 1, 2


class Subject(NamedTuple):
    """A checkpoint that something is said about."""

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


# --- attestations -------------------------------------------------------------------------------------------------


def attest_all(
    connection: Connection,
    owner: str,
    checkpoint_ids: Sequence[str],
    kind: str,
    data: dict[str, Any],
    actor: Actor,
    *,
    last_event: int | None = None,
) -> list[Attestation]:
    if last_event is not None and checkpoint_ids:
        connection.lock_task(owner, checkpoint_ids[0])
        if connection.value(SQL.last_event, id=checkpoint_ids[0], owner=owner) not in (None, last_event):
            raise ConflictError("more has happened to this task since it was looked at", hint="look again")
    return [attest(connection, owner, id_, kind, data, actor) for id_ in checkpoint_ids]


def attest(
    connection: Connection, owner: str, checkpoint_id: str, kind: str, data: dict[str, Any], actor: Actor
) -> Attestation:
    subject = _read_subject(connection, owner, checkpoint_id)
    if kind not in _EVENT_OF:
        raise InvalidError(f"there is no attestation {kind!r}")
    if subject.deleted and kind in ("tag", "verification"):
        raise NotFoundError(
            f"checkpoint {checkpoint_id!r} was deleted",
            hint=f"store.undelete_checkpoint({checkpoint_id!r}) brings it back",
        )
    if _holds_already(connection, subject, kind, data):
        last = [one for one, _ in attestations_of(connection, subject.number) if one.kind == kind]
        return last[-1] if last else Attestation(0, kind, connection.now(), actor.user, data)
    if kind == "tag":
        _move_tag(connection, subject, data, actor)
    elif kind == "untag":
        connection.run(SQL.remove_tag, task=subject.task, name=data["name"])
    elif kind == "deleted":
        _refuse_active_head(subject)
        _hide(connection, subject, DELETED)
    elif kind == "undeleted":
        _count(connection, subject, 1)
        connection.run(SQL.set_deleted, number=subject.number, deleted=0)
    attestation = append(connection, subject.number, subject.checksum, kind, data, actor)
    logged = data if kind != "verification" else {"verified": bool(data.get("verified"))}
    log(connection, subject.task, subject.branch, subject.number, _EVENT_OF[kind], actor, logged)
    return attestation


def append(
    connection: Connection, number: int, checksum: bytes, kind: str, data: dict[str, Any], actor: Actor
) -> Attestation:
    """Append an attestation to a checkpoint."""
    last = connection.value(SQL.last_attestation, checkpoint=number) or 0
    attestation = Attestation(last + 1, kind, connection.now(), actor.user, data)
    connection.run(SQL.insert_attestation, **attestation_values(number, checksum, attestation))
    if kind == "verification":
        verified = int(bool(data.get("verified")))
        connection.run(SQL.set_verified, number=number, verified=verified, at=attestation.at_us)
    return attestation


def attestation_values(number: int, checksum: bytes, said: Attestation) -> dict[str, Any]:
    """Return the row of an attestation."""
    return {
        "checkpoint": number,
        "number": said.number,
        "kind": said.kind,
        "at": said.at_us,
        "actor": said.actor,
        "data": encode_plain(said.data),
        "digest": said.digest(checksum),
    }


def _read_subject(connection: Connection, owner: str, checkpoint_id: str) -> Subject:
    connection.lock_task(owner, checkpoint_id)
    row = connection.one(SQL.subject, id=checkpoint_id, owner=owner)
    if row is None:
        raise NotFoundError(
            f"there is no checkpoint {checkpoint_id!r}", hint="store.list_checkpoints(task_id) lists them"
        )
    return Subject(*row)


def _holds_already(connection: Connection, subject: Subject, kind: str, data: dict[str, Any]) -> bool:
    if kind in ("deleted", "undeleted"):
        return bool(subject.deleted) == (kind == "deleted")
    if kind in ("tag", "untag"):
        at = connection.value(RECORDS.tagged, task=subject.task, name=data["name"])
        return bool(at == subject.number) == (kind == "tag")
    return False


def _move_tag(connection: Connection, subject: Subject, data: dict[str, Any], actor: Actor) -> None:
    name = data["name"]
    other = connection.value(RECORDS.tagged, task=subject.task, name=name)
    if other is not None:
        if not data.get("move"):
            raise ConflictError(f"another checkpoint is tagged {name!r}", hint="move=True moves the tag")
        append(connection, other, connection.value(SQL.checksum_of, number=other), "untag", {"name": name}, actor)
    connection.run(SQL.put_tag, task=subject.task, name=name, number=subject.number)


def _refuse_active_head(subject: Subject) -> None:
    if subject.is_active_head:
        raise ConflictError(
            "this is the newest checkpoint of the active branch, and cannot be deleted",
            hint="save or restore another one first, or delete the whole task",
        )


def _hide(connection: Connection, subject: Subject, how: int) -> None:
    connection.run(SQL.set_deleted, number=subject.number, deleted=how)
    _count(connection, subject, -1)


def _count(connection: Connection, subject: Subject, change: int) -> None:
    """Keep every total that counts this checkpoint: its task's, its branch's, and those of branches from it."""
    sequence = sequence_of(subject.number)
    connection.run(SQL.count_in_task, change=change, task=subject.task)
    connection.run(SQL.count_in_branch, change=change, branch=subject.branch)
    connection.run(SQL.count_in_descendants, change=change, branch=subject.branch, sequence=sequence)


# --- purge --------------------------------------------------------------------------------------------------------


def _purge_one(connection: Connection, owner: str, checkpoint_id: str, actor: Actor) -> None:
    subject = _read_subject(connection, owner, checkpoint_id)
    _refuse_active_head(subject)
    if (owner, checkpoint_id) in read_needed(connection):
        raise ConflictError(
            "a restore of files that is under way, or was interrupted, may need this checkpoint",
            hint="open the task with that workspace, which undoes the restore; task.recovery() tells of it",
        )
    if subject.deleted == 0:
        _hide(connection, subject, PURGED)
    _keep_creation(connection, subject)
    number = subject.number
    connection.run(SQL.purge_tags, number=number)
    connection.run(SQL.purge_keys, task=subject.task, number=number)
    connection.run(SQL.purge_attestations, number=number)
    connection.run(SQL.purge_record, number=number, deleted=PURGED)
    append(connection, number, subject.checksum, "purged", {}, actor)
    log(connection, subject.task, subject.branch, number, "purged", actor, {})


def purge(
    connection: Connection,
    checkpoints: Sequence[tuple[str, str]],
    actor: Actor,
    *,
    all_or_none: bool = False,
    spare_needed: bool = False,
    deleted_before: int | None = None,
) -> list[str]:
    purged = []
    for owner, id_ in checkpoints:
        if spare_needed and connection.value(SQL.is_needed, id=id_, owner=owner) is not None:
            continue
        if deleted_before is not None:
            due = connection.value(SQL.was_deleted_before, id=id_, owner=owner, before=deleted_before)
            if due is None:
                continue
        try:
            _purge_one(connection, owner, id_, actor)
        except (ConflictError, NotFoundError):  # it became a head, a restore needs it, or it is gone already
            if all_or_none:
                raise
            continue
        purged.append(id_)
    return purged


def read_deleted(connection: Connection, at: int) -> list[tuple[str, str]]:
    return [(owner, checkpoint_id) for owner, checkpoint_id in connection.all(SQL.deleted_before, before=at)]


def _keep_creation(connection: Connection, subject: Subject) -> None:
    """Write into the log when and by whom it was made, and no more: the row that tells that is about to go."""
    event = read_creation(connection, subject.number)
    actor, made = Actor(event.actor, event.correlation_id), (event.sequence, event.at_us)
    about = {"type": event.data["type"]} if "type" in event.data else {}
    log(connection, subject.task, subject.branch, subject.number, event.kind, actor, about, made)


# --- branches and tasks -------------------------------------------------------------------------------------------


def delete_branch(connection: Connection, owner: str, branch_id: str, actor: Actor, *, dry_run: bool = False) -> int:
    connection.lock_task(owner, branch_id)
    branch = require_branch(connection, owner, branch_id)
    task = require_task(connection, owner, branch.task_id)
    if task.active_branch_id == branch.id:
        raise ConflictError(
            "this is the active branch, and cannot be deleted",
            hint="switch to another first, or delete the whole task",
        )
    check_lease(connection, branch.number, None)
    kept = connection.value(SQL.last_origin, task=task.number, branch=branch.number) or 0
    doomed = connection.all(SQL.doomed_with_branch, branch=branch.number, after=key(task.number, kept))
    if dry_run:
        return len(doomed)
    for (checkpoint_id,) in doomed:
        attest(connection, owner, checkpoint_id, "deleted", {"by": "branch"}, actor)
    name = f"{branch.name} (deleted {branch.id} {os.urandom(4).hex()})"
    connection.run(SQL.hide_branch, branch=branch.number, name=name)
    connection.run(SQL.delete_lease, branch=branch.number)
    about = {"branch": branch.id, "name": branch.name, "checkpoints": len(doomed)}
    log(connection, task.number, branch.number, None, "branch_deleted", actor, about)
    return len(doomed)


def delete_task(connection: Connection, owner: str, task_id: str, actor: Actor) -> int:
    connection.lock_task(owner, task_id)
    require_unleased(connection, owner, task_id)
    task = require_task(connection, owner, task_id)
    numbers = {"low": key(task.number, 0), "high": key(task.number, MAX_SEQUENCE)}
    for sql in (SQL.delete_checkpoints, SQL.delete_events, SQL.delete_attestations):
        connection.run(sql, **numbers)
    for sql in (SQL.delete_leases, SQL.delete_requests, SQL.delete_tags, SQL.delete_keys, SQL.delete_blobs):
        connection.run(sql, task=task.number)
    for sql in (SQL.delete_slices, SQL.delete_moves, SQL.delete_workspaces, SQL.delete_branches, SQL.delete_task):
        connection.run(sql, task=task.number)
    for sql in (SQL.delete_steps, SQL.delete_journals):
        connection.run(sql, owner=owner, task_id=task_id)
    data = {"task_id": task_id, "owner": owner, "checkpoints": task.checkpoints}
    log(connection, STORE, None, None, "task_deleted", actor, data)
    return task.checkpoints
