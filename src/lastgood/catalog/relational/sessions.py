"""What a process that works on a branch has to do with: its lease, the requests of people, the steps that are open."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from lastgood.catalog.relational import connection as shapes
from lastgood.catalog.relational.connection import Connection, Queries, Row, decoded, shaped
from lastgood.catalog.relational.records import STORE, log, read_task
from lastgood.catalog.values import Actor, Blob, FulfilledRequest
from lastgood.errors import ConflictError, IntegrityError, LeaseError, NotFoundError
from lastgood.model.checkpoint import decode_plain, encode_plain
from lastgood.model.task import EventKind, Lease, OpenStep, Process, Request, decode_step, encode_step

SQL = Queries("sessions")
SECOND = 1_000_000
"""In the unit of time of the catalog."""
_EMPTY = encode_plain({})
_process = msgspec.msgpack.Decoder(Process)


# --- leases -------------------------------------------------------------------------------------------------------


def read_lease(connection: Connection, owner: str | None, id: str) -> Lease | None:
    if owner is None:
        return _lease(connection, connection.all(SQL.lease_by_name, name=id))
    return _lease(connection, connection.all(SQL.lease_of_branch, owner=owner, id=id))


def acquire_lease(
    connection: Connection,
    owner: str | None,
    id: str,
    process: Process,
    executor: str,
    seconds: float,
    actor: Actor,
    *,
    over: int | None = None,
) -> Lease:
    branch, task = (None, STORE) if owner is None else require_living_branch(connection, owner, id)
    before, now = read_lease(connection, owner, id), connection.now()
    if before is not None:
        if before.is_live and before.token != over:
            raise _held(before)
        release_lease(connection, before.token)
    token = connection.value(
        SQL.insert_lease,
        branch=branch,
        name=id if owner is None else None,
        process=msgspec.msgpack.encode(process),
        executor=executor,
        now=now,
        expires_at=now + int(seconds * SECOND),
    )
    if before is not None and branch is not None:
        log(connection, task, branch, None, "taken_over", actor, {"from": before.executor, "to": executor})
    return require_lease(connection, token)


def renew_lease(connection: Connection, token: int, seconds: float) -> Lease:
    connection.run(SQL.renew_lease, token=token, expires_at=connection.now() + int(seconds * SECOND))
    return require_lease(connection, token)


def release_lease(connection: Connection, token: int) -> None:
    connection.run(SQL.end_lease, token=token)


def check_lease(connection: Connection, branch: int, token: int | None) -> None:
    """LeaseError unless the holder of this token (None: one without a lease) may advance the branch.

    A lease that ran out and was not taken over is still good for its holder.
    """
    check_holder(connection, connection.one(SQL.holder, branch=branch), token)


def check_holder(connection: Connection, holder: Row | None, token: int | None) -> None:
    """Check as `check_lease` does, with the token of the branch's lease and its end as they were read."""
    if holder is None:
        if token is not None:
            raise _lost()
    elif token != holder[0] and (token is not None or holder[1] > connection.now()):
        lease = require_lease(connection, holder[0])
        raise _held(lease) if token is None else _lost(lease)


def require_unleased(connection: Connection, owner: str, task_id: str) -> None:
    """LeaseError while a process works on a branch of the task."""
    found = connection.all(SQL.live_lease_of_task, owner=owner, id=task_id, now=connection.now())
    if (lease := _lease(connection, found)) is not None:
        raise _held(lease)


def leased_branch(connection: Connection, token: int) -> int:
    """Return the branch that the holder of this token works on. LeaseError when it does not any more."""
    branch: int | None = connection.value(SQL.leased_branch, token=token)
    if branch is None:
        raise _lost()
    return branch


def carry_lease(connection: Connection, token: int, from_branch: int, to_branch: int) -> None:
    """Move a lease to the branch that its holder goes on with, and the open requests to the work."""
    connection.run(SQL.end_other_leases, branch=to_branch, token=token)
    connection.run(SQL.move_lease, branch=to_branch, token=token)
    connection.run(SQL.move_requests, from_branch=from_branch, to_branch=to_branch)


def _held(lease: Lease) -> LeaseError:
    if not lease.branch_id:
        return LeaseError(f"{lease.executor} is at it already", hint="wait until it has ended", lease=lease)
    return LeaseError(
        f"{lease.executor} is working on this branch",
        hint="let it end, ask it to pause or stop (task.control.stop()), or fork the branch",
        lease=lease,
    )


def _lost(lease: Lease | None = None) -> LeaseError:
    by = f"{lease.executor} has taken over" if lease else "its lease was ended"
    return LeaseError(
        f"this executor does not work on the branch any more: {by}",
        hint="end this run; the work goes on elsewhere, or can be resumed",
        lease=lease,
    )


def require_lease(connection: Connection, token: int) -> Lease:
    """Return the lease with that token. LeaseError when it was taken over or ended."""
    lease = _lease(connection, connection.all(SQL.lease_by_token, token=token))
    if lease is None:
        raise _lost()
    return lease


def _lease(connection: Connection, found: list[Row]) -> Lease | None:
    if not found:
        return None
    token, branch_id, name, process, executor, acquired_at, expires_at = shaped(found, shapes.LEASE)[0]
    return Lease(
        token=token,
        branch_id=branch_id or "",
        name=name or "",
        process=decoded(_process.decode, process, f"who works on the branch {branch_id!r}"),
        executor=executor,
        acquired_at_us=acquired_at,
        expires_at_us=expires_at,
        is_live=expires_at > connection.now(),
    )


def require_living_branch(connection: Connection, owner: str, branch_id: str) -> tuple[int, int]:
    """Return the numbers of a branch and its task."""
    connection.lock_task(owner, branch_id)
    row = connection.one(SQL.living_branch, owner=owner, id=branch_id)
    if row is None:
        raise NotFoundError(f"there is no branch {branch_id!r}", hint="task.branches() lists them")
    return row[0], row[1]


# --- requests -----------------------------------------------------------------------------------------------------


_SAID = ("text", "answer", "artifact", "rounds", "checkpoint", "what")
"""What the log says of a request beside its kind. New content of artifacts is in the request and in the checkpoint."""


def post_request(connection: Connection, owner: str, request: Request, actor: Actor) -> Request:
    for earlier in read_requests(connection, owner, id=request.id):
        if (earlier.kind, earlier.data) == (request.kind, request.data):
            return earlier
        raise ConflictError(f"the request {request.id!r} was another one", hint="give each request an id of its own")
    branch, task = require_living_branch(connection, owner, request.branch_id)
    connection.run(
        SQL.insert_request,
        branch=branch,
        owner=owner,
        id=request.id,
        kind=request.kind,
        at=request.at_us,
        actor=request.actor,
        correlation_id=request.correlation_id,
        data=encode_plain(request.data),
    )
    said = {name: request.data[name] for name in _SAID if name in request.data}
    log(connection, task, branch, None, "requested", actor, {"request": request.id, "kind": request.kind, **said})
    return request


def read_requests(
    connection: Connection, owner: str, *, id: str | None = None, branch_id: str | None = None
) -> list[Request]:
    if id is not None:
        return _requests(connection.all(SQL.request_by_id, owner=owner, id=id))
    return _requests(connection.all(SQL.open_requests, owner=owner, branch_id=branch_id))


def end_request(
    connection: Connection,
    owner: str,
    ended: FulfilledRequest,
    status: Literal["fulfilled", "refused"],
    actor: Actor,
    *,
    lease: int | None = None,
) -> None:
    if lease is not None:
        leased_branch(connection, lease)
    if not connection.count(SQL.end_request, **ending(connection, owner, ended, status)):
        raise not_open(ended)
    task, branch, kind = connection.all(SQL.subject_of_request, owner=owner, id=ended.id)[0]
    about = {"request": ended.id, "kind": kind, **ended.outcome}
    log(connection, task, branch, None, f"request_{status}", actor, about)


def ending(connection: Connection, owner: str, ended: FulfilledRequest, status: str = "fulfilled") -> dict[str, Any]:
    """Return the values of the statement that ends a request."""
    outcome = encode_plain(ended.outcome)
    return {"owner": owner, "id": ended.id, "status": status, "now": connection.now(), "outcome": outcome}


def not_open(ended: FulfilledRequest) -> ConflictError:
    return ConflictError(f"the request {ended.id!r} is not open any more", hint="list the open requests again")


def _requests(found: list[Row]) -> list[Request]:
    return [_request(row) for row in shaped(found, shapes.REQUEST)]


def _request(row: Row) -> Request:
    names = ("id", "branch_id", "kind", "data", "at_us", "actor", "correlation_id", "status", "ended_at_us", "outcome")
    found = dict(zip(names, row, strict=True))
    plain = {name: decode_plain(found[name] or _EMPTY) for name in ("data", "outcome")}
    try:
        return msgspec.convert({**found, **plain}, Request)
    except msgspec.ValidationError as error:
        raise IntegrityError(f"the request {row[0]!r} is damaged") from error


# --- steps --------------------------------------------------------------------------------------------------------


def begin_step(connection: Connection, step: OpenStep, snapshot: Blob | None = None, lease: int | None = None) -> None:
    if lease is not None:
        leased_branch(connection, lease)
    begun = connection.count(
        SQL.insert_step,
        owner=step.owner,
        id=step.id,
        task_id=step.task_id,
        began_at=step.began_at_us,
        step=encode_step(step),
        size=snapshot.size if snapshot else None,
        encoding=snapshot.encoding if snapshot else None,
        snapshot=snapshot.data if snapshot else None,
    )
    if not begun:
        raise ConflictError(f"a step {step.id!r} is open already", hint="commit it, or give another id")


def read_step(connection: Connection, owner: str, step_id: str) -> tuple[OpenStep, Blob | None] | None:
    row = connection.one(SQL.step_by_id, owner=owner, id=step_id)
    if row is None:
        return None
    return _step(row), None if row[4] is None else Blob(b"", row[2], row[3], row[4])


def read_steps(connection: Connection, owner: str | None, task_id: str | None = None) -> list[OpenStep]:
    found = connection.all(SQL.open_steps, owner=owner, task_id=task_id)
    return [_step(row) for row in shaped(found, shapes.STEP)]


def end_step(
    connection: Connection, owner: str, step_id: str, kind: EventKind, data: dict[str, Any], actor: Actor
) -> None:
    found = read_step(connection, owner, step_id)
    if found is None or not connection.count(SQL.end_step, owner=owner, id=step_id):
        raise step_ended(step_id)
    step = found[0]
    task = read_task(connection, owner, step.task_id)
    about = {"step": step_id, "name": step.name, "type": step.type, **data}
    if task is None:
        log(connection, STORE, None, None, kind, actor, {**about, "task_id": step.task_id, "owner": owner})
        return
    branch = connection.value(SQL.branch_number, owner=owner, id=step.branch_id or task.active_branch_id)
    log(connection, task.number, branch, None, kind, actor, about)


def step_ended(step_id: str) -> ConflictError:
    return ConflictError(
        f"the step {step_id!r} is not open any more", hint="it was committed or abandoned; begin a new one"
    )


def _step(row: Row) -> OpenStep:
    return decoded(decode_step, row[0], f"the open step {row[1]!r}")
