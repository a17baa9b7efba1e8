"""What is asked of a catalog: queries, and rows as values. Each function runs inside a transaction."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import apsw

from lastgood.catalog.sqlite import shapes
from lastgood.catalog.sqlite.shapes import counted, misplaced, shaped
from lastgood.catalog.values import (
    MAX_PAGE,
    Blob,
    ContainingBlob,
    HistoryRange,
    PackRange,
    Position,
    StoredCheckpoint,
    StoreInfo,
)
from lastgood.errors import IntegrityError
from lastgood.model.checkpoint import Attestation, Head, Placement, decode_plain, decode_record
from lastgood.model.task import BranchInfo, Event, TaskInfo

SHIFT = 32
MAX_SEQUENCE = (1 << SHIFT) - 1

Row = tuple[Any, ...]
Bindings = tuple[Any, ...] | dict[str, Any]


def rows(connection: apsw.Connection, sql: str, bindings: Bindings = (), shape: Any = None) -> list[Row]:
    """With a shape: IntegrityError when one of them does not have it."""
    found = connection.execute(sql, bindings).fetchall()
    return found if shape is None else shaped(found, shape)


def one_row(connection: apsw.Connection, sql: str, bindings: Bindings = (), shape: Any = None) -> Row | None:
    found = rows(connection, sql, bindings, shape)
    return found[0] if found else None


_TASK = """
  SELECT t.task, t.id, t.owner, t.created_at, b.id, t.last_sequence, t.last_event, t.checkpoints
  FROM tasks t JOIN branches b ON b.branch = t.active_branch"""
_BRANCH = """
  SELECT b.branch, b.id, t.id, b.owner, b.name, b.description, b.origin_id, b.origin, b.head, c.id, c.checksum,
         b.version, b.control_state, b.own + b.inherited, b.created_at, b.created_by, b.metadata, b.deleted
  FROM branches b JOIN tasks t USING (task) LEFT JOIN checkpoints c ON c.number = (b.task << 32) + b.head"""
_CHECKPOINT = """
  SELECT c.number, c.id, c.owner, t.id, c.record, c.checksum, b.id, c.version, c.last_event, c.placement,
         c.verified, c.verified_at, c.deleted,
         (SELECT group_concat(name, char(10)) FROM tags WHERE tags.number = c.number)
  FROM checkpoints c JOIN branches b USING (branch) JOIN tasks t USING (task)"""

_CREATION = """
  SELECT c.last_event, c.version, b.origin_branch, b.id, c.id, c.checksum, c.record
  FROM checkpoints c JOIN branches b USING (branch)"""
_EVENT = """
  SELECT e.number, e.kind, e.at, e.actor, coalesce(e.correlation_id, c.id, ''), coalesce(b.id, ''), c.id, e.data
  FROM events e LEFT JOIN branches b ON b.branch = e.branch LEFT JOIN checkpoints c ON c.number = e.checkpoint"""


def key(task: int, sequence: int) -> int:
    return (task << SHIFT) + sequence


def sequence_of(number: int) -> int:
    return number & MAX_SEQUENCE


def read_info(connection: apsw.Connection) -> StoreInfo:
    facts: dict[str, Any] = {row[0]: row[1] for row in rows(connection, "SELECT key, value FROM meta")}
    newest = "SELECT number, format FROM migrations ORDER BY number DESC LIMIT 1"
    number, format_ = one_row(connection, newest) or (0, "")
    if not {"store_id", "created_at", "blob_id"} <= facts.keys():
        raise misplaced()
    return StoreInfo(facts["store_id"], facts["created_at"], format_, facts["blob_id"], number)


def read_task(connection: apsw.Connection, owner: str, task_id: str) -> TaskInfo | None:
    row = one_row(connection, f"{_TASK} WHERE t.owner = ? AND t.id = ?", (owner, task_id), shapes.TASK)
    return TaskInfo(*row) if row else None


def read_tasks(connection: apsw.Connection, owner: str | None, after: int, limit: int) -> list[TaskInfo]:
    where = "t.task < ?1 AND (?2 IS NULL OR t.owner = ?2)"
    sql = f"{_TASK} WHERE {where} ORDER BY t.task DESC LIMIT ?3"
    found = rows(connection, sql, (after or 1 << 62, owner, _bounded(limit)), shapes.TASK)
    return [TaskInfo(*row) for row in found]


def read_branch(connection: apsw.Connection, owner: str, branch_id: str) -> BranchInfo | None:
    where = "b.owner = ? AND b.id = ? AND b.deleted = 0"
    row = one_row(connection, f"{_BRANCH} WHERE {where}", (owner, branch_id), shapes.BRANCH)
    return _branch(row) if row else None


def read_branches(connection: apsw.Connection, task: int) -> list[BranchInfo]:
    where = "b.task = ?1 AND (b.deleted = 0 OR b.own > 0)"
    found = rows(connection, f"{_BRANCH} WHERE {where} ORDER BY b.branch", (task,), shapes.BRANCH)
    return [_branch(row) for row in found]


def read_all_branches(connection: apsw.Connection, task: int) -> list[BranchInfo]:
    found = rows(connection, f"{_BRANCH} WHERE b.task = ? ORDER BY b.branch", (task,), shapes.BRANCH)
    return [_branch(row) for row in found]


def read_position(connection: apsw.Connection, owner: str, id: str) -> Position | None:
    task = read_task(connection, owner, id)
    branch = read_branch(connection, owner, task.active_branch_id if task else id)
    if branch is None and task is None:
        return None
    found = task or (read_task(connection, owner, branch.task_id) if branch else None)
    head = read_checkpoint(connection, owner, branch.head.id) if branch and branch.head else None
    if branch is None or found is None or head is None:
        raise IntegrityError(
            f"{id!r} has lost its head", hint="its checkpoints may be whole: `lastgood log` lists them"
        )
    return Position(found, branch, head, by_branch=task is None)


def read_checkpoint(connection: apsw.Connection, owner: str, checkpoint_id: str) -> StoredCheckpoint | None:
    where = "c.id = ? AND c.owner = ?"
    row = one_row(connection, f"{_CHECKPOINT} WHERE {where}", (checkpoint_id, owner), shapes.CHECKPOINT)
    return _checkpoint(row) if row else None


def read_checkpoint_number(connection: apsw.Connection, number: int) -> StoredCheckpoint | None:
    row = one_row(connection, f"{_CHECKPOINT} WHERE c.number = ?", (number,), shapes.CHECKPOINT)
    return _checkpoint(row) if row else None


def read_checkpoints_after(connection: apsw.Connection, number: int, limit: int) -> list[StoredCheckpoint]:
    """Of every task; tombstones are left out."""
    sql = f"{_CHECKPOINT} WHERE c.number > ? AND c.record IS NOT NULL ORDER BY c.number LIMIT ?"
    return [_checkpoint(row) for row in rows(connection, sql, (number, _bounded(limit)), shapes.CHECKPOINT)]


def read_tagged(connection: apsw.Connection, task: int, tag: str) -> StoredCheckpoint | None:
    number = connection.execute("SELECT number FROM tags WHERE task = ? AND name = ?", (task, tag)).get
    return None if number is None else read_checkpoint_number(connection, counted(number))


def read_tags(connection: apsw.Connection, task: int) -> dict[str, Head]:
    sql = """SELECT g.name, c.id, c.checksum, c.number, b.id
             FROM tags g JOIN checkpoints c USING (number) JOIN branches b USING (branch)
             WHERE g.task = ? ORDER BY g.name"""
    found = rows(connection, sql, (task,), shapes.TAG)
    return {name: Head(id_, checksum, sequence_of(number), branch) for name, id_, checksum, number, branch in found}


def find_ids(connection: apsw.Connection, owner: str, prefix: str, limit: int) -> list[str]:
    # Every text that begins with `prefix` lies between it and it followed by the last character there is.
    sql = "SELECT id FROM checkpoints WHERE id >= ?1 AND id < ?1 || char(1114111) AND owner = ?2 LIMIT ?3"
    return [row[0] for row in rows(connection, sql, (prefix, owner, limit))]


def read_line(
    connection: apsw.Connection, line: HistoryRange, before: int | None, limit: int, type_: str | None
) -> list[StoredCheckpoint]:
    task = line.task.number
    below = key(task, MAX_SEQUENCE if before is None else max(0, min(before, MAX_SEQUENCE) - 1))
    where = "c.number BETWEEN :low AND :high AND c.deleted = 0"
    if type_ is not None:
        where += " AND c.type = :type"
    if line.branch is not None:
        where += " AND c.branch = :branch"
    sql = f"{_CHECKPOINT} WHERE {where} ORDER BY c.number DESC LIMIT :limit"
    found: list[StoredCheckpoint] = []
    limit = _bounded(limit)
    for branch, newest in _segments(connection, line):
        bindings: dict[str, Any] = {
            "low": key(task, 0),
            "high": min(below, key(task, newest)),
            "limit": limit - len(found),
        }
        bindings |= {"type": type_, "branch": branch}
        found += map(_checkpoint, rows(connection, sql, bindings, shapes.CHECKPOINT))
        if len(found) >= limit:
            break
    sequences = [stored.placement.sequence for stored in found]
    if any(newer <= older for newer, older in itertools.pairwise(sequences)):
        raise misplaced()
    if type_ is None and not _is_complete(connection, line, before, found, limit):
        raise IntegrityError(
            f"the list of {line.task.id!r} has holes: checkpoints that were stored are not found",
            hint="the database is damaged; bring it back from a copy",
        )
    return found


def _is_complete(
    connection: apsw.Connection, line: HistoryRange, before: int | None, found: list[StoredCheckpoint], limit: int
) -> bool:
    """Whether what was found can be all there is: a page that the disk wrote in the wrong place fits its checksum.

    Sequences are dense, deleted ones included; and who lists a branch to its end finds as many as are counted.
    """
    at_end = len(found) < limit
    if line.branch is not None:
        return not at_end or before is not None or len(found) == count_line(connection, line, None)
    task = line.task.number
    last = counted(connection.execute("SELECT last_sequence FROM tasks WHERE task = ?", (task,)).get or 0)
    high = last if before is None else min(last, before - 1)
    low = 1 if at_end else found[-1].placement.sequence
    sql = "SELECT count(*) FROM checkpoints WHERE number BETWEEN ? AND ?"
    there = connection.execute(sql, (key(task, low), key(task, high))).get if low <= high else 0
    return bool(there == max(0, high - low + 1))


def read_last_verified(connection: apsw.Connection, line: HistoryRange, type_: str | None) -> StoredCheckpoint | None:
    sql = """SELECT max(number) FROM checkpoints
             WHERE branch = ?1 AND number <= ?2 AND verified = 1 AND deleted = 0 AND (?3 IS NULL OR type = ?3)"""
    if line.branch is None:
        all_of_them = "SELECT branch FROM branches WHERE task = ?"
        branches = [(counted(branch), MAX_SEQUENCE) for (branch,) in rows(connection, all_of_them, (line.task.number,))]
        found = [connection.execute(sql, (*_until(line, segment), type_)).get for segment in branches]
        newest = max((number for number in found if number is not None), default=None)
        return None if newest is None else read_checkpoint_number(connection, newest)
    for segment in _segments(connection, line):
        number = connection.execute(sql, (*_until(line, segment), type_)).get
        if number is not None:
            return read_checkpoint_number(connection, number)
    return None


def _until(line: HistoryRange, segment: tuple[int | None, int]) -> tuple[int | None, int]:
    return segment[0], key(line.task.number, segment[1])


def count_line(connection: apsw.Connection, line: HistoryRange, type_: str | None) -> int:
    task = line.task.number
    if type_ is None and line.branch is None:
        total = connection.execute("SELECT checkpoints FROM tasks WHERE task = ?", (task,)).get
    elif type_ is None:
        sql = "SELECT own + inherited FROM branches WHERE branch = ?"
        total = line.branch and connection.execute(sql, (line.branch.number,)).get
    else:
        sql = """SELECT count(*) FROM checkpoints
                 WHERE type = ?1 AND number BETWEEN ?2 AND ?3 AND deleted = 0 AND (?4 IS NULL OR branch = ?4)"""
        total = sum(
            connection.execute(sql, (type_, key(task, 0), key(task, newest), branch)).get
            for branch, newest in _segments(connection, line)
        )
    return counted(total or 0)


def read_root(connection: apsw.Connection, number: int) -> Blob | None:
    sql = "SELECT x'', root_size, encoding, root FROM checkpoints WHERE number = ?"
    row = one_row(connection, sql, (number,), shapes.ROOT)
    if row is None or row[3] is None:
        return None
    return Blob(row[0], counted(row[1]), counted(row[2]), row[3])


def read_blobs(connection: apsw.Connection, partition: int, digests: Iterable[bytes]) -> dict[bytes, Blob]:
    sql = """SELECT b.digest, b.size, b.encoding, b.data, p.name, b.position, b.length
             FROM blobs b LEFT JOIN packs p USING (pack) WHERE b.partition = ? AND b.digest = ?"""
    wanted = list(digests)
    stored = connection.executemany(sql, ((partition, digest) for digest in wanted)).fetchall()
    found: list[Row] = shaped(stored, shapes.BLOB)
    blobs = {row[0]: Blob(row[0], row[1], row[2], row[3], None, row[4] and _stored_at(*row[4:])) for row in found}
    sql = """SELECT s.digest, s.size, w.encoding, w.data, w.digest, w.size, s.position
             FROM slices s JOIN blobs w ON w.blob = s.whole WHERE s.partition = ? AND s.digest = ?"""
    stored = connection.executemany(sql, ((partition, key) for key in wanted if key not in blobs)).fetchall()
    found = shaped(stored, shapes.SLICE)
    for digest, size, encoding, data, *whole in found:
        blobs[digest] = Blob(digest, size, encoding, data, ContainingBlob(*whole))
    return blobs


def _stored_at(pack: str, position: int | None, length: int | None) -> PackRange:
    return PackRange(pack, counted(position), counted(length))


def number_of(connection: apsw.Connection, owner: str, checkpoint_id: str) -> int | None:
    number: int | None = connection.execute(
        "SELECT number FROM checkpoints WHERE id = ? AND owner = ?", (checkpoint_id, owner)
    ).get
    return number


def read_attestations(connection: apsw.Connection, number: int) -> list[tuple[Attestation, bytes]]:
    sql = "SELECT number, kind, at, actor, data, digest FROM attestations WHERE checkpoint = ? ORDER BY number"
    return [
        (Attestation(count, kind, at, actor, decode_plain(data)), digest)
        for count, kind, at, actor, data, digest in rows(connection, sql, (number,), shapes.ATTESTATION)
    ]


def read_events(connection: apsw.Connection, task: int, after: int, limit: int) -> list[Event]:
    """What the log says, and what the checkpoints themselves tell of how they were made, in one order."""
    after, limit = max(0, min(after, MAX_SEQUENCE)), _bounded(limit)
    sql = f"{_EVENT} WHERE e.number > ? AND e.number <= ? ORDER BY e.number LIMIT ?"
    logged = map(_event, rows(connection, sql, (key(task, after), key(task, MAX_SEQUENCE), limit), shapes.EVENT))
    where = "c.number BETWEEN ? AND ? AND c.record IS NOT NULL ORDER BY c.number LIMIT ?"
    first = key(task, _first_after(connection, task, after))
    creation, among = f"{_CREATION} WHERE {where}", (first, key(task, MAX_SEQUENCE), limit)
    made = map(_creation, rows(connection, creation, among, shapes.CREATION))
    return sorted([*logged, *made], key=lambda event: event.sequence)[:limit]


def read_history(connection: apsw.Connection, line: HistoryRange, before: int | None, limit: int) -> list[Event]:
    task, limit = line.task.number, _bounded(limit)
    below = MAX_SEQUENCE + 1 if before is None else max(1, min(before, MAX_SEQUENCE))
    found: list[Event] = []
    for branch, newest in _segments(connection, line):
        sql = "SELECT last_event FROM checkpoints WHERE number = ?"
        last = connection.execute(sql, (key(task, newest),)).get if newest < MAX_SEQUENCE else None
        high = below - 1 if last is None else min(below - 1, counted(last))
        found += _history_of(connection, task, branch, high, limit - len(found))
        if len(found) >= limit:
            break
    return found


def _history_of(connection: apsw.Connection, task: int, branch: int | None, high: int, limit: int) -> list[Event]:
    """The newest events of a branch, or of all, up to the number `high`."""
    sql = f"{_EVENT} WHERE e.number BETWEEN ?1 AND ?2 AND (?3 IS NULL OR e.branch = ?3) ORDER BY e.number DESC LIMIT ?4"
    logged = map(_event, rows(connection, sql, (key(task, 0), key(task, high), branch, limit), shapes.EVENT))
    sql = f"""{_CREATION} WHERE c.number BETWEEN ?1 AND ?2 AND (?3 IS NULL OR c.branch = ?3) AND c.record IS NOT NULL
              ORDER BY c.number DESC LIMIT ?4"""
    newest = key(task, _first_after(connection, task, high) - 1)
    made = map(_creation, rows(connection, sql, (key(task, 0), newest, branch, limit), shapes.CREATION))
    return sorted([*logged, *made], key=lambda event: -event.sequence)[:limit]


def read_creation(connection: apsw.Connection, number: int) -> Event:
    return _creation(rows(connection, f"{_CREATION} WHERE c.number = ?", (number,))[0])


def _event(row: Row) -> Event:
    number, kind, at, actor, correlation, branch, checkpoint, data = row
    return Event(
        sequence_of(number), kind, at, actor, correlation, branch, checkpoint, decode_plain(data) if data else {}
    )


def _creation(row: Row) -> Event:
    last_event, version, origin, branch_id, checkpoint_id, checksum, data = row
    kind = "branched" if version == 1 and origin is not None else "created"
    try:
        record = decode_record(data, checksum, f"checkpoint {checkpoint_id}")
    except IntegrityError:  # when and by whom is not known any more; that it was made is
        return Event(last_event, kind, 0, "", checkpoint_id, branch_id, checkpoint_id, {"damaged": True})
    correlation = record.correlation_id or record.id
    about = {"type": record.type, "step_id": record.step_id, "iteration": record.iteration, "message": record.message}
    return Event(last_event, kind, record.created_at, record.created_by, correlation, branch_id, checkpoint_id, about)


def _first_after(connection: apsw.Connection, task: int, event: int) -> int:
    """The first sequence whose checkpoint came after `event`: both only ever grow, so halve the interval."""
    sql = "SELECT last_event FROM checkpoints WHERE number = ?"
    low, high = 1, event + 1
    while low < high:
        middle = (low + high) // 2
        at = connection.execute(sql, (key(task, middle),)).get
        low, high = (low, middle) if at is None or counted(at) > event else (middle + 1, high)
    return low


def _segments(connection: apsw.Connection, line: HistoryRange) -> Iterator[tuple[int | None, int]]:
    """(branch, newest sequence) from a branch back to the beginning; (None, any) for a whole task.

    A branch's own checkpoints are all newer than the one it began from, so segments never overlap.
    """
    if line.branch is None:
        yield None, MAX_SEQUENCE
        return
    branch: int | None = line.branch.number
    newest = MAX_SEQUENCE
    while branch is not None:
        yield branch, newest
        origin = "SELECT origin_branch, origin FROM branches WHERE branch = ?"
        found = one_row(connection, origin, (branch,), shapes.ORIGIN)
        if found is None:
            raise misplaced()
        branch, newest = found


def _bounded(limit: int) -> int:
    return max(1, min(limit, MAX_PAGE))


def _checkpoint(row: Row) -> StoredCheckpoint:
    number, id_, owner, task_id, record, checksum, branch_id, version, last_event, placement, *rest = row
    verified, verified_at, deleted, tags = rest
    return StoredCheckpoint(
        id=id_,
        owner=owner,
        task_id=task_id,
        task_number=number >> SHIFT,
        data=record,
        checksum=checksum,
        placement=Placement(branch_id, sequence_of(number), version, last_event),
        placement_digest=placement,
        verified=bool(verified),
        verified_at=verified_at,
        deleted=bool(deleted),
        tags=tuple(sorted(tags.split("\n"))) if tags else (),
    )


def _branch(row: Row) -> BranchInfo:
    number, id_, task_id, owner, name, description, origin_id, origin, head, head_id, checksum, *rest = row
    version, control_state, checkpoints, created_at, created_by, metadata, deleted = rest
    return BranchInfo(
        number,
        id_,
        task_id,
        owner,
        name.rpartition(" (deleted ")[0] if deleted else name,
        description,
        origin_id,
        origin,
        Head(head_id, checksum, head, id_) if head_id is not None else None,
        version,
        control_state,
        checkpoints,
        created_at,
        created_by,
        decode_plain(metadata),
        bool(deleted),
    )
