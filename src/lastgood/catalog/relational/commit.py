"""Committing a checkpoint with all that becomes visible with it.

Two exchanges with the database: one locks the task and reads all that the commit depends on, one writes and needs no
answer. New branches and parts of blobs take a few more.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from lastgood.catalog.relational.branches import SQL as BRANCHES
from lastgood.catalog.relational.branches import active_head, bind, expect_active, moved, record_move
from lastgood.catalog.relational.collection import SQL as COLLECTION
from lastgood.catalog.relational.connection import (
    MAX_SEQUENCE,
    Connection,
    Queries,
    Row,
    Values,
    key,
    sequence_of,
)
from lastgood.catalog.relational.deletion import SQL as DELETION
from lastgood.catalog.relational.deletion import attestation_values
from lastgood.catalog.relational.records import SQL as RECORDS
from lastgood.catalog.relational.records import as_checkpoint, read_checkpoint, read_task
from lastgood.catalog.relational.sessions import SQL as SESSIONS
from lastgood.catalog.relational.sessions import (
    begin_step,
    carry_lease,
    check_holder,
    check_lease,
    ending,
    leased_branch,
    not_open,
    step_ended,
)
from lastgood.catalog.values import FILES, Actor, Blob, Commit, Committed, NewBranch, StoredCheckpoint
from lastgood.errors import ConflictError, ContentGoneError, FolderTakenError, InvalidError, NotFoundError
from lastgood.model.checkpoint import (
    Attestation,
    Head,
    Placement,
    check_move,
    decode_record,
    encode_plain,
    encode_record,
)
from lastgood.model.identity import digest, digest_text
from lastgood.model.task import TaskInfo

SQL = Queries("commit")
_EMPTY = encode_plain({})

Found = Mapping[str, list[Row]]


class _Line(NamedTuple):
    """A branch about to be advanced, with its task's counters and the number of the checkpoint that it goes on from."""

    task: int
    branch: int
    branch_id: str
    active: bool
    version: int
    control_state: str
    last_sequence: int
    last_event: int
    parent: int | None


def commit(connection: Connection, commit: Commit, actor: Actor) -> Committed:
    connection.lock_task(commit.owner, commit.record.task_id)
    found = _read(connection, commit)
    earlier = _find_earlier(commit, found) if commit.may_repeat else None
    if earlier is not None:
        if commit.step is not None:
            connection.run(SESSIONS.end_step, owner=commit.owner, id=commit.step)
        return Committed(earlier, commit.record.control_state, repeated=True)
    line = _open_branch(connection, commit, found)
    if commit.append and line.parent is not None:
        commit = _on_top(connection, commit, line.parent)
        check_move(line.control_state, commit.record.control_state)
    _check(connection, commit, line, found)
    attested: list[Attestation] = []
    for kind, data in commit.attestations:
        attested.append(Attestation(len(attested) + 1, kind, connection.now(), actor.user, data))
    stored = _place(commit, line, attested)
    if commit.blobs or commit.slices:
        _slice(connection, commit, line.task)
    begun = commit.begins is not None and not _is_requested(connection, commit, line.branch)
    for one in commit.fulfilled:
        connection.run(SESSIONS.end_request, **ending(connection, commit.owner, one))
    if commit.step is not None:
        connection.run(SESSIONS.end_step, owner=commit.owner, id=commit.step)
    if commit.journal is not None:
        connection.run(BRANCHES.give_up_journal, id=commit.journal)
    if (applied := commit.applied) is not None:
        connection.run(BRANCHES.apply_journal, id=applied.journal, made=commit.record.id, at=applied.at)
    _write_notes(connection, commit, line, actor)
    _write_checkpoint(connection, commit, line, stored)
    _write_files(connection, commit, line, found)
    _write_moves(connection, commit, line, stored)
    for said in attested:
        number = key(line.task, stored.placement.sequence)
        connection.run(DELETION.insert_attestation, **attestation_values(number, commit.checksum, said))
    if begun and commit.begins is not None:
        begin_step(connection, commit.begins)
    return Committed(stored, line.control_state, begun=begun)


# --- the exchange that reads --------------------------------------------------------------------------------------


def _read(connection: Connection, commit: Commit) -> Found:
    """Read all that the commit depends on, by what it is."""
    owner, record = commit.owner, commit.record
    reads: dict[str, tuple[str, Values]] = {}
    if commit.may_repeat:
        reads["same id"] = (RECORDS.checkpoint_by_id, {"id": record.id, "owner": owner})
        if record.key is not None:
            about = {"owner": owner, "task_id": record.task_id, "key": record.key}
            reads["same key"] = (RECORDS.checkpoint_by_key, about)
    if commit.append and (commit.only_if_active or isinstance(commit.branch, NewBranch)):
        reads["branch"] = (SQL.active_branch, {"owner": owner, "task_id": record.task_id})
    elif isinstance(commit.branch, str):
        about = {"owner": owner, "branch_id": commit.branch, "task_id": record.task_id}
        reads["branch"] = (SQL.branch_by_id, about)
    if commit.step is not None:
        reads["step"] = (SQL.is_step_open, {"owner": owner, "id": commit.step})
    for one in commit.fulfilled:
        reads[f"request {one.id}"] = (SQL.is_request_open, {"owner": owner, "id": one.id})
    if commit.binding is not None:
        for folder in commit.binding.folders:
            about = {"owner": owner, "task_id": record.task_id, **msgspec.structs.asdict(folder)}
            reads[f"folder {folder.path}"] = (BRANCHES.binding, about)
    for pack in commit.packs:
        reads[f"pack {pack.name}"] = (SQL.is_pack_expected, {"name": pack.name})
    if commit.base not in (None, record.parent_id):
        reads["base"] = (SQL.has_record, {"id": commit.base, "owner": owner})
    return connection.all_of(reads)


def _find_earlier(commit: Commit, found: Found) -> StoredCheckpoint | None:
    """Return what is stored under this key or this id. ConflictError if that says something else."""
    record = commit.record
    what, earlier = f"the id {record.id!r}", as_checkpoint(found["same id"])
    if earlier is None:
        what, earlier = f"the key {record.key!r}", as_checkpoint(found.get("same key", []))
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


def _open_branch(connection: Connection, commit: Commit, found: Found) -> _Line:
    """Return the branch to advance, made if need be, with its head where the writer saw it."""
    task_id, rows = commit.record.task_id, found.get("branch")
    if not rows:
        if isinstance(commit.branch, NewBranch):
            return _make_branch(connection, commit, commit.branch)
        if commit.lease is not None:  # losing the branch is reported first, not where its head is now
            check_lease(connection, leased_branch(connection, commit.lease), commit.lease)
        if commit.only_if_active:  # a handle that follows the task finds it elsewhere, or gone
            raise moved(task_id, active_head(connection, commit.owner, task_id))
        raise NotFoundError(f"there is no branch {commit.branch!r} of {task_id!r}", hint="was it deleted?")
    row = rows[0]
    line = _Line(*row[:9])
    head_id, checksum, is_purged, token, expires_at = row[9:]
    holder = None if token is None else (token, expires_at)
    if commit.lease is not None:
        check_holder(connection, holder, commit.lease)
    if commit.only_if_active and not line.active:
        raise ConflictError(
            f"the active branch of {task_id!r} is another one now",
            hint="open the task again to go on there, or the branch by its own id",
            head=active_head(connection, commit.owner, task_id),
        )
    if head_id != commit.record.parent_id and not commit.append:
        raise moved(task_id, Head(head_id, checksum, sequence_of(row[8]), line.branch_id))
    if is_purged:
        raise ConflictError(
            "the checkpoint to go on from was purged, and with it perhaps what the new one would share with it",
            hint="go on from another checkpoint: restore or fork one",
        )
    if commit.lease is None and holder is not None:
        check_holder(connection, holder, None)
    if not commit.append:  # else it may be the head's
        check_move(line.control_state, commit.record.control_state)
    return line


def _on_top(connection: Connection, commit: Commit, parent: int) -> Commit:
    """Return the commit with the head as its parent, and with what the head has where the caller left it as it was."""
    data, checksum = connection.all(SQL.record, number=parent)[0]
    head = decode_record(data, checksum, "the newest checkpoint")
    kept = {name: getattr(head, name) for name in ("branch_description", *commit.inherited)}
    record = msgspec.structs.replace(commit.record, **kept, parent_id=head.id, parent_checksum=checksum)
    encoded = encode_record(record)
    return msgspec.structs.replace(commit, record=record, data=encoded, checksum=digest(encoded))


def _check(connection: Connection, commit: Commit, line: _Line, found: Found) -> None:
    """Refuse what must not be committed any more. Only what content it relies on is marked as needed."""
    for one in commit.fulfilled:
        if not found[f"request {one.id}"]:
            raise not_open(one)
    if commit.step is not None and not found["step"]:
        raise step_ended(commit.step)
    if commit.keep_root and line.parent is None:
        raise NotFoundError("the state to go on with was purged", hint="go on from another checkpoint")
    if line.last_sequence >= MAX_SEQUENCE or line.last_event + len(commit.notes) >= MAX_SEQUENCE:
        raise InvalidError("this task is full: it has 2^32 checkpoints or events", hint="begin a new task")
    if commit.binding is not None and not commit.binding.takes_over:
        _check_folders([folder.path for folder in commit.binding.folders], line, found)
    for pack in commit.packs:
        if not found[f"pack {pack.name}"]:
            raise _gone("a pack that this checkpoint brings was taken for one that nobody will commit")
    if commit.relies_on:
        _guard(connection, commit)
    if not found.get("base", True):
        raise _gone("the checkpoint whose files these go on from was purged")


def _check_folders(paths: Sequence[str], line: _Line, found: Found) -> None:
    for path in paths:
        for branch, branch_id, name, is_deleted in found[f"folder {path}"]:
            if branch != line.branch and not is_deleted:
                raise FolderTakenError(
                    f"the files in {path} are those of the branch {name!r} now",
                    hint="go on with the handle that restored them, or go to that branch and leave them as they are: "
                    f"store.task(…, workspace=False).switch({branch_id!r})",
                    branch_id=branch_id,
                )


def _guard(connection: Connection, commit: Commit) -> None:
    brought = {blob.digest for blob in commit.file_blobs}
    brought |= {entry.digest for pack in commit.packs for entry in pack.entries}
    missing = set(commit.relies_on) - brought
    missing -= connection.guard_blobs(list(missing))
    if missing:
        sentence = "content of files that this checkpoint relies on is gone from the store"
        raise _gone(sentence, sorted(map(digest_text, missing)))


def _gone(sentence: str, blobs: list[str] | None = None) -> ContentGoneError:
    return ContentGoneError(sentence, hint="save again: the files are read anew", blobs=blobs or [])


def _is_requested(connection: Connection, commit: Commit, branch: int) -> bool:
    """Whether a request to the branch is open that this commit does not end."""
    ended = {one.id for one in commit.fulfilled}
    return any(id_ not in ended for (id_,) in connection.all(SESSIONS.ids_of_open_requests, branch=branch))


# --- new branches and tasks ---------------------------------------------------------------------------------------


def _make_branch(connection: Connection, commit: Commit, new: NewBranch) -> _Line:
    record = commit.record
    task = read_task(connection, commit.owner, record.task_id)
    if record.parent_id is None:
        if task is None:
            return _make_task(connection, commit, new)
        if not new.is_apart:
            raise moved(task.id, active_head(connection, commit.owner, task.id))
        branch = _insert_branch(connection, commit, new, task.number, _free_name(connection, task, new))
        return _Line(task.number, branch, new.id, False, 0, "idle", task.last_sequence, task.last_event, None)
    origin = read_checkpoint(connection, commit.owner, record.parent_id)
    if task is None or origin is None or origin.task_id != task.id or origin.data is None:
        raise NotFoundError(f"there is no checkpoint {record.parent_id!r} to branch from", hint="was it purged?")
    if new.active:
        left = expect_active(connection, task, new.expects)
        holder = connection.one(SQL.holder, branch=left)
        if holder is not None or commit.lease is not None:
            check_holder(connection, holder, commit.lease)
    elif commit.lease is not None:
        left = leased_branch(connection, commit.lease)
    parent = key(task.number, origin.placement.sequence)
    origin_branch, inherited = connection.all(
        SQL.origin, owner=commit.owner, branch_id=origin.placement.branch_id, number=parent
    )[0]
    begins = {"origin_branch": origin_branch, "origin": origin.placement.sequence, "origin_id": origin.id}
    name = _free_name(connection, task, new)
    branch = _insert_branch(connection, commit, new, task.number, name, **begins, inherited=inherited)
    if new.active:
        record_move(connection, task, branch)
    if commit.lease is not None:
        carry_lease(connection, commit.lease, left, branch)
    state, counters = record.control_state, (task.last_sequence, task.last_event)
    return _Line(task.number, branch, new.id, new.active, 0, state, *counters, parent)


def _free_name(connection: Connection, task: TaskInfo, new: NewBranch) -> str:
    base, _, digits = new.name.rpartition("-")
    is_numbered = bool(base) and digits.isascii() and digits.isdecimal() and len(digits) < 10
    base, first = (base, int(digits)) if is_numbered else (new.name, 1)
    for number in itertools.count(first):
        name = new.name if number == first else f"{base}-{number}"
        if not connection.value(SQL.is_name_taken, task=task.number, name=name):
            return name
        if not new.may_rename:
            break
    raise ConflictError(f"{task.id!r} has a branch named {new.name!r} already", hint="give another name")


def _make_task(connection: Connection, commit: Commit, new: NewBranch) -> _Line:
    record = commit.record
    deleted = connection.value(SQL.deleted_branch, owner=commit.owner, id=record.task_id)
    if deleted:
        raise NotFoundError(f"the branch {record.task_id!r} was deleted", hint="open the task by its own id")
    if deleted is not None:
        raise ConflictError(f"{record.task_id!r} is the id of a branch", hint="give the task another id")
    task = connection.value(SQL.insert_task, owner=commit.owner, id=record.task_id, created_at=record.created_at)
    branch = _insert_branch(connection, commit, new, task, new.name)
    return _Line(task, branch, new.id, True, 0, "idle", 0, 0, None)


def _insert_branch(connection: Connection, commit: Commit, new: NewBranch, task: int, name: str, **begins: Any) -> int:
    """Insert it and return its number. `begins`: where it does, if not from nothing."""
    values: dict[str, Any] = {"origin_branch": None, "origin": 0, "origin_id": None, "inherited": 0, **begins}
    branch: int = connection.value(
        SQL.insert_branch,
        task=task,
        owner=commit.owner,
        id=new.id,
        name=name,
        description=new.description,
        created_at=commit.record.created_at,
        created_by=commit.record.created_by,
        metadata=encode_plain(new.metadata) if new.metadata else _EMPTY,
        **values,
    )
    return branch


# --- the exchange that writes -------------------------------------------------------------------------------------


def _place(commit: Commit, line: _Line, attested: list[Attestation]) -> StoredCheckpoint:
    """Return the checkpoint as it will be stored."""
    verification = None
    for one in attested:
        verification = one if one.kind == "verification" else verification
    event = line.last_event + len(commit.notes) + 1
    placement = Placement(line.branch_id, line.last_sequence + 1, line.version + 1, event)
    return StoredCheckpoint(
        id=commit.record.id,
        owner=commit.owner,
        task_id=commit.record.task_id,
        task_number=line.task,
        data=commit.data,
        checksum=commit.checksum,
        placement=placement,
        placement_digest=placement.digest(commit.checksum),
        verified=verification is not None and bool(verification.data.get("verified")),
        verified_at=verification.at_us if verification else None,
        deleted=False,
        tags=(),
    )


def _slice(connection: Connection, commit: Commit, task: int) -> None:
    """Bring the task's blobs, and make parts of them what is a part of them now. A blob that became one goes."""
    connection.run_many(SQL.insert_blob, [_inline(task, blob) for blob in commit.blobs])
    for part in commit.slices:
        about = {"partition": task, "digest": part.digest}
        if connection.count(SQL.insert_slice, **about, whole=part.whole, position=part.position):
            connection.run(SQL.remove_sliced_blob, **about)


def _write_notes(connection: Connection, commit: Commit, line: _Line, actor: Actor) -> None:
    for index, note in enumerate(commit.notes, 1):
        connection.run(
            SQL.insert_note,
            number=key(line.task, line.last_event + index),
            owner=commit.owner,
            branch_id=note.branch_id,
            checkpoint_id=note.checkpoint_id,
            kind=note.kind,
            at=commit.record.created_at,
            actor=actor.user,
            correlation_id=actor.correlation_id,
            data=encode_plain(note.data),
        )


def _write_checkpoint(connection: Connection, commit: Commit, line: _Line, stored: StoredCheckpoint) -> None:
    placement, record, number = stored.placement, commit.record, key(line.task, stored.placement.sequence)
    size, encoding, root = commit.root[1:4] if commit.root else (None, None, None)
    connection.run(
        SQL.insert_checkpoint_with_root_of_parent if commit.keep_root else SQL.insert_checkpoint,
        number=number,
        branch=line.branch,
        owner=commit.owner,
        id=record.id,
        type=record.type,
        version=placement.version,
        last_event=placement.last_event,
        checksum=commit.checksum,
        placement=stored.placement_digest,
        record=commit.data,
        verified=int(stored.verified),
        verified_at=stored.verified_at,
        root_size=size,
        encoding=encoding,
        root=root,
        parent=line.parent,
    )
    connection.run(
        SQL.advance_branch,
        sequence=placement.sequence,
        version=placement.version,
        control_state=record.control_state,
        branch=line.branch,
    )
    connection.run(
        SQL.advance_task,
        sequence=placement.sequence,
        last_event=placement.last_event,
        active_branch=line.branch if line.active else None,
        task=line.task,
    )
    if record.key is not None:
        connection.run(SQL.insert_key, task=line.task, key=record.key, number=number)


def _write_files(connection: Connection, commit: Commit, line: _Line, found: Found) -> None:
    """Bring new content of files, and bind the folders that it comes from."""
    if commit.binding is not None:
        for folder in commit.binding.folders:
            if all(branch != line.branch for branch, *_ in found[f"folder {folder.path}"]):
                bind(connection, line.task, line.branch, folder)
    for pack in commit.packs:
        connection.run(COLLECTION.withdraw, name=pack.name)
        connection.run(COLLECTION.insert_pack, name=pack.name, size=pack.size, now=connection.now())
        about = {"partition": FILES, "pack": connection.value(SQL.pack_number, name=pack.name)}
        entries = [
            {**about, "digest": digest, "position": position, "length": length, "size": size, "encoding": encoding}
            for digest, position, length, size, encoding in pack.entries
        ]
        connection.run_many(SQL.insert_packed_blob, entries)
    if commit.file_blobs:
        connection.run_many(SQL.insert_blob, [_inline(FILES, blob) for blob in commit.file_blobs])


def _write_moves(connection: Connection, commit: Commit, line: _Line, stored: StoredCheckpoint) -> None:
    task, branch = line.task, line.branch
    if commit.keeps_redo:
        versions = {"old_version": line.version, "new_version": stored.placement.version}
        connection.run(BRANCHES.keep_redo, task=task, branch=branch, **versions)
    if commit.files_move and line.active and line.parent is not None:  # on another branch the task does not move
        connection.run(BRANCHES.remove_undone_moves, task=task)
        after = key(task, stored.placement.sequence)
        connection.run(BRANCHES.insert_files_move, task=task, branch=branch, before=line.parent, after=after)


def _inline(partition: int, blob: Blob) -> Values:
    return {
        "partition": partition,
        "digest": blob.digest,
        "size": blob.size,
        "encoding": blob.encoding,
        "data": blob.data,
    }
