"""Bringing what was spooled into the store: in order, each exactly once, nothing dropped.

A crash at any point does no harm: what is in the store already is known by its id and checksum, and is only removed
here. What cannot go on from where it was made lands on a branch of its own. What cannot land at all is set aside.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from lastgood.catalog.values import FILES, Actor, Commit, Committed, NewBranch, NewEvent, StoredCheckpoint
from lastgood.codec.compress import decompress
from lastgood.engine.blobs import Batch, FileBlobs, Gathered
from lastgood.errors import (
    CheckpointError,
    ConflictError,
    ContentGoneError,
    IntegrityError,
    InvalidError,
    LostCommitsError,
    NotFoundError,
    UnavailableError,
)
from lastgood.model.identity import digest, moment, new_id
from lastgood.model.task import MAIN
from lastgood.spool.entry import Body, Waiting, whole
from lastgood.spool.file import SpoolFile

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog

REMOVED_AT_ONCE = 64


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
    """What became of what was spooled. `left` still wait: they came meanwhile."""

    stored: int = 0
    diverged: tuple[Diverged, ...] = ()
    aside: tuple[SetAside, ...] = ()
    left: int = 0


class Tell(Protocol):
    def __call__(self, message: str, task_id: str | None = None, error: Exception | None = None) -> None: ...


class Replay:
    """One pass. `stopped` says when to leave the rest for the next."""

    def __init__(
        self, file: SpoolFile, backend: Catalog, blobs: FileBlobs, tell: Tell, stopped: Callable[[], bool]
    ) -> None:
        self._file = file
        self._backend = backend
        self._blobs = blobs
        self._tell = tell
        self._stopped = stopped
        self._landed: list[int] = []
        self._stored = 0
        self._diverged: list[Diverged] = []
        self._aside: list[SetAside] = []

    def run(self) -> Replayed:
        """All that wait now. UnavailableError when the store is away (again), IntegrityError where it is damaged: the
        rest goes on waiting."""
        failed: dict[int, CheckpointError] = {}
        try:
            for waiting in chain.from_iterable(self._file.pages()):
                if self._stopped():
                    break
                if waiting.task not in failed:
                    self._try_to_bring(waiting, failed)
                if len(self._landed) >= REMOVED_AT_ONCE:
                    self._remove()
        finally:
            self._remove()
        for error in failed.values():
            raise error
        left = self._file.figures()[0]
        return Replayed(self._stored, tuple(self._diverged), tuple(self._aside), left)

    def _remove(self) -> None:
        numbers, self._landed = self._landed, []
        self._file.remove(numbers)

    def _try_to_bring(self, waiting: Waiting, failed: dict[int, CheckpointError]) -> None:
        """Where the store is damaged, the rest of a task waits; the others need not."""
        try:
            self._bring(waiting)
        except (UnavailableError, LostCommitsError):
            raise
        except IntegrityError as error:
            failed[waiting.task] = error

    def _bring(self, waiting: Waiting) -> None:
        found = self._backend.checkpoint(waiting.owner, waiting.id)
        if found is not None:
            if found.checksum == waiting.checksum:
                self._landed.append(waiting.number)
                self._stored += 1
            else:
                self._set_aside(waiting, "the store has another checkpoint of this id")
            return
        try:
            body = self._file.entry(waiting).body
            commit = whole(body, self._file.blobs(waiting.task, body.blobs))
            _check_blobs(commit)
        except IntegrityError as error:
            self._set_aside(waiting, str(error), error)
            return
        parent = self._parent(waiting, body)
        if isinstance(parent, str):
            self._set_aside(waiting, parent)
            return
        try:
            self._commit_files(waiting, body, commit, parent)
        except (ConflictError, NotFoundError, InvalidError, ContentGoneError) as error:
            self._set_aside(waiting, str(error), error)

    def _parent(self, waiting: Waiting, body: Body) -> StoredCheckpoint | str | None:
        """The checkpoint that it continues; or why it cannot."""
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
        """With its files in a pack, where they are many."""
        if not body.file_blobs:
            self._commit(waiting, commit, body.actor, parent)
            return
        gathered = self._gather(self._blobs.gather(), body)
        try:
            brought = {"file_blobs": gathered.blobs, "packs": gathered.packs, "relies_on": gathered.relies_on}
            self._commit(waiting, msgspec.structs.replace(commit, **brought), body.actor, parent)
        finally:
            self._blobs.let_go(gathered)

    def _gather(self, batch: Batch, body: Body) -> Gathered:
        try:
            found = self._file.blobs(FILES, body.file_blobs)
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
        """Where it was meant to be; or, when that has moved on, on a branch of its own from where it began."""
        commit = self._prepare(commit, parent)
        try:
            self._land(waiting, self._backend.commit(commit, actor))
        except (ConflictError, NotFoundError) as conflict:
            commit = self._apart(commit, conflict)
            committed = self._backend.commit(commit, actor)
            self._land(waiting, committed)
            self._report(waiting, committed.stored.placement.branch_id, conflict)

    def _prepare(self, commit: Commit, parent: StoredCheckpoint | None) -> Commit:
        """On the branch on which its parent lies: that one may have landed elsewhere."""
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
        """What of the session that saved it still holds: its lease, if nobody has taken over and it was not released;
        the requests that nobody has met meanwhile."""
        lease = (
            self._backend.lease(commit.owner, branch) if commit.lease is not None and isinstance(branch, str) else None
        )
        asked = [(met, self._backend.requests(commit.owner, id=met.id)) for met in commit.fulfilled]
        return {
            "lease": commit.lease if lease is not None and lease.token == commit.lease else None,
            "fulfilled": [met for met, found in asked if any(request.status == "open" for request in found)],
        }

    def _apart(self, commit: Commit, conflict: CheckpointError) -> Commit:
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
        told = {"branch": new.id, "reason": str(conflict)[:500]}
        note = NewEvent("diverged", origin, commit.record.parent_id, told)
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

    def _land(self, waiting: Waiting, committed: Committed) -> None:
        self._landed.append(waiting.number)
        self._stored += 1
        if committed.repeated and committed.stored.id != waiting.id:
            self._tell(
                f"the spooled checkpoint {waiting.id} was in the store already, under its key: {committed.stored.id}",
                waiting.task_id,
            )

    def _report(self, waiting: Waiting, branch_id: str, conflict: CheckpointError) -> None:
        branch = self._backend.branch(waiting.owner, branch_id)
        name = branch.name if branch else branch_id
        self._diverged.append(Diverged(waiting.id, branch_id, name))
        self._tell(
            f"a spooled checkpoint of {waiting.task_id!r} is on a branch of its own now, {name!r}: {conflict}",
            waiting.task_id,
            conflict,
        )

    def _set_aside(self, waiting: Waiting, reason: str, error: Exception | None = None) -> None:
        self._file.set_aside(waiting.number, reason)
        self._aside.append(SetAside(waiting.id, reason))
        self._tell(
            f"the spooled checkpoint {waiting.id} of {waiting.task_id!r} cannot come into the store and is kept aside "
            f"in the spool: {reason}",
            waiting.task_id,
            error,
        )


def _check_blobs(commit: Commit) -> None:
    """What the spool gives back is what was put in."""
    root = () if commit.root is None else (commit.root,)
    for blob in (*commit.blobs, *root):
        if digest(decompress(blob.encoding, blob.data, blob.size)) != blob.digest:
            raise IntegrityError("a part of it is damaged")
