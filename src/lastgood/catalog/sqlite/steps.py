"""Open steps. Each function runs inside a transaction."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from lastgood.catalog.sqlite import shapes
from lastgood.catalog.sqlite.attestations import STORE, log
from lastgood.catalog.sqlite.leases import leased_branch
from lastgood.catalog.sqlite.reading import Row, one_row, read_task, rows
from lastgood.catalog.values import Actor, Blob
from lastgood.errors import ConflictError, IntegrityError
from lastgood.model.step import OpenStep, decode_step, encode_step


def begin_step(
    connection: apsw.Connection, step: OpenStep, snapshot: Blob | None = None, lease: int | None = None
) -> None:
    if lease is not None:
        leased_branch(connection, lease)
    connection.execute(
        "INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (
            step.owner,
            step.id,
            step.task_id,
            step.began_at,
            encode_step(step),
            *((snapshot.size, snapshot.encoding, snapshot.data) if snapshot else (None, None, None)),
        ),
    )
    if not connection.changes():
        raise ConflictError(f"a step {step.id!r} is open already", hint="commit it, or give another id")


def read_step(connection: apsw.Connection, owner: str, step_id: str) -> tuple[OpenStep, Blob | None] | None:
    sql = "SELECT step, id, size, encoding, snapshot FROM steps WHERE owner = ? AND id = ?"
    row = one_row(connection, sql, (owner, step_id))
    if row is None:
        return None
    return _step(row), None if row[4] is None else Blob(b"", row[2], row[3], row[4])


def read_steps(connection: apsw.Connection, owner: str | None, task_id: str | None) -> list[OpenStep]:
    sql = """SELECT step, id FROM steps WHERE (?1 IS NULL OR owner = ?1) AND (?2 IS NULL OR task_id = ?2)
             ORDER BY began_at, id"""
    return [_step(row) for row in rows(connection, sql, (owner, task_id), shapes.STEP)]


def take_step(connection: apsw.Connection, owner: str, step_id: str) -> None:
    """The step ends here. ConflictError when it has ended already."""
    connection.execute("DELETE FROM steps WHERE owner = ? AND id = ?", (owner, step_id))
    if not connection.changes():
        raise ConflictError(
            f"the step {step_id!r} is not open any more", hint="it was committed or given up; begin a new one"
        )


def end_step(
    connection: apsw.Connection, owner: str, step_id: str, kind: str, data: dict[str, Any], actor: Actor
) -> None:
    found = read_step(connection, owner, step_id)
    take_step(connection, owner, step_id)
    assert found is not None
    step = found[0]
    task = read_task(connection, owner, step.task_id)
    about = {"step": step_id, "name": step.name, "type": step.type, **data}
    if task is None:
        log(connection, STORE, None, None, kind, actor, {**about, "task_id": step.task_id, "owner": owner})
        return
    sql = "SELECT branch FROM branches WHERE owner = ? AND id = ?"
    branch = connection.execute(sql, (owner, step.branch_id or task.active_branch_id)).get
    log(connection, task.number, branch, None, kind, actor, about)


def _step(row: Row) -> OpenStep:
    try:
        return decode_step(row[0])
    except msgspec.DecodeError as error:
        raise IntegrityError(f"what is known of the open step {row[1]!r} is damaged") from error
