"""Replay: bringing what was spooled into the store, in order, each checkpoint exactly once, none dropped.

A crash at any point does no harm: what is in the store already is known by its id and checksum, and is only removed
here. What cannot continue its parent's branch begins a branch. What cannot come into the store is set aside.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lastgood.catalog.values import FILES, Actor, Commit, Committed, NewBranch, NewEvent, StoredCheckpoint
from lastgood.codec.compress import decompress
from lastgood.engine.blobs import FileBlobs, Gathered
from lastgood.engine.gather import Batch
from lastgood.errors import (
    CheckpointError,
    ConflictError,
    ContentGoneError,
    DiskFullError,
    IntegrityError,
    InvalidError,
    LostCommitsError,
    NotFoundError,
)
from lastgood.model.identity import BlobId, moment, new_id
from lastgood.model.task import MAIN
from lastgood.spool.entries import Body, Entries, Waiting
from lastgood.spool.file import find_moved

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog
    from lastgood.engine.engine import Engine

REMOVED_AT_ONCE = 64
RESERVE_BYTES = 256 << 10
"""Room on the disk of the store that a replay leaves, and as much as the database's log has: what frees more of it, a
deletion, needs some itself, and the log can only be emptied into the database."""


class Diverged(NamedTuple):
    """A checkpoint that had to begin a branch, and the branch's id and name."""

    checkpoint_id: str
    branch_id: str
    branch: str


class SetAside(NamedTuple):
    """A checkpoint that stays in the spool, and why."""

    checkpoint_id: str
    reason: str


class Replayed(msgspec.Struct, frozen=True):
    """What became of what was spooled. `left` still wait: they came meanwhile. `discarded` were given up: they are in
    the folder `kept`."""

    stored: int = 0
    diverged: tuple[Diverged, ...] = ()
    aside: tuple[SetAside, ...] = ()
    left: int = 0
    discarded: int = 0
    kept: str | None = None


class Replay:
    """One pass over what waits. When `stopped` returns True, the rest is left for the next."""

    def __init__(self, engine: Engine, entries: Entries, backend: Catalog, stopped: Callable[[], bool]) -> None:
        self._entries = entries
        self._backend = backend
        self._blobs = FileBlobs(backend, engine.objects, engine.blob_id)
        self._alert = engine.alert
        self._file = engine.location.catalog
        self._stopped = stopped
        self._done: list[int] = []
        self._stored = 0
        self._diverged: list[Diverged] = []
        self._aside: list[SetAside] = []

    def run(self) -> Replayed:
        """Bring all that wait now. UnavailableError when the store is away (again), IntegrityError where it is damaged:
        the rest goes on waiting."""
        failed: dict[int, CheckpointError] = {}
        try:
            for waiting in chain.from_iterable(self._entries.pages()):
                if self._stopped():
                    break
                if waiting.task in failed:
                    continue
                try:
                    self._bring(waiting)
                except LostCommitsError:
                    raise
                except IntegrityError as error:  # of the store: the rest of the task must wait
                    failed[waiting.task] = error
                if len(self._done) >= REMOVED_AT_ONCE:
                    self._remove()
        finally:
            self._remove()
        if failed:
            raise next(iter(failed.values()))
        left = self._entries.figures()[0]
        return Replayed(self._stored, tuple(self._diverged), tuple(self._aside), left)

    def _require_room(self) -> None:
        """DiskFullError when bringing another one would leave no room to delete anything."""
        if self._file is None:
            return
        try:
            found, log = os.statvfs(self._file.parent), self._file.with_name(f"{self._file.name}-wal").stat().st_size
        except OSError:  # who writes there is told what is wrong
            return
        if found.f_frsize * found.f_bavail < max(RESERVE_BYTES, log):
            raise DiskFullError("the disk is full", hint="free some space, or delete checkpoints")

    def _remove(self) -> None:
        numbers, self._done = self._done, []
        self._entries.remove(numbers)

    def _bring(self, waiting: Waiting) -> None:
        found = self._backend.checkpoint(waiting.owner, waiting.id)
        if found is not None:
            if found.checksum == waiting.checksum:
                self._done.append(waiting.number)
                self._stored += 1
            else:
                self._set_aside(waiting, "the store has another checkpoint of this id")
            return
        try:
            entry = self._entries.entry(waiting)
            commit = self._entries.commit_of(entry)
            _check_blobs(commit, self._blobs.blob_id)
        except IntegrityError as error:
            self._set_aside(waiting, str(error), error)
            return
        self._require_room()
        parent = self._parent(waiting, entry.body)
        if isinstance(parent, str):
            self._set_aside(waiting, parent)
            return
        try:
            self._commit_files(waiting, entry.body, commit, parent)
        except (ConflictError, NotFoundError, InvalidError, ContentGoneError) as error:
            self._set_aside(waiting, str(error), error)

    def _parent(self, waiting: Waiting, body: Body) -> StoredCheckpoint | str | None:
        """Return the checkpoint that it continues; or why it cannot."""
        if waiting.parent_id is None:
            return None
        parent = self._backend.checkpoint(waiting.owner, waiting.parent_id)
        if parent is None:
            return "the checkpoint that it continues is not in the store, or its task was deleted"
        if parent.data is None:
            return "the checkpoint that it continues was purged"
        if parent.checksum != body.commit.record.parent_checksum:
            return "the checkpoint that it continues is another one in the store"
        return parent

    def _commit_files(self, waiting: Waiting, body: Body, commit: Commit, parent: StoredCheckpoint | None) -> None:
        """Commit it with its files, in a pack where they are many."""
        if not body.file_blobs:
            self._commit(waiting, commit, body.actor, parent)
            return
        gathered = self._gather(Batch(self._blobs, self._blobs.objects), body)
        try:
            brought = {"file_blobs": gathered.blobs, "packs": gathered.packs, "relies_on": gathered.relies_on}
            self._commit(waiting, msgspec.structs.replace(commit, **brought), body.actor, parent)
        finally:
            self._blobs.withdraw_packs(gathered)

    def _gather(self, batch: Batch, body: Body) -> Gathered:
        try:
            found = self._entries.blobs(FILES, body.file_blobs)
            for key in body.file_blobs:
                if (
                    key not in found
                    or batch.put(decompress(found[key].encoding, found[key].data, found[key].size)) != key
                ):
                    raise ContentGoneError("content of a file in the spool is damaged")
            return batch.finish()
        except BaseException:
            batch.discard()
            raise

    def _commit(self, waiting: Waiting, commit: Commit, actor: Actor, parent: StoredCheckpoint | None) -> None:
        """Commit it to its branch; or, when that has moved on, to a branch of its own from where it began."""
        commit = self._prepare(commit, parent)
        try:
            self._note_stored(waiting, self._backend.commit(commit, actor))
        except (ConflictError, NotFoundError) as conflict:
            commit = self._begin_branch(commit, conflict)
            committed = self._backend.commit(commit, actor)
            self._note_stored(waiting, committed)
            self._report(waiting, committed.stored.placement.branch_id, conflict)

    def _prepare(self, commit: Commit, parent: StoredCheckpoint | None) -> Commit:
        """Let it follow its parent, which may have come to another branch, and drop what does not hold any more."""
        branch = commit.branch
        if parent is not None and isinstance(branch, str):
            branch = parent.placement.branch_id
        step = commit.step
        if step is not None and self._backend.open_step(commit.owner, step) is None:
            step = None  # it was begun while the store was away, or was given up since
        follows = commit.only_if_active and branch == commit.branch
        prepared = {"branch": branch, "step": step, "only_if_active": follows, "may_repeat": True}
        return msgspec.structs.replace(commit, **prepared, **self._claims(commit, branch))

    def _claims(self, commit: Commit, branch: str | NewBranch) -> dict[str, Any]:
        """Return what of the session that saved it still holds: its lease, if that was neither taken over nor released;
        the requests that are still open."""
        lease = (
            self._backend.lease(commit.owner, branch) if commit.lease is not None and isinstance(branch, str) else None
        )
        found = [(one, self._backend.requests(commit.owner, id=one.id)) for one in commit.fulfilled]
        return {
            "lease": commit.lease if lease is not None and lease.token == commit.lease else None,
            "fulfilled": [one for one, requests in found if any(request.status == "open" for request in requests)],
        }

    def _begin_branch(self, commit: Commit, conflict: CheckpointError) -> Commit:
        """Return the commit as the first of a branch that is not active, with an event that says why."""
        at = f"{moment(commit.record.created_at):%Y-%m-%d %H:%M}"
        if isinstance(commit.branch, NewBranch):
            origin, name = commit.branch.id, commit.branch.name
        else:
            found = self._backend.branch(commit.owner, commit.branch)
            origin, name = commit.branch, found.name if found else MAIN
        new = NewBranch(
            new_id(),
            f"{name} (spooled {at})",
            description="saved while the store was away, and others had gone on meanwhile",
            metadata={"spooled": True, "isBranch": True, "meantFor": origin},
            active=False,
            may_rename=True,
            is_apart=commit.record.parent_id is None,
        )
        data = {"branch": new.id, "reason": str(conflict)[:500]}
        note = NewEvent("diverged", origin, commit.record.parent_id, data)
        return msgspec.structs.replace(
            commit,
            branch=new,
            only_if_active=False,
            binding=None,
            files_move=False,
            notes=(*commit.notes, note),
            lease=None,
            fulfilled=(),
        )

    def _note_stored(self, waiting: Waiting, committed: Committed) -> None:
        self._done.append(waiting.number)
        self._stored += 1
        if committed.repeated and committed.stored.id != waiting.id:
            self._alert(
                f"the spooled checkpoint {waiting.id} was in the store already, under its key: {committed.stored.id}",
                waiting.task_id,
            )

    def _report(self, waiting: Waiting, branch_id: str, conflict: CheckpointError) -> None:
        branch = self._backend.branch(waiting.owner, branch_id)
        name = branch.name if branch else branch_id
        self._diverged.append(Diverged(waiting.id, branch_id, name))
        self._alert(
            f"a spooled checkpoint of {waiting.task_id!r} is on a branch of its own now, {name!r}: {conflict}",
            waiting.task_id,
            conflict,
        )

    def _set_aside(self, waiting: Waiting, reason: str, error: Exception | None = None) -> None:
        self._entries.set_aside(waiting.number, reason)
        self._aside.append(SetAside(waiting.id, reason))
        self._alert(
            f"the spooled checkpoint {waiting.id} of {waiting.task_id!r} cannot come into the store and is kept aside "
            f"in the spool: {reason}",
            waiting.task_id,
            error,
        )


def _check_blobs(commit: Commit, blob_id: BlobId) -> None:
    """IntegrityError when the spool does not give back what was put in."""
    root = () if commit.root is None else (commit.root,)
    for blob in (*commit.blobs, *root):
        if blob_id.of(decompress(blob.encoding, blob.data, blob.size)) != blob.digest:
            raise IntegrityError("a part of it is damaged")


def replay_moved(folder: Path | None, store_id: Callable[[], str], replay: Callable[[Entries], object]) -> None:
    """Replay what was moved away while another store was here, and is meant for the one that is here now."""
    for moved in find_moved(folder, "other-store"):
        entries = Entries(moved)
        try:
            if any(entries.find_work()) and _store_id(entries) == store_id():
                replay(entries)
                if not entries.pending() and not entries.aside() and not entries.steps():
                    import shutil

                    shutil.rmtree(moved, ignore_errors=True)  # another process may be removing it, too
        finally:
            entries.close()


def _store_id(entries: Entries) -> object:
    """Return the id of the store that it waits for; None when that is damaged: then it stays where it is."""
    try:
        return entries.get_meta("store_id")
    except IntegrityError:
        return None
