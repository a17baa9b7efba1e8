"""The catalog's contract: what every backend guarantees, whatever it is made of.

All or nothing: each method is one transaction. What a method returned or acknowledged is seen by every later
call, from any thread, process or host that shares the store. Methods may be called from several threads at
once. Values come back verified by the backend as far as it can (page checksums); digests are checked by the
engine. Errors are those of lastgood.errors: NotFoundError for a missing task, branch or checkpoint (also for
another owner's), ConflictError when the head is elsewhere, IntegrityError for damage, UnavailableError when
the backend cannot; after any of them nothing has changed.

Sequence numbers and event numbers come from the task's counters inside the transaction. They are dense,
monotonic, and the only cursors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

from lastgood.catalog.upkeep import Audit, Corrections
from lastgood.catalog.values import (
    MAX_PAGE,
    Actor,
    AnnouncedPack,
    Binding,
    Blob,
    CheckpointRoot,
    Commit,
    Committed,
    FulfilledRequest,
    HistoryRange,
    IndexedBlob,
    KnownPack,
    NewPack,
    Position,
    SlicedBlob,
    StoredCheckpoint,
    StoreInfo,
)
from lastgood.model.checkpoint import Attestation, Head
from lastgood.model.journal import Journal
from lastgood.model.lease import Lease
from lastgood.model.request import Request
from lastgood.model.step import OpenStep, Process
from lastgood.model.task import BranchInfo, Event, EventKind, TaskInfo


class Catalog(ABC):
    """See the module's docstring for what holds for all methods."""

    durable: bool
    """What was acknowledged survives kill -9 and power loss."""

    shared: bool
    """Several hosts may use it at once."""

    file: Path | None
    """The SQLite file that it is, if it is one."""

    @abstractmethod
    def info(self) -> StoreInfo: ...

    @abstractmethod
    def commit(self, commit: Commit, actor: Actor) -> Committed:
        """Store the checkpoint, move the head, count, and log it.

        The branch's head must be the record's parent, else ConflictError carrying the present head. With
        `only_if_active` its branch must be the task's active one. The first commit of a task creates it. A key
        or an id that is already stored is found before the head is looked at: with the same content the
        stored one is returned as `repeated` and nothing changes, with other content it is a ConflictError.
        A step that is not open any more is a ConflictError, too, and so is a folder whose files are those of another
        branch. Content of files that is relied on and gone is an IntegrityError with their digests as `blobs`; so is a
        pack that is neither known nor announced any more, or a `base` that was purged, with none.

        LeaseError when someone else works on the branch: without `lease` while the lease there is live, with one
        unless it is that very lease, run out or not. ControlError when work in the branch's control state cannot
        become what the record says. ConflictError when a request that it meets is not open any more.
        """

    def require_ready(self) -> None:
        """Raises UnavailableError when a commit would fail, or wait long, as far as that can be told without one."""
        self.info()

    @abstractmethod
    def queue(self) -> AbstractContextManager[object]:
        """Hold back other writers while inside, where the backend can, so that what is read stays true."""

    @abstractmethod
    def task(self, owner: str, task_id: str) -> TaskInfo | None: ...

    @abstractmethod
    def position(self, owner: str, id: str) -> Position | None:
        """Of a task, or of a branch by its own id."""

    @abstractmethod
    def tasks(self, owner: str | None, after: int = 0, limit: int = 100) -> list[TaskInfo]:
        """Newest first by creation, before the task numbered `after`. None: of every owner."""

    @abstractmethod
    def branch(self, owner: str, branch_id: str) -> BranchInfo | None: ...

    @abstractmethod
    def branches(self, task: TaskInfo) -> list[BranchInfo]:
        """Oldest first; deleted ones only as far as others descend from what is left of them."""

    @abstractmethod
    def activate(
        self, owner: str, branch_id: str, actor: Actor, *, expects: str | None = None, lease: int | None = None
    ) -> Position:
        """Make it the task's active branch; logs `switched`. `expects` as in NewBranch, `lease` as in Commit. Undoable.

        As for undo and redo: LeaseError while someone else works on the branch that is left, or on that one.
        """

    @abstractmethod
    def undo(
        self, owner: str, task_id: str, actor: Actor, *, expects: str | None = None, lease: int | None = None
    ) -> Position:
        """Take back the last move of the active branch, or of its files, that was not taken back; logs `undone`.

        ConflictError when there is none, or the branch to go back to is gone.
        """

    @abstractmethod
    def redo(
        self, owner: str, task_id: str, actor: Actor, *, expects: str | None = None, lease: int | None = None
    ) -> Position:
        """Make the move again that was taken back last; logs `redone`.

        ConflictError when there is none, or the branch that undo went back to has moved on since.
        """

    @abstractmethod
    def destination(self, owner: str, task_id: str, way: Literal["undo", "redo"]) -> StoredCheckpoint | None:
        """The checkpoint whose files belong there after an `undo` or `redo`; None when there is no such task.

        ConflictError where that would raise it.
        """

    @abstractmethod
    def delete_branch(self, owner: str, branch_id: str, actor: Actor) -> int:
        """Mark a branch and what only it has as deleted; how many checkpoints. Its name is free again.

        What others descend from stays, and so do tagged checkpoints. Refuses the active branch, and one that someone
        works on.
        """

    @abstractmethod
    def begin_step(self, step: OpenStep, snapshot: Blob | None, lease: int | None = None) -> None:
        """Survives the process at once, and power loss from the next durable write on. `lease`: of the session that it
        is a part of; LeaseError when that does not work on the branch any more."""

    @abstractmethod
    def open_step(self, owner: str, step_id: str) -> tuple[OpenStep, Blob | None] | None:
        """A step that is open, and the snapshot it was begun with (its digest left empty)."""

    @abstractmethod
    def open_steps(self, owner: str | None, task_id: str | None = None) -> list[OpenStep]:
        """Oldest first. None: of every owner, of every task."""

    @abstractmethod
    def end_step(self, owner: str, step_id: str, kind: EventKind, data: dict[str, Any], actor: Actor) -> None:
        """End a step without a checkpoint, and log why: in its task's log, or in the store's if there is no task."""

    @abstractmethod
    def acquire_lease(
        self,
        owner: str,
        branch_id: str,
        process: Process,
        executor: str,
        seconds: float,
        actor: Actor,
        *,
        over: int | None = None,
    ) -> Lease:
        """The right to advance a branch, for so long. LeaseError while someone else's is live, unless that is the one
        with the token `over`, whose holder is known to be gone. Whoever held it before is refused from now on; when
        there was one, logs `taken_over`. Time is the catalog's own, the same for all who share it. Need not survive
        power loss, which no holder on this host survives, before a commit under it does.
        """

    @abstractmethod
    def renew_lease(self, token: int, seconds: float) -> Lease:
        """For so long from now. LeaseError when it was taken over, or released. Need not survive power loss."""

    @abstractmethod
    def release_lease(self, token: int) -> None:
        """Nobody works on its branch any more. Idempotent."""

    @abstractmethod
    def lease(self, owner: str, branch_id: str) -> Lease | None:
        """The lease of a branch, also one that has run out."""

    @abstractmethod
    def post_request(self, owner: str, request: Request, actor: Actor) -> Request:
        """Keep it until it is met; logs `requested`. The same id again gives what became of the first, if it is the
        same wish; else ConflictError."""

    @abstractmethod
    def request(self, owner: str, request_id: str) -> Request | None: ...

    @abstractmethod
    def open_requests(self, owner: str, branch_id: str) -> list[Request]:
        """Oldest first."""

    @abstractmethod
    def end_request(
        self,
        owner: str,
        ended: FulfilledRequest,
        status: Literal["met", "refused"],
        actor: Actor,
        *,
        lease: int | None = None,
    ) -> None:
        """It is met already, or will not be; logs `request_met`, `request_refused`. ConflictError when it is not open
        any more; LeaseError when whoever ends it with that token does not hold it any more."""

    @abstractmethod
    def checkpoint(self, owner: str, checkpoint_id: str) -> StoredCheckpoint | None: ...

    @abstractmethod
    def checkpoint_at(self, task: TaskInfo, sequence: int) -> StoredCheckpoint | None: ...

    @abstractmethod
    def find(self, owner: str, prefix: str, limit: int = 2) -> list[str]:
        """Ids that begin with `prefix`."""

    @abstractmethod
    def tagged(self, task: TaskInfo, tag: str) -> StoredCheckpoint | None: ...

    @abstractmethod
    def tags(self, task: TaskInfo) -> dict[str, Head]:
        """Every tag, by name, and where the checkpoint stands that it names."""

    @abstractmethod
    def checkpoints(
        self,
        line: HistoryRange,
        *,
        before: int | None = None,
        limit: int = 100,
        type: str | None = None,
    ) -> list[StoredCheckpoint]:
        """Newest first, those with a sequence below `before`, neither deleted nor purged."""

    @abstractmethod
    def last_verified(self, line: HistoryRange, type: str | None = None) -> StoredCheckpoint | None:
        """The newest of `checkpoints` whose last recorded verification held."""

    @abstractmethod
    def count(self, line: HistoryRange, type: str | None = None) -> int:
        """How many `checkpoints` would give without a limit."""

    @abstractmethod
    def root(self, stored: StoredCheckpoint) -> Blob | None:
        """The root of its state, its digest left empty. None when it has no state, or is purged."""

    @abstractmethod
    def blobs(self, partition: int, digests: Iterable[bytes]) -> dict[bytes, Blob]:
        """Those that exist. A task's number is its partition; that of files is FILES."""

    @abstractmethod
    def has_blobs(self, partition: int, digests: Iterable[bytes]) -> set[bytes]:
        """Which of them exist."""

    @abstractmethod
    def has_files(self) -> bool:
        """Whether there is any content of files."""

    @abstractmethod
    def bound(self, owner: str, task_id: str, host: str, path: str) -> str | None:
        """The branch whose files lie in a folder; None when nobody of this task has said."""

    @abstractmethod
    def bind(self, owner: str, branch_id: str, binding: Binding) -> None:
        """The files in these folders are those of that branch from now on."""

    @abstractmethod
    def begin_journal(self, journal: Journal) -> None:
        """Durable when it returns: a restore of files begins."""

    @abstractmethod
    def journals(self, host: str) -> list[Journal]:
        """Restores on that host that have not ended, oldest first."""

    @abstractmethod
    def end_journal(self, journal_id: str) -> None: ...

    @abstractmethod
    def attest(
        self, owner: str, checkpoint_ids: Sequence[str], kind: str, data: dict[str, Any], actor: Actor
    ) -> list[Attestation]:
        """Append an attestation to each, and what follows from it.

        `deleted` refuses the head of the active branch; `tag` ({"name", "move"}) refuses a name that another
        checkpoint has, unless it may move. Saying what already holds appends nothing and returns the earlier.
        """

    @abstractmethod
    def attestations(self, owner: str, checkpoint_id: str) -> list[tuple[Attestation, bytes]]:
        """(attestation, its digest), oldest first."""

    @abstractmethod
    def events(self, task: TaskInfo, *, after: int = 0, limit: int = 100) -> list[Event]:
        """Oldest first, those with a sequence above `after`."""

    @abstractmethod
    def history(self, line: HistoryRange, *, before: int | None = None, limit: int = 100) -> list[Event]:
        """Newest first, those with a sequence below `before`.

        Of a branch: what its ancestors' logs said when it began, and its own.
        """

    @abstractmethod
    def purge(self, owner: str, checkpoint_id: str, actor: Actor) -> None:
        """Remove a checkpoint's record, tags and attestations; leave its tombstone. As `deleted`, refuses heads; and
        what a restore under way goes to, or back to."""

    @abstractmethod
    def delete_task(self, owner: str, task_id: str, actor: Actor) -> int:
        """Remove a task with everything it has; say so in the store's own log. How many checkpoints it had.

        LeaseError while someone works on a branch of it.
        """

    @abstractmethod
    def store_events(self, *, after: int = 0, limit: int = 100) -> list[Event]:
        """The log of what happened to the store as a whole."""

    @abstractmethod
    def size(self) -> int:
        """Bytes taken on disk."""

    @abstractmethod
    def accept_loss(self) -> int:
        """Go on although acknowledged commits are gone. How many there were."""

    @abstractmethod
    def close(self) -> None:
        """Give back all resources. Idempotent; nothing else may be called afterwards."""

    # --- all that there is, whoever owns it: page by page, each page in a transaction of its own --------------------

    @abstractmethod
    def held(self, after: StoredCheckpoint | None = None, limit: int = MAX_PAGE) -> list[CheckpointRoot]:
        """Every checkpoint but those that are purged, deleted ones included: by task, then by sequence."""

    @abstractmethod
    def all_branches(self, task: TaskInfo) -> list[BranchInfo]:
        """Oldest first, deleted ones included, whatever is left of them."""

    @abstractmethod
    def indexed(self, after: int = 0, limit: int = MAX_PAGE) -> list[IndexedBlob]:
        """Every blob, by the number that it has in the index."""

    @abstractmethod
    def sliced(self, after: SlicedBlob | None = None, limit: int = MAX_PAGE) -> list[SlicedBlob]:
        """Every blob that is a part of another one, by partition and digest.

        Who reads `indexed` first and this afterwards misses none: blobs only ever become parts.
        """

    @abstractmethod
    def packs(self) -> list[KnownPack]:
        """By name."""

    @abstractmethod
    def used_bytes(self) -> int:
        """How many bytes it would take on disk, if it was tidied up."""

    @abstractmethod
    def free_bytes(self) -> int:
        """How many of the bytes that it takes on disk hold nothing, and will be used again."""

    # --- for who collects what nobody needs ---------------------------------------------------------------------
    # Content that a commit names, and neither brings nor has from its parent, is acquitted in that commit.

    @abstractmethod
    def deleted_before(self, at: int) -> list[tuple[str, str]]:
        """Owner and id of checkpoints that were marked as deleted by then, and are not purged."""

    @abstractmethod
    def purge_all(
        self,
        checkpoints: Sequence[tuple[str, str]],
        actor: Actor,
        *,
        spare_tagged: bool = False,
        deleted_before: int | None = None,
    ) -> list[str]:
        """As `purge`, of many (owner, id) at once. Those that cannot be purged stay, and those that a restore under way
        goes to, or back to; the ids of the others.

        With `deleted_before`, so do those that are not marked as deleted any more, or since later than that.
        """

    @abstractmethod
    def condemn(self, partition: int, digests: Sequence[bytes], at: int) -> None:
        """Mark blobs with the time, unless they are marked."""

    @abstractmethod
    def acquit(self, partition: int, digests: Sequence[bytes]) -> None:
        """Take the mark away."""

    @abstractmethod
    def remove_blobs(self, partition: int, digests: Sequence[bytes], condemned_before: int) -> int:
        """Remove those that are still marked with a time up to that one; not those that others are parts of."""

    @abstractmethod
    def remove_slices(self, partition: int, digests: Sequence[bytes]) -> int:
        """These blobs are not parts of others any more: nobody needs them."""

    @abstractmethod
    def move_blobs(self, pack: NewPack, origin: str) -> None:
        """Those of the entries that lie in the pack `origin` lie in this one now, which is not announced any more."""

    @abstractmethod
    def lying_in(self, pack: str) -> list[IndexedBlob]:
        """The blobs in a pack, in the order of their places."""

    @abstractmethod
    def remove_packs(self, names: Sequence[str]) -> list[str]:
        """Forget packs in which no blob lies; which ones. Durable when it returns."""

    @abstractmethod
    def announce(self, names: Sequence[str], process: Process) -> None:
        """These packs are about to be stored and committed: until then, or until `withdraw`, they are nobody's garbage.

        A commit that brings them withdraws them itself.
        """

    @abstractmethod
    def withdraw(self, names: Sequence[str]) -> None: ...

    @abstractmethod
    def flights(self) -> list[AnnouncedPack]:
        """What is announced, oldest first."""

    @abstractmethod
    def shrink(self, limit: int) -> int:
        """Give up to so many free bytes back to the system; how many are free afterwards. With none left, what was
        written beside the database is tidied up, too."""

    # --- for who checks and repairs the store ------------------------------------------------------------------

    @abstractmethod
    def audit(self) -> AbstractContextManager[Audit]:
        """Everything as it lies there, in one snapshot, also where acknowledged commits are gone."""

    @abstractmethod
    def mend(self, mending: Corrections, actor: Actor) -> None:
        """Set all of it right at once; logs `repaired` in the store's own log."""

    @abstractmethod
    def rebuild(self) -> list[str]:
        """Write what can be read of damaged files anew, so that they are whole again; which kinds of rows were not all
        to be read, as an audit names them."""
