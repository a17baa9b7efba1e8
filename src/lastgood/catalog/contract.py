"""The catalog's contract: what every backend guarantees, whatever it is made of.

All or nothing: each method is one transaction. What a method returned or acknowledged is seen by every later
call, from any thread, process or host that shares the store. Methods may be called from several threads at
once. Values come back verified by the backend as far as it can (page checksums); digests are checked by the
engine. Errors are those of lastgood.errors: NotFoundError for a missing task, branch or checkpoint (also for
another owner's), ConflictError when the head is elsewhere, IntegrityError for damage, UnavailableError when
the backend cannot; after any of them nothing has changed.

Sequence numbers and event numbers come from the task's counters inside the transaction. They are dense,
monotonic, and the only cursors. Times are the catalog's own, the same for all that share it.

What a backend may leave out is the protocol `Upkeep`; the values of that are in catalog/upkeep.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, Protocol

from lastgood.catalog.values import (
    MAX_PAGE,
    Actor,
    AnnouncedPack,
    AppliedRestore,
    Binding,
    Blob,
    CheckpointRoot,
    Commit,
    Committed,
    DiskUse,
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
from lastgood.errors import UnavailableError
from lastgood.model.checkpoint import Attestation, Head
from lastgood.model.task import (
    BranchInfo,
    Event,
    EventKind,
    FolderId,
    Journal,
    Lease,
    OpenStep,
    Process,
    Request,
    TaskInfo,
)

if TYPE_CHECKING:
    from pathlib import Path

    from lastgood.catalog.upkeep import Audit, Corrections


class Records(Protocol):
    """Checkpoints, their content, and the log."""

    @abstractmethod
    def commit(self, commit: Commit, actor: Actor) -> Committed:
        """Store the checkpoint, move the head, count, and log it.

        The branch's head must be the record's parent, else ConflictError carrying the present head; with `append` it
        becomes the parent. With `only_if_active` its branch must be the task's active one. The first commit of a task
        creates it. A key or an id that is already stored is found before the head is looked at: with the same content
        the stored one is returned as `repeated` and nothing changes, with other content it is a ConflictError.
        A step that is not open any more is a ConflictError, too, and so is a folder whose files are those of another
        branch. Content of files that is relied on and gone is an IntegrityError with their digests as `blobs`; so is a
        pack that is neither known nor announced any more, or a `base` that was purged, with none.

        LeaseError when another process works on the branch: without `lease` while the lease there is live, with one
        unless it is that very lease, run out or not. ControlError when work in the branch's control state cannot
        become what the record says. ConflictError when a request that it fulfils is not open any more.
        """

    @abstractmethod
    def tasks(self, owner: str | None, after: int = 0, limit: int = 100) -> list[TaskInfo]:
        """Newest first by creation, before the task numbered `after`. None: of every owner."""

    @abstractmethod
    def position(self, owner: str, id: str) -> Position | None:
        """Of a task, or of a branch by its own id."""

    @abstractmethod
    def checkpoint(self, owner: str, checkpoint_id: str) -> StoredCheckpoint | None: ...

    @abstractmethod
    def checkpoint_at(self, task: TaskInfo, at: int | str) -> StoredCheckpoint | None:
        """By its sequence, or by a tag."""

    @abstractmethod
    def find(self, owner: str, prefix: str, limit: int = 2) -> list[str]:
        """Ids that begin with `prefix`."""

    @abstractmethod
    def tags(self, task: TaskInfo) -> dict[str, Head]:
        """Every tag, by name, and where the checkpoint stands that it names."""

    @abstractmethod
    def checkpoints(
        self,
        among: HistoryRange,
        *,
        before: int | None = None,
        limit: int = 100,
        type: str | None = None,
        verified: bool = False,
    ) -> list[StoredCheckpoint]:
        """Newest first, those with a sequence below `before`, neither deleted nor purged. `verified`: those whose last
        recorded verification held."""

    @abstractmethod
    def count(self, among: HistoryRange, type: str | None = None) -> int:
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
    def attest(
        self,
        owner: str,
        checkpoint_ids: Sequence[str],
        kind: str,
        data: dict[str, Any],
        actor: Actor,
        *,
        last_event: int | None = None,
    ) -> list[Attestation]:
        """Append an attestation to each, and what follows from it.

        `deleted` refuses the head of the active branch; `tag` ({"name", "move"}) refuses a name that another
        checkpoint has, unless it may move. Saying what already holds appends nothing and returns the earlier.
        With `last_event`, ConflictError when more has happened to the task since that event.
        """

    @abstractmethod
    def attestations(self, owner: str, checkpoint_id: str) -> list[tuple[Attestation, bytes]]:
        """(attestation, its digest), oldest first."""

    @abstractmethod
    def events(self, task: TaskInfo | None, *, after: int = 0, limit: int = 100) -> list[Event]:
        """The log of a task, or of the store as a whole: oldest first, those with a sequence above `after`."""

    @abstractmethod
    def history(self, among: HistoryRange, *, before: int | None = None, limit: int = 100) -> list[Event]:
        """Newest first, those with a sequence below `before`.

        Of a branch: what its ancestors' logs said when it began, and its own.
        """


class Branches(Protocol):
    """The branches of a task, and which of them is active."""

    @abstractmethod
    def branch(self, owner: str, branch_id: str) -> BranchInfo | None: ...

    @abstractmethod
    def branches(self, task: TaskInfo, *, deleted: bool = False) -> list[BranchInfo]:
        """Oldest first; deleted ones only as far as others descend from what is left of them, or with `deleted`."""

    @abstractmethod
    def move(
        self,
        owner: str,
        id: str,
        way: Literal["switch", "undo", "redo"],
        actor: Actor,
        *,
        expects: str | None = None,
        lease: int | None = None,
        binding: Binding | None = None,
        applied: AppliedRestore | None = None,
    ) -> Position:
        """Make another branch the task's active one. `expects` as in NewBranch, `lease` as in Commit. LeaseError while
        another process works on the branch that is left, or on the other.

        The files in the folders of `binding` are those of that branch from then on, and the restore that brought them
        is `applied`: all at once.

        `switch`: to the branch `id`; logs `switched`. `undo`: take back the last move of the task `id`, or of its
        files, that was not taken back; logs `undone`; ConflictError when there is none, or the branch to go back to is
        gone. `redo`: make the move again that was taken back last; logs `redone`; ConflictError when there is none, or
        the branch that undo went back to has moved on since.
        """

    @abstractmethod
    def destination(self, owner: str, task_id: str, way: Literal["undo", "redo"]) -> StoredCheckpoint | None:
        """The checkpoint whose files belong there after an `undo` or `redo`; None when there is no such task.

        ConflictError where that would raise it.
        """


class Steps(Protocol):
    """Steps that were begun and have not ended."""

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


class Leases(Protocol):
    """Rights that one process at a time has: to work on a branch, or to do something with the store as a whole."""

    @abstractmethod
    def acquire_lease(
        self,
        owner: str | None,
        id: str,
        process: Process,
        executor: str,
        seconds: float,
        actor: Actor,
        *,
        over: int | None = None,
    ) -> Lease:
        """The right to advance the branch `id`, for so long; without an owner, the store's own lease of that name.

        LeaseError while another process's is live, unless that is the one with the token `over`, whose holder is known
        to be gone. An earlier holder is refused from now on; of a branch, that is logged as `taken_over`. Need not
        survive power loss, which no holder on this host survives, before a commit under it does.
        """

    @abstractmethod
    def renew_lease(self, token: int, seconds: float) -> Lease:
        """For so long from now. LeaseError when it was taken over, or released. Need not survive power loss."""

    @abstractmethod
    def release_lease(self, token: int) -> None:
        """End it. Idempotent."""

    @abstractmethod
    def lease(self, owner: str | None, id: str) -> Lease | None:
        """The lease of a branch, or the store's own of that name; also one that has run out."""


class Requests(Protocol):
    """What people want of work."""

    @abstractmethod
    def post_request(self, owner: str, request: Request, actor: Actor) -> Request:
        """Keep it until it is fulfilled; logs `requested`. The same id again gives what became of the first, if it is
        the same request; else ConflictError."""

    @abstractmethod
    def requests(self, owner: str, *, id: str | None = None, branch_id: str | None = None) -> list[Request]:
        """The one with that id, whatever became of it; or those to a branch that are open, oldest first."""

    @abstractmethod
    def end_request(
        self,
        owner: str,
        ended: FulfilledRequest,
        status: Literal["fulfilled", "refused"],
        actor: Actor,
        *,
        lease: int | None = None,
    ) -> None:
        """It is fulfilled already, or will not be; logs `request_fulfilled`, `request_refused`. ConflictError when it
        is not open any more; LeaseError when the process that ends it with that token does not hold it any more."""


class Folders(Protocol):
    """Which branch's files lie in which folder, and restores of files under way."""

    @abstractmethod
    def bound(self, owner: str, task_id: str, folder: FolderId) -> str | None:
        """The branch whose files lie in a folder; None when no branch of this task has said so."""

    @abstractmethod
    def folders_of(self, owner: str, branch_id: str) -> list[FolderId]:
        """The folders that have a branch's files, as far as it was said."""

    @abstractmethod
    def begin_journal(self, journal: Journal, branches: Sequence[str] = (), lease: int | None = None) -> None:
        """Durable when it returns: a restore of files begins; what is known of one that has begun is replaced.
        LeaseError, and none does, while another process than the one with that `lease` works on one of these
        branches."""

    @abstractmethod
    def journals(self) -> list[Journal]:
        """Restores that have not ended, oldest first."""

    @abstractmethod
    def end_journal(self, journal_id: str) -> None: ...


class Deletion(Protocol):
    """The end of checkpoints, branches and tasks."""

    @abstractmethod
    def delete_branch(self, owner: str, branch_id: str, actor: Actor, *, dry_run: bool = False) -> int:
        """Mark a branch and what only it has as deleted; how many checkpoints. Its name is free again. With `dry_run`
        nothing changes.

        What others descend from stays, and so do tagged checkpoints. Refuses the active branch, and one that a process
        works on.
        """

    @abstractmethod
    def delete_task(self, owner: str, task_id: str, actor: Actor) -> int:
        """Remove a task with everything it has; say so in the store's own log. How many checkpoints it had.

        LeaseError while a process works on a branch of it.
        """

    @abstractmethod
    def deleted_before(self, at: int) -> list[tuple[str, str]]:
        """Owner and id of checkpoints that were marked as deleted by then, and are not purged."""

    @abstractmethod
    def purge(
        self,
        checkpoints: Sequence[tuple[str, str]],
        actor: Actor,
        *,
        all_or_none: bool = False,
        spare_needed: bool = False,
        deleted_before: int | None = None,
    ) -> list[str]:
        """Remove the records, tags and attestations of these (owner, id); leave their tombstones. The ids of those that
        are purged.

        Heads of active branches stay, and what a restore under way goes to, or back to, and what is gone already; with
        `all_or_none` one of them raises instead, as for `deleted`. With `spare_needed` heads of all branches stay, and
        what is tagged. With `deleted_before` those stay, too, that are not
        marked as deleted any more, or since later than that.
        """


class Collection(Protocol):
    """All content that there is, and what garbage collection does to it.

    Lists come page by page, each page in a transaction of its own. Content that a commit names, and neither brings nor
    has from its parent, is acquitted in that commit.
    """

    @abstractmethod
    def held(self, after: StoredCheckpoint | None = None, limit: int = MAX_PAGE) -> list[CheckpointRoot]:
        """Every checkpoint but those that are purged, deleted ones included: by task, then by sequence."""

    @abstractmethod
    def indexed(self, after: int = 0, limit: int = MAX_PAGE, *, pack: str | None = None) -> list[IndexedBlob]:
        """Every blob, by the number that it has in the index. With `pack`, all that lie in it, in their order there."""

    @abstractmethod
    def sliced(self, after: SlicedBlob | None = None, limit: int = MAX_PAGE) -> list[SlicedBlob]:
        """Every blob that is a part of another one, by partition and digest.

        A reader that takes `indexed` first and this afterwards misses none: blobs only ever become parts.
        """

    @abstractmethod
    def packs(self) -> list[KnownPack]:
        """By name."""

    @abstractmethod
    def announced(self) -> list[AnnouncedPack]:
        """Packs that are announced, oldest first."""

    @abstractmethod
    def announce(self, names: Sequence[str], process: Process | None) -> None:
        """These packs are about to be stored and committed: until then, or until they are announced for no process any
        more (None), they are not garbage. A commit that brings them withdraws them itself."""

    @abstractmethod
    def condemn(self, partition: int, digests: Sequence[bytes], at: int | None) -> None:
        """Mark blobs with the time, unless they are marked. None: acquit them, take the mark away."""

    @abstractmethod
    def remove_blobs(
        self, partition: int, digests: Sequence[bytes], condemned_before: int | None, *, lease: int | None = None
    ) -> int:
        """Remove those that are still marked with a time up to that one; not those that others are parts of.

        None: remove those that are parts of others, which have no mark: nothing needs them. LeaseError when the lease
        with that token is not held any more: two that collect would undo each other's marks.
        """

    @abstractmethod
    def move_blobs(self, pack: NewPack, origin: str) -> None:
        """Those of the entries that lie in the pack `origin` lie in this one now, which is not announced any more."""

    @abstractmethod
    def remove_packs(self, names: Sequence[str]) -> list[str]:
        """Forget packs in which no blob lies; which ones. Durable when it returns."""


class Upkeep(Protocol):
    """What a backend may leave out: a database server looks after its own files."""

    def disk_use(self) -> DiskUse:
        """Return how many bytes it takes."""
        return DiskUse(0, 0, 0)

    def shrink(self, limit: int) -> int:
        """Give up to so many free bytes back to the system; how many are free afterwards. With none left, what was
        written beside the database is tidied up, too."""
        return 0

    def keep_below(self, max_bytes: int) -> None:
        """Note the most bytes that the store may take from now on, whoever opens it: `info` says it."""
        raise _not_offered()

    def exclusive(self) -> AbstractContextManager[object]:
        """Hold back other writers while inside, where the backend can. May be entered again by the same thread."""
        return nullcontext()

    def audit(self) -> AbstractContextManager[Audit]:
        """Open everything as it lies there, in one snapshot, also where acknowledged commits are gone."""
        raise _not_offered()

    def correct(self, corrections: Corrections, actor: Actor) -> None:
        """Set all of it right at once; logs `repaired` in the store's own log."""
        raise _not_offered()

    def rebuild(self) -> list[str]:
        """Write what can be read of damaged files anew, so that they are whole again; which kinds of rows were not all
        to be read, as an audit names them."""
        raise _not_offered()

    def accept_loss(self) -> int:
        """Go on although acknowledged commits are gone. How many there were."""
        raise _not_offered()

    def back_up(self, path: Path) -> None:
        """Write a catalog to `path`, where nothing is, with everything that this one has at one moment. Durable."""
        raise _not_offered()


def _not_offered() -> UnavailableError:
    return UnavailableError(
        "this store's catalog cannot be checked, repaired or copied from here", hint="its database has means of its own"
    )


class Catalog(Records, Branches, Steps, Leases, Requests, Folders, Deletion, Collection, Upkeep, Protocol):
    """Small records in transactions. See the module's docstring for what holds for all methods."""

    durable: bool
    """What was acknowledged survives kill -9 and power loss."""

    shared: bool
    """Several hosts may use it at once."""

    address: str | None
    """What another process of this host opens it by (`open_catalog`); None: it lives in this one alone."""

    @abstractmethod
    def info(self) -> StoreInfo: ...

    def require_ready(self) -> None:
        """Raises UnavailableError when a commit would fail, or wait long, as far as that can be told without one."""
        self.info()

    def may_have_files(self) -> bool:
        """False when it is known that there is no content of files."""
        return True

    @abstractmethod
    def close(self) -> None:
        """Give back all resources. Idempotent; nothing else may be called afterwards."""
