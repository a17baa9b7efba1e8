"""Who may advance a branch. Each function runs inside a transaction; `at` is the catalog's clock."""

from __future__ import annotations

import apsw
import msgspec

from lastgood.catalog.sqlite import shapes
from lastgood.catalog.sqlite.attestations import log
from lastgood.catalog.sqlite.reading import one_row
from lastgood.catalog.values import Actor
from lastgood.errors import IntegrityError, LeaseError, NotFoundError
from lastgood.model.lease import Lease
from lastgood.model.step import Process

SECOND = 1_000_000
"""In the unit of time of the catalog."""
_LEASE = """
  SELECT l.token, b.id, l.process, l.executor, l.acquired_at, l.expires_at
  FROM leases l JOIN branches b USING (branch)"""
_process = msgspec.msgpack.Decoder(Process)


def read_lease(connection: apsw.Connection, owner: str, branch_id: str, at: int) -> Lease | None:
    return _read(connection, f"{_LEASE} WHERE b.owner = ? AND b.id = ?", (owner, branch_id), at)


def acquire(
    connection: apsw.Connection,
    owner: str,
    branch_id: str,
    process: Process,
    executor: str,
    seconds: float,
    over: int | None,
    actor: Actor,
    at: int,
) -> Lease:
    row = one_row(
        connection, "SELECT branch, task FROM branches WHERE owner = ? AND id = ? AND deleted = 0", (owner, branch_id)
    )
    if row is None:
        raise NotFoundError(f"there is no branch {branch_id!r}", hint="`lastgood branch` lists them")
    branch, task = row
    before = read_lease(connection, owner, branch_id, at)
    if before is not None and before.is_live and before.token != over:
        raise held(before)
    connection.execute("DELETE FROM leases WHERE branch = ?", (branch,))
    connection.execute(
        "INSERT INTO leases (branch, process, executor, acquired_at, expires_at) VALUES (?, ?, ?, ?, ?)",
        (branch, msgspec.msgpack.encode(process), executor, at, at + int(seconds * SECOND)),
    )
    token = connection.last_insert_rowid()
    if before is not None:
        log(connection, task, branch, None, "taken_over", actor, {"from": before.executor, "to": executor})
    return _require(connection, token, at)


def renew(connection: apsw.Connection, token: int, seconds: float, at: int) -> Lease:
    connection.execute("UPDATE leases SET expires_at = ? WHERE token = ?", (at + int(seconds * SECOND), token))
    return _require(connection, token, at)


def release(connection: apsw.Connection, token: int) -> None:
    connection.execute("DELETE FROM leases WHERE token = ?", (token,))


def check_lease(connection: apsw.Connection, branch: int, token: int | None, at: int) -> None:
    """LeaseError unless whoever has this token (None: nobody in particular) may advance the branch.

    A lease that ran out and that nobody took over is still good for who holds it.
    """
    row = one_row(connection, "SELECT token, expires_at FROM leases WHERE branch = ?", (branch,))
    if row is None:
        if token is not None:
            raise lost()
    elif token != row[0] and (token is not None or row[1] > at):
        holder = _require(connection, row[0], at)
        raise held(holder) if token is None else lost(holder)


def check_task(connection: apsw.Connection, owner: str, task_id: str, at: int) -> None:
    """LeaseError while someone works on a branch of it."""
    sql = f"{_LEASE} JOIN tasks t USING (task) WHERE t.owner = ? AND t.id = ? AND l.expires_at > ?"
    if (lease := _read(connection, sql, (owner, task_id, at), at)) is not None:
        raise held(lease)


def leased_branch(connection: apsw.Connection, token: int) -> int:
    """The branch that whoever has this token works on. LeaseError when they do not any more."""
    branch: int | None = connection.execute("SELECT branch FROM leases WHERE token = ?", (token,)).get
    if branch is None:
        raise lost()
    return branch


def carry(connection: apsw.Connection, token: int, left: int, entered: int) -> None:
    """Whoever works on one branch goes on on another: the lease goes along, and what is wanted of the work."""
    connection.execute("DELETE FROM leases WHERE branch = ? AND token != ?", (entered, token))
    connection.execute("UPDATE leases SET branch = ? WHERE token = ?", (entered, token))
    connection.execute("UPDATE requests SET branch = ? WHERE branch = ? AND status = 'open'", (entered, left))


def held(lease: Lease) -> LeaseError:
    return LeaseError(
        f"{lease.executor} is working on this branch",
        hint="let it end, ask it to pause or stop (`lastgood stop`), or fork the branch",
        lease=lease,
    )


def lost(lease: Lease | None = None) -> LeaseError:
    by = f"{lease.executor} has taken over" if lease else "its lease was ended"
    return LeaseError(
        f"this executor does not work on the branch any more: {by}",
        hint="end this run; the work goes on elsewhere, or can be resumed",
        lease=lease,
    )


def _require(connection: apsw.Connection, token: int, at: int) -> Lease:
    lease = _read(connection, f"{_LEASE} WHERE l.token = ?", (token,), at)
    if lease is None:
        raise lost()
    return lease


def _read(connection: apsw.Connection, sql: str, bindings: tuple[object, ...], at: int) -> Lease | None:
    row = one_row(connection, sql, bindings, shapes.LEASE)
    if row is None:
        return None
    try:
        process = _process.decode(row[2])
    except msgspec.DecodeError as error:
        raise IntegrityError(f"what is known of who works on the branch {row[1]!r} is damaged") from error
    return Lease(
        token=row[0],
        branch_id=row[1],
        process=process,
        executor=row[3],
        acquired_at=row[4],
        expires_at=row[5],
        is_live=row[5] > at,
    )
