"""Tasks, branches, checkpoints, blobs and the log: how they are read, and how the log goes on."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from lastgood.catalog.relational import connection as shapes
from lastgood.catalog.relational.connection import (
    MAX_SEQUENCE,
    SHIFT,
    Connection,
    Queries,
    Row,
    counted,
    key,
    misplaced,
    sequence_of,
    shaped,
)
from lastgood.catalog.values import (
    FILES,
    MAX_PAGE,
    Actor,
    Blob,
    ContainingBlob,
    HistoryRange,
    PackRange,
    Position,
    StoredCheckpoint,
    StoreInfo,
)
from lastgood.errors import IntegrityError, NotFoundError
from lastgood.model.checkpoint import Attestation, Head, Placement, decode_plain, decode_record, encode_plain
from lastgood.model.task import BranchInfo, Event, TaskInfo

SQL = Queries("records")
STORE = 0
"""The task that is the store itself: its log is the store's own."""
_LAST_CHARACTER = chr(0x10FFFF)


def read_info(connection: Connection) -> StoreInfo:
    facts: dict[str, Any] = dict(connection.all(SQL.facts))
    number, format_ = connection.one(SQL.newest_migration) or (0, "")
    if not {"store_id", "created_at", "blob_id"} <= facts.keys():
        raise misplaced()
    most = facts.get("max_bytes")
    most = most if type(most) is int and most >= 0 else None
    return StoreInfo(facts["store_id"], facts["created_at"], format_, facts["blob_id"], number, most)


def keep_below(connection: Connection, max_bytes: int) -> None:
    connection.run(SQL.set_fact, key="max_bytes", value=max_bytes)


# --- tasks and branches -------------------------------------------------------------------------------------------


def read_task(connection: Connection, owner: str, task_id: str) -> TaskInfo | None:
    found = shaped(connection.all(SQL.task_by_id, owner=owner, id=task_id), shapes.TASK)
    return TaskInfo(*found[0]) if found else None


def require_task(connection: Connection, owner: str, task_id: str) -> TaskInfo:
    task = read_task(connection, owner, task_id)
    if task is None:
        raise NotFoundError(f"there is no task {task_id!r}", hint="store.tasks() lists them")
    return task


def read_tasks(connection: Connection, owner: str | None, after: int = 0, limit: int = 100) -> list[TaskInfo]:
    found = connection.all(SQL.tasks_page, below=after or 1 << 62, owner=owner, limit=bounded(limit))
    return [TaskInfo(*row) for row in shaped(found, shapes.TASK)]


def read_branch(connection: Connection, owner: str, branch_id: str) -> BranchInfo | None:
    found = shaped(connection.all(SQL.branch_by_id, owner=owner, id=branch_id), shapes.BRANCH)
    return _branch(found[0]) if found else None


def require_branch(connection: Connection, owner: str, branch_id: str) -> BranchInfo:
    branch = read_branch(connection, owner, branch_id)
    if branch is None:
        raise NotFoundError(f"there is no branch {branch_id!r}", hint="task.branches() lists them")
    return branch


def read_branches(connection: Connection, task: TaskInfo, *, deleted: bool = False) -> list[BranchInfo]:
    found = connection.all(SQL.all_branches_of_task if deleted else SQL.branches_of_task, task=task.number)
    return [_branch(row) for row in shaped(found, shapes.BRANCH)]


def read_position(connection: Connection, owner: str, id: str) -> Position | None:
    task = read_task(connection, owner, id)
    branch = read_branch(connection, owner, task.active_branch_id if task else id)
    if branch is None and task is None:
        return None
    found = task or (read_task(connection, owner, branch.task_id) if branch else None)
    head = read_checkpoint(connection, owner, branch.head.id) if branch and branch.head else None
    if branch is None or found is None or head is None:
        raise IntegrityError(
            f"{id!r} has lost its head", hint="its checkpoints may be whole: store.list_checkpoints(task_id) lists them"
        )
    return Position(found, branch, head, by_branch=task is None)


# --- checkpoints --------------------------------------------------------------------------------------------------


def read_checkpoint(connection: Connection, owner: str, checkpoint_id: str) -> StoredCheckpoint | None:
    return as_checkpoint(connection.all(SQL.checkpoint_by_id, id=checkpoint_id, owner=owner))


def read_checkpoint_number(connection: Connection, number: int) -> StoredCheckpoint | None:
    return as_checkpoint(connection.all(SQL.checkpoint_by_number, number=number))


def read_checkpoint_at(connection: Connection, task: TaskInfo, at: int | str) -> StoredCheckpoint | None:
    if isinstance(at, int):
        return read_checkpoint_number(connection, key(task.number, at))
    number = connection.value(SQL.tagged, task=task.number, name=at)
    return None if number is None else read_checkpoint_number(connection, counted(number))


def read_checkpoints_after(connection: Connection, number: int, limit: int) -> list[StoredCheckpoint]:
    """Read those of every task; tombstones are left out."""
    found = connection.all(SQL.checkpoints_after, number=number, limit=bounded(limit))
    return [_checkpoint(row) for row in shaped(found, shapes.CHECKPOINT)]


def read_tags(connection: Connection, task: TaskInfo) -> dict[str, Head]:
    found = shaped(connection.all(SQL.tags, task=task.number), shapes.TAG)
    return {name: Head(id_, checksum, sequence_of(number), branch) for name, id_, checksum, number, branch in found}


def find_ids(connection: Connection, owner: str, prefix: str, limit: int = 2) -> list[str]:
    # Every text that begins with `prefix` lies between it and it followed by the last character there is.
    beyond = prefix + _LAST_CHARACTER
    return [row[0] for row in connection.all(SQL.ids_between, prefix=prefix, beyond=beyond, owner=owner, limit=limit)]


def read_checkpoints(
    connection: Connection,
    among: HistoryRange,
    *,
    before: int | None = None,
    limit: int = 100,
    type: str | None = None,
    verified: bool = False,
) -> list[StoredCheckpoint]:
    return (_read_verified if verified else _read_page)(connection, among, before, bounded(limit), type)


def _read_page(
    connection: Connection, among: HistoryRange, before: int | None, limit: int, type_: str | None
) -> list[StoredCheckpoint]:
    """Read the newest checkpoints of a range. IntegrityError when some that were stored are not found."""
    sql = _page_of(among, type_)
    found: list[StoredCheckpoint] = []
    for branch, newest in _segments(connection, among):
        values = {**_bounds(among, newest, before), "limit": limit - len(found)}
        values |= {} if branch is None else {"branch": branch}
        values |= {} if type_ is None else {"type": type_}
        found += map(_checkpoint, shaped(connection.all(sql, **values), shapes.CHECKPOINT))
        if len(found) >= limit:
            break
    sequences = [stored.placement.sequence for stored in found]
    if any(newer <= older for newer, older in itertools.pairwise(sequences)):
        raise misplaced()
    if type_ is None and not _is_complete(connection, among, before, found, limit):
        raise IntegrityError(
            f"the list of {among.task.id!r} has holes: checkpoints that were stored are not found",
            hint="the database is damaged; bring it back from a copy",
        )
    return found


def _read_verified(
    connection: Connection, among: HistoryRange, before: int | None, limit: int, type_: str | None
) -> list[StoredCheckpoint]:
    """Read the newest checkpoints of a range whose last recorded verification held."""
    segments = _segments(connection, among)
    if among.branch is None:  # by branch, each of which has an index of its verified ones
        branches = connection.all(SQL.branch_numbers, task=among.task.number)
        segments = iter([(counted(branch), MAX_SEQUENCE) for (branch,) in branches])
    found: list[StoredCheckpoint] = []
    for branch, newest in segments:
        values = {"branch": branch, "type": type_, "limit": limit, **_bounds(among, newest, before)}
        found += map(_checkpoint, shaped(connection.all(SQL.verified_page_of_branch, **values), shapes.CHECKPOINT))
        if among.branch is not None and len(found) >= limit:
            break
    return sorted(found, key=lambda stored: -stored.placement.sequence)[:limit]


def _page_of(among: HistoryRange, type_: str | None) -> str:
    if among.branch is None:
        return SQL.page if type_ is None else SQL.page_of_type
    return SQL.page_of_branch if type_ is None else SQL.page_of_branch_and_type


def _bounds(among: HistoryRange, newest: int, before: int | None) -> dict[str, Any]:
    task = among.task.number
    last = MAX_SEQUENCE if before is None else max(0, min(before, MAX_SEQUENCE) - 1)
    return {"low": key(task, 0), "high": key(task, min(last, newest))}


def _is_complete(
    connection: Connection, among: HistoryRange, before: int | None, found: list[StoredCheckpoint], limit: int
) -> bool:
    """Whether what was found can be all there is: a page that the disk wrote in the wrong place fits its checksum.

    Sequences are dense, deleted ones included; and a list of a branch to its end has as many as are counted.
    """
    at_end = len(found) < limit
    if among.branch is not None:
        return not at_end or before is not None or len(found) == count(connection, among)
    task = among.task.number
    last = counted(connection.value(SQL.last_sequence, task=task) or 0)
    high = last if before is None else min(last, before - 1)
    low = 1 if at_end else found[-1].placement.sequence
    there = connection.value(SQL.count_between, low=key(task, low), high=key(task, high)) if low <= high else 0
    return bool(there == max(0, high - low + 1))


def count(connection: Connection, among: HistoryRange, type: str | None = None) -> int:
    task = among.task.number
    if type is not None:
        total = sum(
            connection.value(SQL.count_of_type, type=type, low=key(task, 0), high=key(task, newest), branch=branch)
            for branch, newest in _segments(connection, among)
        )
    elif among.branch is None:
        total = connection.value(SQL.count_of_task, task=task)
    else:
        total = connection.value(SQL.count_of_branch, branch=among.branch.number)
    return counted(total or 0)


# --- content ------------------------------------------------------------------------------------------------------


def read_root(connection: Connection, stored: StoredCheckpoint) -> Blob | None:
    found = shaped(connection.all(SQL.root, number=key(stored.task_number, stored.placement.sequence)), shapes.ROOT)
    if not found or found[0][2] is None:
        return None
    size, encoding, data = found[0]
    return Blob(b"", counted(size), counted(encoding), data)


def read_blobs(connection: Connection, partition: int, digests: Iterable[bytes]) -> dict[bytes, Blob]:
    wanted = [{"partition": partition, "digest": digest} for digest in digests]
    found = shaped(connection.all_many(SQL.blob, wanted), shapes.BLOB)
    blobs = {row[0]: Blob(row[0], row[1], row[2], row[3], None, row[4] and _pack_range(*row[4:])) for row in found}
    wanted = [one for one in wanted if one["digest"] not in blobs]
    found = shaped(connection.all_many(SQL.slice, wanted), shapes.SLICE) if wanted else []
    for digest, size, encoding, data, *whole in found:
        blobs[digest] = Blob(digest, size, encoding, data, ContainingBlob(*whole))
    return blobs


def has_blobs(connection: Connection, partition: int, digests: Iterable[bytes]) -> set[bytes]:
    wanted = [{"partition": partition, "digest": digest} for digest in digests]
    return {digest for (digest,) in connection.all_many(SQL.has_blob, wanted)}


def has_files(connection: Connection) -> bool:
    return connection.value(SQL.any_blob, partition=FILES) is not None


def _pack_range(pack: str, position: int | None, length: int | None) -> PackRange:
    return PackRange(pack, counted(position), counted(length))


# --- attestations and events --------------------------------------------------------------------------------------


def read_attestations(connection: Connection, owner: str, checkpoint_id: str) -> list[tuple[Attestation, bytes]]:
    number = connection.value(SQL.checkpoint_number, id=checkpoint_id, owner=owner)
    if number is None:
        raise NotFoundError(
            f"there is no checkpoint {checkpoint_id!r}", hint="store.list_checkpoints(task_id) lists them"
        )
    return attestations_of(connection, number)


def attestations_of(connection: Connection, number: int) -> list[tuple[Attestation, bytes]]:
    return [
        (Attestation(count, kind, at, actor, decode_plain(data)), digest)
        for count, kind, at, actor, data, digest in shaped(
            connection.all(SQL.attestations, checkpoint=number), shapes.ATTESTATION
        )
    ]


def read_events(connection: Connection, task: TaskInfo | None, *, after: int = 0, limit: int = 100) -> list[Event]:
    """Read what the log says, and what the checkpoints themselves tell of how they were made, in one order."""
    number = STORE if task is None else task.number
    after, limit = max(0, min(after, MAX_SEQUENCE)), bounded(limit)
    high = key(number, MAX_SEQUENCE)
    logged = connection.all(SQL.events_after, low=key(number, after), high=high, limit=limit)
    first = key(number, _first_after(connection, number, after))
    made = connection.all(SQL.creations_after, low=first, high=high, limit=limit)
    return sorted(_events(logged, made), key=lambda event: event.sequence)[:limit]


def read_history(
    connection: Connection, among: HistoryRange, *, before: int | None = None, limit: int = 100
) -> list[Event]:
    task, limit = among.task.number, bounded(limit)
    below = MAX_SEQUENCE + 1 if before is None else max(1, min(before, MAX_SEQUENCE))
    found: list[Event] = []
    for branch, newest in _segments(connection, among):
        last = connection.value(SQL.last_event_of, number=key(task, newest)) if newest < MAX_SEQUENCE else None
        high = below - 1 if last is None else min(below - 1, counted(last))
        found += _history_of(connection, task, branch, high, limit - len(found))
        if len(found) >= limit:
            break
    return found


def _history_of(connection: Connection, task: int, branch: int | None, high: int, limit: int) -> list[Event]:
    """Read the newest events of a branch, or of all, up to the number `high`."""
    values = {"low": key(task, 0), "branch": branch, "limit": limit}
    logged = connection.all(SQL.events_before, **values, high=key(task, high))
    newest = key(task, _first_after(connection, task, high) - 1)
    made = connection.all(SQL.creations_before, **values, high=newest)
    return sorted(_events(logged, made), key=lambda event: -event.sequence)[:limit]


def _events(logged: list[Row], made: list[Row]) -> list[Event]:
    found = [_event(row) for row in shaped(logged, shapes.EVENT)]
    return [*found, *(_creation(row) for row in shaped(made, shapes.CREATION))]


def read_creation(connection: Connection, number: int) -> Event:
    return _creation(connection.all(SQL.creation_of, number=number)[0])


def log(
    connection: Connection,
    task: int,
    branch: int | None,
    checkpoint: int | None,
    kind: str,
    actor: Actor,
    data: dict[str, Any],
    made: tuple[int, int] | None = None,
) -> None:
    """Append to a task's log. `made`: the number and time of the creation of a checkpoint whose row told of it."""
    event, at = made or (connection.value(SQL.next_event, task=task), connection.now())
    connection.run(
        SQL.insert_event,
        number=key(task, event),
        branch=branch,
        checkpoint=checkpoint,
        kind=kind,
        at=at,
        actor=actor.user,
        correlation_id=actor.correlation_id,
        data=encode_plain(data) if data else None,
    )


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


def _first_after(connection: Connection, task: int, event: int) -> int:
    """Find the first sequence whose checkpoint came after `event`: both only ever grow, so halve the interval."""
    low, high = 1, event + 1
    while low < high:
        middle = (low + high) // 2
        at = connection.value(SQL.last_event_of, number=key(task, middle))
        low, high = (low, middle) if at is None or counted(at) > event else (middle + 1, high)
    return low


# --- rows as values -----------------------------------------------------------------------------------------------


def _segments(connection: Connection, among: HistoryRange) -> Iterator[tuple[int | None, int]]:
    """(branch, newest sequence) from a branch back to the beginning; (None, any) for a whole task.

    A branch's own checkpoints are all newer than the one it began from, so segments never overlap.
    """
    if among.branch is None:
        yield None, MAX_SEQUENCE
        return
    branch: int | None = among.branch.number
    newest = MAX_SEQUENCE
    while branch is not None:
        yield branch, newest
        found = shaped(connection.all(SQL.origin_of_branch, branch=branch), shapes.ORIGIN)
        if not found:
            raise misplaced()
        branch, newest = found[0]


def bounded(limit: int) -> int:
    return max(1, min(limit, MAX_PAGE))


def as_checkpoint(found: list[Row]) -> StoredCheckpoint | None:
    """Return what a query for one checkpoint has found."""
    return _checkpoint(shaped(found, shapes.CHECKPOINT)[0]) if found else None


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
