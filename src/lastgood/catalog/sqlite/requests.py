"""What people want of work. Each function runs inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from lastgood.catalog.sqlite import shapes
from lastgood.catalog.sqlite.attestations import log
from lastgood.catalog.sqlite.leases import leased_branch
from lastgood.catalog.sqlite.reading import Row, one_row, rows
from lastgood.catalog.values import Actor, FulfilledRequest
from lastgood.errors import ConflictError, IntegrityError, NotFoundError
from lastgood.model.checkpoint import decode_plain, encode_plain
from lastgood.model.identity import now
from lastgood.model.request import Request

_EMPTY = encode_plain({})
_REQUEST = """
  SELECT r.id, b.id, r.kind, r.data, r.at, r.actor, r.correlation_id, r.status, r.ended_at, r.outcome
  FROM requests r JOIN branches b USING (branch)"""


def post(connection: apsw.Connection, owner: str, request: Request, actor: Actor) -> Request:
    earlier = read_request(connection, owner, request.id)
    if earlier is not None:
        if (earlier.kind, earlier.data) == (request.kind, request.data):
            return earlier
        raise ConflictError(f"the request {request.id!r} was another one", hint="give each request an id of its own")
    row = one_row(
        connection,
        "SELECT branch, task FROM branches WHERE owner = ? AND id = ? AND deleted = 0",
        (owner, request.branch_id),
    )
    if row is None:
        raise NotFoundError(f"there is no branch {request.branch_id!r}", hint="`lastgood branch` lists them")
    branch, task = row
    connection.execute(
        """INSERT INTO requests (branch, owner, id, kind, at, actor, correlation_id, data, status)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'open')""",
        (
            branch,
            owner,
            request.id,
            request.kind,
            request.at,
            request.actor,
            request.correlation_id,
            encode_plain(request.data),
        ),
    )
    log(connection, task, branch, None, "requested", actor, {"request": request.id, "kind": request.kind})
    return request


def read_request(connection: apsw.Connection, owner: str, request_id: str) -> Request | None:
    row = one_row(connection, f"{_REQUEST} WHERE r.owner = ? AND r.id = ?", (owner, request_id), shapes.REQUEST)
    return None if row is None else _request(row)


def read_open(connection: apsw.Connection, owner: str, branch_id: str) -> list[Request]:
    sql = f"{_REQUEST} WHERE b.owner = ? AND b.id = ? AND r.status = 'open' ORDER BY r.number"
    return [_request(row) for row in rows(connection, sql, (owner, branch_id), shapes.REQUEST)]


def is_wanted(connection: apsw.Connection, branch: int) -> bool:
    """Whether a request to the branch is open."""
    sql = "SELECT 1 FROM requests WHERE branch = ? AND status = 'open' LIMIT 1"
    return connection.execute(sql, (branch,)).get is not None


def meet(connection: apsw.Connection, owner: str, met: Sequence[FulfilledRequest]) -> None:
    """They are met with the commit that this is a part of. ConflictError when one is not open any more."""
    for one in met:
        _end(connection, owner, one, "met")


def end(
    connection: apsw.Connection,
    owner: str,
    ended: FulfilledRequest,
    status: str,
    actor: Actor,
    lease: int | None = None,
) -> None:
    if lease is not None:
        leased_branch(connection, lease)
    _end(connection, owner, ended, status)
    sql = (
        "SELECT b.task, b.branch, r.kind FROM requests r JOIN branches b USING (branch) WHERE r.owner = ? AND r.id = ?"
    )
    task, branch, kind = rows(connection, sql, (owner, ended.id))[0]
    about = {"request": ended.id, "kind": kind, **ended.outcome}
    log(connection, task, branch, None, f"request_{status}", actor, about)


def _end(connection: apsw.Connection, owner: str, ended: FulfilledRequest, status: str) -> None:
    connection.execute(
        "UPDATE requests SET status = ?, ended_at = ?, outcome = ? WHERE owner = ? AND id = ? AND status = 'open'",
        (status, now(), encode_plain(ended.outcome), owner, ended.id),
    )
    if not connection.changes():
        raise ConflictError(f"the request {ended.id!r} is not open any more", hint="look again what is wanted")


def _request(row: Row) -> Request:
    names = ("id", "branch_id", "kind", "data", "at", "actor", "correlation_id", "status", "ended_at", "outcome")
    found = dict(zip(names, row, strict=True))
    plain = {name: decode_plain(found[name] or _EMPTY) for name in ("data", "outcome")}
    try:
        return msgspec.convert({**found, **plain}, Request)
    except msgspec.ValidationError as error:
        raise IntegrityError(f"the request {row[0]!r} is damaged") from error
