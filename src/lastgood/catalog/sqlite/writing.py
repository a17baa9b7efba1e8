"""What changes a catalog: commit, attestations, purge, removal. Each function runs inside a writing transaction."""

from __future__ import annotations

from typing import Any, NamedTuple

import apsw

from lastgood.catalog.contract import Actor, Commit, Committed, NewBranch, StoredCheckpoint
from lastgood.catalog.sqlite.reading import (
    MAX_SEQUENCE,
    key,
    one_row,
    read_attestations,
    read_branch,
    read_checkpoint,
    read_checkpoint_number,
    read_task,
    rows,
)
from lastgood.errors import ConflictError, InvalidError, NotFoundError
from lastgood.model.checkpoint import (
    Attestation,
    Head,
    Placement,
    decode_record,
    encode_plain,
)
from lastgood.model.identity import now

DELETED, PURGED = 1, 2
_EMPTY = encode_plain({})

_INSERT_BLOB = """
  INSERT INTO blobs (partition, digest, size, encoding, data) VALUES (?, ?, ?, ?, ?)
  ON CONFLICT (partition, digest) DO UPDATE SET condemned = NULL WHERE condemned IS NOT NULL"""
_INSERT_SLICE = """
  INSERT INTO slices SELECT ?1, b.digest, b.size, w.blob, ?4 FROM blobs b, blobs w
  WHERE b.partition = ?1 AND b.digest = ?2 AND w.partition = ?1 AND w.digest = ?3 ON CONFLICT DO NOTHING"""
_INSERT_CHECKPOINT = """
  INSERT INTO checkpoints (number, branch, owner, id, type, version, last_event, checksum, placement, record,
                           root_size, encoding, root)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_INSERT_EVENT = """
  INSERT INTO events (number, branch, checkpoint, kind, at, actor, correlation_id, data)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_DESCENDANTS = """
  WITH RECURSIVE heirs (branch) AS (
    SELECT branch FROM branches WHERE origin_branch = ?1 AND origin >= ?2
    UNION ALL SELECT b.branch FROM branches b JOIN heirs h ON b.origin_branch = h.branch)
  UPDATE branches SET inherited = inherited + ?3 WHERE branch IN heirs"""


_LINE = """
  SELECT t.task, b.branch, b.id, t.active_branch = b.branch, b.version, b.control_state, t.last_sequence, t.last_event,
         b.head, c.id, c.checksum
  FROM branches b JOIN tasks t USING (task) JOIN checkpoints c ON c.number = (b.task << 32) + b.head
  WHERE b.owner = ? AND b.id = ? AND t.id = ?"""


class _Line(NamedTuple):
    """A branch about to be advanced, with its task's counters."""

    task: int
    branch: int
    branch_id: str
    active: bool
    version: int
    control_state: str
    last_sequence: int
    last_event: int


def commit(connection: apsw.Connection, commit: Commit, actor: Actor) -> Committed:
    record = commit.record
    earlier = _find_earlier(connection, commit) if commit.may_repeat else None
    if earlier is not None:
        return Committed(earlier, record.control_state, repeated=True)
    line = _open_line(connection, commit)
    sequence, event, version = line.last_sequence + 1, line.last_event + 1, line.version + 1
    if sequence > MAX_SEQUENCE or event > MAX_SEQUENCE:
        raise InvalidError("this task is full: it has 2^32 checkpoints or events", hint="begin a new task")
    placement = Placement(line.branch_id, sequence, version, event)
    number = key(line.task, sequence)
    connection.executemany(_INSERT_BLOB, ((line.task, *blob[:4]) for blob in commit.blobs))
    for part in commit.slices:
        connection.execute(_INSERT_SLICE, (line.task, *part))
        connection.execute(
            "DELETE FROM blobs WHERE partition = ?1 AND digest = ?2 AND EXISTS "
            "(SELECT 1 FROM slices WHERE partition = ?1 AND digest = ?2)",
            (line.task, part.digest),
        )
    connection.execute(
        _INSERT_CHECKPOINT,
        (
            number,
            line.branch,
            commit.owner,
            record.id,
            record.type,
            version,
            event,
            commit.checksum,
            placement_digest := placement.digest(commit.checksum),
            commit.data,
            *(commit.root[1:4] if commit.root else (None, None, None)),
        ),
    )
    connection.execute(
        "UPDATE branches SET head = ?, version = ?, own = own + 1, control_state = ? WHERE branch = ?",
        (sequence, version, record.control_state, line.branch),
    )
    connection.execute(
        """UPDATE tasks SET last_sequence = ?, last_event = ?, checkpoints = checkpoints + 1,
                            active_branch = iif(?, ?, active_branch) WHERE task = ?""",
        (sequence, event, line.active, line.branch, line.task),
    )
    kind = "branched" if isinstance(commit.branch, NewBranch) and record.parent_id else "created"
    connection.execute(
        _INSERT_EVENT,
        (key(line.task, event), line.branch, number, kind, record.created_at, actor.user, actor.correlation_id, None),
    )
    if record.key is not None:
        connection.execute("INSERT INTO keys VALUES (?, ?, ?)", (line.task, record.key, number))
    for kind, data in commit.attestations:
        _append(connection, number, commit.checksum, kind, data, actor)
    stored = StoredCheckpoint(
        id=record.id,
        owner=commit.owner,
        task_id=record.task_id,
        task_number=line.task,
        data=commit.data,
        checksum=commit.checksum,
        placement=placement,
        placement_digest=placement_digest,
        verified=any(kind == "verification" and bool(data.get("verified")) for kind, data in commit.attestations),
        verified_at=None,
        deleted=False,
        tags=(),
    )
    return Committed(stored, line.control_state)


def _find_earlier(connection: apsw.Connection, commit: Commit) -> StoredCheckpoint | None:
    """The checkpoint that is stored under this key or this id. Raises ConflictError if it says something else."""
    record = commit.record
    earlier = read_checkpoint(connection, commit.owner, record.id)
    what = f"the id {record.id!r}"
    if earlier is None and record.key is not None:
        number = connection.execute(
            "SELECT number FROM keys JOIN tasks USING (task) WHERE owner = ? AND id = ? AND key = ?",
            (commit.owner, record.task_id, record.key),
        ).get
        earlier = None if number is None else read_checkpoint_number(connection, number)
        what = f"the key {record.key!r}"
    if earlier is None:
        return None
    if earlier.data is not None:
        stored = decode_record(earlier.data, earlier.checksum, f"checkpoint {earlier.id}")
        if stored.says_the_same_as(record):
            return earlier
    raise ConflictError(
        f"{what} is taken by a checkpoint with other content",
        hint="use a new key for new content",
        head=Head(earlier.id, earlier.checksum, earlier.placement.sequence, earlier.placement.branch_id),
    )


def _open_line(connection: apsw.Connection, commit: Commit) -> _Line:
    """The branch to advance, made if need be, with its head where the writer saw it."""
    if isinstance(commit.branch, NewBranch):
        return _make_branch(connection, commit, commit.branch)
    task_id = commit.record.task_id
    row = one_row(connection, _LINE, (commit.owner, commit.branch, task_id))
    if row is None:
        raise NotFoundError(f"there is no branch {commit.branch!r} of {task_id!r}", hint="was it deleted?")
    line = _Line(*row[:8])
    if commit.only_if_active and not line.active:
        raise ConflictError(
            f"the active branch of {task_id!r} is another one now",
            hint="open the task again to go on there, or the branch by its own id",
            head=_active_head(connection, commit.owner, task_id),
        )
    head, head_id, checksum = row[8:]
    if head_id != commit.record.parent_id:
        raise _moved(task_id, Head(head_id, checksum, head, line.branch_id))
    return line


def _make_branch(connection: apsw.Connection, commit: Commit, new: NewBranch) -> _Line:
    record = commit.record
    task = read_task(connection, commit.owner, record.task_id)
    if record.parent_id is None:
        if task is not None:
            raise _moved(task.id, _active_head(connection, commit.owner, task.id))
        return _make_task(connection, commit, new)
    origin = read_checkpoint(connection, commit.owner, record.parent_id)
    if task is None or origin is None or origin.task_id != task.id or origin.data is None:
        raise NotFoundError(f"there is no checkpoint {record.parent_id!r} to branch from", hint="was it purged?")
    if connection.execute("SELECT 1 FROM branches WHERE task = ? AND name = ?", (task.number, new.name)).get:
        raise ConflictError(f"{task.id!r} has a branch named {new.name!r} already", hint="give another name")
    origin_branch, inherited = rows(
        connection,
        """SELECT branch, inherited + (SELECT count(*) FROM checkpoints c
                                       WHERE c.branch = b.branch AND c.number <= ?2 AND c.deleted = 0)
           FROM branches b WHERE owner = ?3 AND id = ?1""",
        (origin.placement.branch_id, key(task.number, origin.placement.sequence), commit.owner),
    )[0]
    branch = _insert_branch(connection, commit, new, task.number, origin_branch, origin, inherited)
    return _Line(task.number, branch, new.id, new.active, 0, record.control_state, task.last_sequence, task.last_event)


def _make_task(connection: apsw.Connection, commit: Commit, new: NewBranch) -> _Line:
    record = commit.record
    if read_branch(connection, commit.owner, record.task_id) is not None:
        raise ConflictError(f"{record.task_id!r} is the id of a branch", hint="give the task another id")
    connection.execute(
        "INSERT INTO tasks (owner, id, created_at, active_branch, last_sequence, last_event, checkpoints) "
        "VALUES (?, ?, ?, 0, 0, 0, 0)",
        (commit.owner, record.task_id, record.created_at),
    )
    task = connection.last_insert_rowid()
    branch = _insert_branch(connection, commit, new, task, None, None, 0)
    return _Line(task, branch, new.id, True, 0, "idle", 0, 0)


def _insert_branch(
    connection: apsw.Connection,
    commit: Commit,
    new: NewBranch,
    task: int,
    origin_branch: int | None,
    origin: StoredCheckpoint | None,
    inherited: int,
) -> int:
    connection.execute(
        """INSERT INTO branches (task, owner, id, name, description, origin_branch, origin, origin_id, head, version,
             control_state, own, inherited, created_at, created_by, metadata)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 'idle', 0, ?, ?, ?, ?)""",
        (
            task,
            commit.owner,
            new.id,
            new.name,
            new.description,
            origin_branch,
            origin.placement.sequence if origin else 0,
            origin.id if origin else None,
            inherited,
            commit.record.created_at,
            commit.record.created_by,
            encode_plain(new.metadata) if new.metadata else _EMPTY,
        ),
    )
    return connection.last_insert_rowid()


def _active_head(connection: apsw.Connection, owner: str, task_id: str) -> Head | None:
    task = read_task(connection, owner, task_id)
    branch = read_branch(connection, owner, task.active_branch_id) if task else None
    return branch.head if branch else None


def _moved(task_id: str, head: Head | None) -> ConflictError:
    return ConflictError(
        f"{task_id!r} has moved on since this handle last saw it",
        hint="look at error.head, then task.refresh() and save again on top of it",
        head=head,
    )


# --- afterwards --------------------------------------------------------------------------------------------


class _Subject(NamedTuple):
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
    subject = _subject(connection, owner, checkpoint_id)
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
        _hide(connection, subject, DELETED)
    elif kind == "undeleted":
        _count(connection, subject, 1)
        connection.execute("UPDATE checkpoints SET deleted = 0 WHERE number = ?", (subject.number,))
    attestation = _append(connection, subject.number, subject.checksum, kind, data, actor)
    _log(connection, subject, _EVENT_OF[kind], actor, data)
    return attestation


def purge(connection: apsw.Connection, owner: str, checkpoint_id: str, actor: Actor) -> None:
    subject = _subject(connection, owner, checkpoint_id)
    _refuse_active_head(subject)
    if subject.deleted == 0:
        _hide(connection, subject, PURGED)
    connection.execute("DELETE FROM tags WHERE number = ?", (subject.number,))
    connection.execute("DELETE FROM keys WHERE task = ? AND number = ?", (subject.task, subject.number))
    connection.execute("DELETE FROM attestations WHERE checkpoint = ?", (subject.number,))
    connection.execute(
        """UPDATE checkpoints SET record = NULL, root_size = NULL, encoding = NULL, root = NULL,
                                  deleted = ?, verified = 0, verified_at = NULL WHERE number = ?""",
        (PURGED, subject.number),
    )
    _append(connection, subject.number, subject.checksum, "purged", {}, actor)
    _log(connection, subject, "purged", actor, {})


def delete_task(connection: apsw.Connection, owner: str, task_id: str, actor: Actor) -> int:
    task = read_task(connection, owner, task_id)
    if task is None:
        raise NotFoundError(f"there is no task {task_id!r}", hint="`lastgood tasks` lists them")
    low, high = key(task.number, 0), key(task.number, MAX_SEQUENCE)
    for table, column in (("checkpoints", "number"), ("events", "number"), ("attestations", "checkpoint")):
        connection.execute(f"DELETE FROM {table} WHERE {column} BETWEEN ? AND ?", (low, high))
    for table, column in (
        ("tags", "task"),
        ("keys", "task"),
        ("blobs", "partition"),
        ("slices", "partition"),
        ("branches", "task"),
        ("tasks", "task"),
    ):
        connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (task.number,))
    last = connection.execute("SELECT max(number) FROM events WHERE number <= ?", (MAX_SEQUENCE,)).get or 0
    data = encode_plain({"task_id": task_id, "owner": owner, "checkpoints": task.checkpoints})
    connection.execute(
        _INSERT_EVENT, (last + 1, None, None, "task_deleted", now(), actor.user, actor.correlation_id, data)
    )
    return task.checkpoints


def _subject(connection: apsw.Connection, owner: str, checkpoint_id: str) -> _Subject:
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
    return _Subject(*row)


def _refuse_active_head(subject: _Subject) -> None:
    if subject.is_active_head:
        raise ConflictError(
            "this is the newest checkpoint of the active branch; the work stands on it",
            hint="save or restore another one first, or delete the whole task",
        )


def _holds_already(connection: apsw.Connection, subject: _Subject, kind: str, data: dict[str, Any]) -> bool:
    if kind in ("deleted", "undeleted"):
        return bool(subject.deleted) == (kind == "deleted")
    if kind in ("tag", "untag"):
        at = connection.execute("SELECT number FROM tags WHERE task = ? AND name = ?", (subject.task, data["name"])).get
        return bool(at == subject.number) == (kind == "tag")
    return False


def _move_tag(connection: apsw.Connection, subject: _Subject, data: dict[str, Any], actor: Actor) -> None:
    name = data["name"]
    other = connection.execute("SELECT number FROM tags WHERE task = ? AND name = ?", (subject.task, name)).get
    if other is not None:
        if not data.get("move"):
            raise ConflictError(
                f"another checkpoint is tagged {name!r}", hint="move the tag on purpose (move=True, --move)"
            )
        checksum = connection.execute("SELECT checksum FROM checkpoints WHERE number = ?", (other,)).get
        _append(connection, other, checksum, "untag", {"name": name}, actor)
    connection.execute("INSERT OR REPLACE INTO tags VALUES (?, ?, ?)", (subject.task, name, subject.number))


def _hide(connection: apsw.Connection, subject: _Subject, how: int) -> None:
    connection.execute("UPDATE checkpoints SET deleted = ? WHERE number = ?", (how, subject.number))
    _count(connection, subject, -1)


def _count(connection: apsw.Connection, subject: _Subject, change: int) -> None:
    """Keep every total that counts this checkpoint: its task's, its branch's, and those of branches from it."""
    connection.execute("UPDATE tasks SET checkpoints = checkpoints + ? WHERE task = ?", (change, subject.task))
    connection.execute("UPDATE branches SET own = own + ? WHERE branch = ?", (change, subject.branch))
    connection.execute(_DESCENDANTS, (subject.branch, subject.number & MAX_SEQUENCE, change))


def _append(
    connection: apsw.Connection, number: int, checksum: bytes, kind: str, data: dict[str, Any], actor: Actor
) -> Attestation:
    last = connection.execute("SELECT max(number) FROM attestations WHERE checkpoint = ?", (number,)).get or 0
    attestation = Attestation(last + 1, kind, now(), actor.user, data)
    connection.execute(
        "INSERT INTO attestations (checkpoint, number, kind, at, actor, data, digest) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            number,
            attestation.number,
            kind,
            attestation.at,
            actor.user,
            encode_plain(data),
            attestation.digest(checksum),
        ),
    )
    if kind == "verification":
        connection.execute(
            "UPDATE checkpoints SET verified = ?, verified_at = ? WHERE number = ?",
            (bool(data.get("verified")), attestation.at, number),
        )
    return attestation


def _log(connection: apsw.Connection, subject: _Subject, kind: str, actor: Actor, data: dict[str, Any]) -> None:
    event = connection.execute(
        "UPDATE tasks SET last_event = last_event + 1 WHERE task = ? RETURNING last_event", (subject.task,)
    ).get
    connection.execute(
        _INSERT_EVENT,
        (
            key(subject.task, event),
            subject.branch,
            subject.number,
            kind,
            now(),
            actor.user,
            actor.correlation_id,
            encode_plain(data) if data else None,
        ),
    )
