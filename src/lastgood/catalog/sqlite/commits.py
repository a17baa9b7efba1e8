"""Committing a checkpoint with all that becomes visible with it. Runs inside a writing transaction."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import apsw
import msgspec

from lastgood.catalog.sqlite.attestations import INSERT_EVENT, insert
from lastgood.catalog.sqlite.branches import (
    active_head,
    expect_active,
    keep_redo,
    moved,
    record_files_move,
    record_move,
)
from lastgood.catalog.sqlite.files import write_files
from lastgood.catalog.sqlite.leases import carry, check_lease, leased_branch
from lastgood.catalog.sqlite.reading import (
    MAX_SEQUENCE,
    Row,
    key,
    number_of,
    one_row,
    read_checkpoint,
    read_checkpoint_number,
    read_task,
    rows,
)
from lastgood.catalog.sqlite.requests import is_wanted, meet
from lastgood.catalog.sqlite.steps import begin_step, take_step
from lastgood.catalog.values import Actor, Commit, Committed, NewBranch, NewEvent, StoredCheckpoint
from lastgood.errors import ConflictError, InvalidError, NotFoundError
from lastgood.model.checkpoint import (
    Attestation,
    Head,
    Placement,
    decode_record,
    encode_plain,
)
from lastgood.model.control import check_move
from lastgood.model.identity import now
from lastgood.model.task import TaskInfo

_EMPTY = encode_plain({})

_INSERT_BLOB = """
  INSERT INTO blobs (partition, digest, size, encoding, data) VALUES (?, ?, ?, ?, ?)
  ON CONFLICT (partition, digest) DO UPDATE SET condemned = NULL WHERE condemned IS NOT NULL"""
_INSERT_SLICE = """
  INSERT INTO slices SELECT ?1, b.digest, b.size, w.blob, ?4 FROM blobs b, blobs w
  WHERE b.partition = ?1 AND b.digest = ?2 AND w.partition = ?1 AND w.digest = ?3
    AND NOT EXISTS (SELECT 1 FROM slices WHERE whole = b.blob) ON CONFLICT DO NOTHING"""
_INSERT_CHECKPOINT = """
  INSERT INTO checkpoints (number, branch, owner, id, type, version, last_event, checksum, placement, record,
                           verified, verified_at, root_size, encoding, root)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_LINE = """
  SELECT t.task, b.branch, b.id, t.active_branch = b.branch, b.version, b.control_state, t.last_sequence, t.last_event,
         b.head, c.id, c.checksum, c.record IS NULL, (SELECT token FROM leases WHERE leases.branch = b.branch)
  FROM branches b JOIN tasks t USING (task) JOIN checkpoints c ON c.number = (b.task << 32) + b.head
  WHERE b.owner = ? AND b.id = ? AND t.id = ? AND b.deleted = 0"""


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


def commit(connection: apsw.Connection, commit: Commit, actor: Actor, at: int) -> Committed:
    """`at` is what the catalog's clock says."""
    record = commit.record
    earlier = _find_earlier(connection, commit) if commit.may_repeat else None
    if earlier is not None:
        if commit.step is not None:
            connection.execute("DELETE FROM steps WHERE owner = ? AND id = ?", (commit.owner, commit.step))
        return Committed(earlier, record.control_state, repeated=True)
    line = _open_line(connection, commit, at)
    meet(connection, commit.owner, commit.fulfilled)
    if commit.step is not None:
        take_step(connection, commit.owner, commit.step)
    for index, note in enumerate(commit.notes, 1):
        _write_note(connection, commit, note, key(line.task, line.last_event + index), actor)
    sequence, version = line.last_sequence + 1, line.version + 1
    event = line.last_event + len(commit.notes) + 1
    if sequence > MAX_SEQUENCE or event > MAX_SEQUENCE:
        raise InvalidError("this task is full: it has 2^32 checkpoints or events", hint="begin a new task")
    placement = Placement(line.branch_id, sequence, version, event)
    number = key(line.task, sequence)
    attested = [Attestation(n, kind, now(), actor.user, data) for n, (kind, data) in enumerate(commit.attestations, 1)]
    verification = next((a for a in reversed(attested) if a.kind == "verification"), None)
    verified = verification is not None and bool(verification.data.get("verified"))
    verified_at = verification.at if verification else None
    connection.executemany(_INSERT_BLOB, ((line.task, *blob[:4]) for blob in commit.blobs))
    for part in commit.slices:
        connection.execute(_INSERT_SLICE, (line.task, *part))
        if connection.changes():
            connection.execute("DELETE FROM blobs WHERE partition = ? AND digest = ?", (line.task, part.digest))
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
            verified,
            verified_at,
            *_root(connection, commit),
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
    write_files(connection, commit, line.task, line.branch)
    if commit.keeps_redo:
        keep_redo(connection, line.task, line.branch, line.version, version)
    if commit.files_move and line.active and record.parent_id is not None:  # on another branch the task does not move
        before = number_of(connection, commit.owner, record.parent_id)
        record_files_move(connection, line.task, line.branch, before or 0, number)
    if record.key is not None:
        connection.execute("INSERT INTO keys VALUES (?, ?, ?)", (line.task, record.key, number))
    for attestation in attested:
        insert(connection, number, commit.checksum, attestation)
    begun = _begin_next(connection, commit, line)
    stored = StoredCheckpoint(
        id=record.id,
        owner=commit.owner,
        task_id=record.task_id,
        task_number=line.task,
        data=commit.data,
        checksum=commit.checksum,
        placement=placement,
        placement_digest=placement_digest,
        verified=verified,
        verified_at=verified_at,
        deleted=False,
        tags=(),
    )
    return Committed(stored, line.control_state, begun=begun)


def _begin_next(connection: apsw.Connection, commit: Commit, line: _Line) -> bool:
    if commit.begins is None or is_wanted(connection, line.branch):
        return False
    begin_step(connection, commit.begins)
    return True


def _root(connection: apsw.Connection, commit: Commit) -> Row:
    if commit.keep_root:
        row = one_row(
            connection,
            "SELECT root_size, encoding, root FROM checkpoints WHERE id = ? AND owner = ? AND record IS NOT NULL",
            (commit.record.parent_id, commit.owner),
        )
        if row is None:
            raise NotFoundError("the state to go on with was purged", hint="go on from another checkpoint")
        return row
    return commit.root[1:4] if commit.root else (None, None, None)


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
        if stored.says_the_same_as(record, commit.inherited):
            return earlier
    raise ConflictError(
        f"{what} is taken by a checkpoint with other content",
        hint="use a new key for new content",
        head=Head(earlier.id, earlier.checksum, earlier.placement.sequence, earlier.placement.branch_id),
    )


def _open_line(connection: apsw.Connection, commit: Commit, at: int) -> _Line:
    """The branch to advance, made if need be, with its head where the writer saw it."""
    if isinstance(commit.branch, NewBranch):
        return _make_branch(connection, commit, commit.branch, at)
    task_id = commit.record.task_id
    row = one_row(connection, _LINE, (commit.owner, commit.branch, task_id))
    if commit.lease is not None:  # whoever lost the branch hears that first, not where its head is now
        check_lease(connection, row[1] if row else leased_branch(connection, commit.lease), commit.lease, at)
    if row is None:
        if commit.only_if_active:  # whoever follows the task finds it elsewhere, or gone
            raise moved(task_id, active_head(connection, commit.owner, task_id))
        raise NotFoundError(f"there is no branch {commit.branch!r} of {task_id!r}", hint="was it deleted?")
    line = _Line(*row[:8])
    if commit.only_if_active and not line.active:
        raise ConflictError(
            f"the active branch of {task_id!r} is another one now",
            hint="open the task again to go on there, or the branch by its own id",
            head=active_head(connection, commit.owner, task_id),
        )
    head, head_id, checksum, is_purged, is_leased = row[8:]
    if head_id != commit.record.parent_id:
        raise moved(task_id, Head(head_id, checksum, head, line.branch_id))
    if is_purged:
        raise _purged()
    if commit.lease is None and is_leased is not None:
        check_lease(connection, line.branch, None, at)
    check_move(line.control_state, commit.record.control_state)
    return line


def _purged() -> ConflictError:
    return ConflictError(
        "the checkpoint to go on from was purged, and with it perhaps what the new one would share with it",
        hint="go on from another checkpoint: restore or fork one",
    )


def _make_branch(connection: apsw.Connection, commit: Commit, new: NewBranch, at: int) -> _Line:
    record = commit.record
    task = read_task(connection, commit.owner, record.task_id)
    if record.parent_id is None:
        if task is None:
            return _make_task(connection, commit, new)
        if not new.is_apart:
            raise moved(task.id, active_head(connection, commit.owner, task.id))
        named = msgspec.structs.replace(new, name=_free_name(connection, task, new))
        branch = _insert_branch(connection, commit, named, task.number, None, None, 0)
        return _Line(task.number, branch, new.id, False, 0, "idle", task.last_sequence, task.last_event)
    origin = read_checkpoint(connection, commit.owner, record.parent_id)
    if task is None or origin is None or origin.task_id != task.id or origin.data is None:
        raise NotFoundError(f"there is no checkpoint {record.parent_id!r} to branch from", hint="was it purged?")
    if new.active:
        left = expect_active(connection, task, new.expects)
        check_lease(connection, left, commit.lease, at)
    elif commit.lease is not None:
        left = leased_branch(connection, commit.lease)
    origin_branch, inherited = rows(
        connection,
        """SELECT branch, inherited + (SELECT count(*) FROM checkpoints c
                                       WHERE c.branch = b.branch AND c.number <= ?2 AND c.deleted = 0)
           FROM branches b WHERE owner = ?3 AND id = ?1""",
        (origin.placement.branch_id, key(task.number, origin.placement.sequence), commit.owner),
    )[0]
    name = _free_name(connection, task, new)
    named = new if name == new.name else msgspec.structs.replace(new, name=name)
    branch = _insert_branch(connection, commit, named, task.number, origin_branch, origin, inherited)
    if new.active:
        record_move(connection, task, branch)
    if commit.lease is not None:
        carry(connection, commit.lease, left, branch)
    return _Line(task.number, branch, new.id, new.active, 0, record.control_state, task.last_sequence, task.last_event)


def _free_name(connection: apsw.Connection, task: TaskInfo, new: NewBranch) -> str:
    for number in itertools.count(2):
        name = new.name if number == 2 else f"{new.name} {number - 1}"
        if not connection.execute("SELECT 1 FROM branches WHERE task = ? AND name = ?", (task.number, name)).get:
            return name
        if not new.may_rename:
            break
    raise ConflictError(f"{task.id!r} has a branch named {new.name!r} already", hint="give another name")


def _make_task(connection: apsw.Connection, commit: Commit, new: NewBranch) -> _Line:
    record = commit.record
    sql = "SELECT deleted FROM branches WHERE owner = ? AND id = ?"
    deleted = connection.execute(sql, (commit.owner, record.task_id)).get
    if deleted:
        raise NotFoundError(f"the branch {record.task_id!r} was deleted", hint="open the task by its own id")
    if deleted is not None:
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


def _write_note(connection: apsw.Connection, commit: Commit, note: NewEvent, number: int, actor: Actor) -> None:
    branch = connection.execute(
        "SELECT branch FROM branches WHERE owner = ? AND id = ?", (commit.owner, note.branch_id)
    ).get
    about = None if note.checkpoint_id is None else number_of(connection, commit.owner, note.checkpoint_id)
    at, data = commit.record.created_at, encode_plain(note.data)
    connection.execute(INSERT_EVENT, (number, branch, about, note.kind, at, actor.user, actor.correlation_id, data))
