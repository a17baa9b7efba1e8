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
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from lastgood.model.checkpoint import Attestation, Head, Placement, Record
from lastgood.model.event import Event, EventKind
from lastgood.model.journal import Journal
from lastgood.model.lease import Lease
from lastgood.model.request import Request
from lastgood.model.step import OpenStep, Process
from lastgood.model.task import BranchInfo, TaskInfo

if TYPE_CHECKING:
    from lastgood.catalog.audit import Audit
    from lastgood.catalog.mending import Mending

MAX_PAGE = 1000


FILES = 0
"""The partition of what belongs to no task: the content of files is the store's."""


class Blob(NamedTuple):
    """Bytes as they are stored: digest and size are those of the bytes before `encoding`.

    With `whole`, encoding and data are those of that blob, and this one is `size` bytes of it. With `place` the
    data are not here but in a pack.
    """

    digest: bytes
    size: int
    encoding: int
    data: bytes
    whole: Whole | None = None
    place: Place | None = None


class Place(NamedTuple):
    """Where a blob's bytes lie: the object's name, and which of its bytes."""

    pack: str
    position: int
    length: int


class Packed(NamedTuple):
    """A blob in a new pack."""

    digest: bytes
    position: int
    length: int
    size: int
    encoding: int


class NewPack(NamedTuple):
    """An object that is durably stored, and the blobs in it."""

    name: str
    size: int
    entries: Sequence[Packed]


class Binding(NamedTuple):
    """Folders that a commit says something about. With `takes_over` their files are those of its branch from now on;
    else they must be, or nobody's of this task."""

    host: str
    paths: Sequence[str]
    takes_over: bool = False


class Whole(NamedTuple):
    """The blob that another one is a part of: its digest and size, and where the part begins."""

    digest: bytes
    size: int
    position: int


class SliceOf(NamedTuple):
    """A stored blob, the blob it is a part of, and where it begins there."""

    digest: bytes
    whole: bytes
    position: int


class Actor(NamedTuple):
    """Who acts, and in which correlation."""

    user: str
    correlation_id: str | None = None


class Met(NamedTuple):
    """A request that has come to its end, and what came of it."""

    id: str
    outcome: dict[str, Any]


class NewBranch(msgspec.Struct, frozen=True):
    """A branch to be made by a commit. The commit's parent is its origin; without one it begins the task.

    With `may_rename` a name that is taken gets a number behind it. An `active` one becomes the task's active
    branch; then `expects` is the head of the branch that was active as the writer saw it (None: whatever it is).
    With `is_apart`, one that has no origin may begin beside the branches of a task that is there; it is not active.
    """

    id: str
    name: str
    description: str = ""
    metadata: dict[str, Any] = {}
    active: bool = True
    may_rename: bool = False
    expects: str | None = None
    is_apart: bool = False


class Note(NamedTuple):
    """An entry for the log that comes with a commit: about a branch, and a checkpoint of the task."""

    kind: EventKind
    branch_id: str
    checkpoint_id: str | None
    data: dict[str, Any]


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint and all that must become visible with it.

    `may_repeat`: its id or its key was given by a caller, who may have committed it before; `inherited`:
    the fields that do not count then, because the caller left them as they were. `root`: the root of
    its state, which lies with the checkpoint, because it is small and hardly ever the same twice; `keep_root`: it
    is the parent's, because the state is. `slices`: blobs
    of the task that are parts of others now; their own bytes may go, they are read as before. `step`: the open
    step that ends with this commit. `notes` stand in the log before the checkpoint itself.

    `file_blobs` and `packs` bring content of files, which is the store's; `relies_on` names what it needs of it beyond
    that and what its parent has, or the checkpoint `base`, which must not be purged. `binding`: the folders that were
    captured. `journal`: the restore of files that ends with this commit. `files_move`: files alone were restored; the
    parent has them as they were, and undo goes back to those (on the active branch: else the task has not moved).
    `keeps_redo`: it was not the user who saved, so what was undone can still be redone.

    `lease`: the token of who works on the branch; on a new branch, of who goes on there from the branch that the lease
    is of. `met`: requests that this commit meets. `begins`: a step that begins with it, unless a request to the branch
    is open: then the commit is made without.
    """

    owner: str
    record: Record
    data: bytes
    checksum: bytes
    branch: str | NewBranch
    only_if_active: bool = False
    may_repeat: bool = True
    inherited: Sequence[str] = ()
    root: Blob | None = None
    keep_root: bool = False
    blobs: Sequence[Blob] = ()
    slices: Sequence[SliceOf] = ()
    attestations: Sequence[tuple[str, dict[str, Any]]] = ()
    step: str | None = None
    notes: Sequence[Note] = ()
    file_blobs: Sequence[Blob] = ()
    packs: Sequence[NewPack] = ()
    relies_on: Sequence[bytes] = ()
    base: str | None = None
    binding: Binding | None = None
    journal: str | None = None
    files_move: bool = False
    keeps_redo: bool = False
    lease: int | None = None
    met: Sequence[Met] = ()
    begins: OpenStep | None = None


class StoredCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint as it lies in the catalog. `data` is None once it is purged."""

    id: str
    owner: str
    task_id: str
    task_number: int
    data: bytes | None
    checksum: bytes
    placement: Placement
    placement_digest: bytes
    verified: bool
    verified_at: int | None
    deleted: bool
    tags: tuple[str, ...]


class Held(NamedTuple):
    """A checkpoint that holds content, and the root of its state, its digest left empty."""

    stored: StoredCheckpoint
    root: Blob | None


class Indexed(NamedTuple):
    """A blob as the index has it, without its bytes. `length` of them are stored: in `pack` at `position`, or here.
    `condemned`: since when garbage collection thinks that nobody needs it."""

    number: int
    partition: int
    digest: bytes
    size: int
    length: int
    pack: str | None
    position: int | None = None
    encoding: int = 0
    condemned: int | None = None


class Sliced(NamedTuple):
    """A blob that is a part of another one, which has its bytes."""

    partition: int
    digest: bytes
    whole: bytes


class Flight(NamedTuple):
    """A pack that a process is about to commit, or was: since when, and who."""

    name: str
    at: int
    process: Process


class KnownPack(NamedTuple):
    """An object that blobs lie in, and how many bytes it has."""

    name: str
    size: int


class Committed(msgspec.Struct, frozen=True):
    """What a commit came to. `repeated`: it had been stored before, under the same key or id; nothing begins then.
    `begun`: the step that was to begin with it has."""

    stored: StoredCheckpoint
    previous_control_state: str
    repeated: bool = False
    begun: bool = False


class Line(msgspec.Struct, frozen=True):
    """What is listed: all of a task's checkpoints, or with `branch` that branch's ancestors and its own."""

    task: TaskInfo
    branch: BranchInfo | None = None


class Position(msgspec.Struct, frozen=True):
    """Where a task is: the branch that an id stands for (a task's: its active one), and its head.

    After an undo or redo of a restore of files alone, `files` is the checkpoint that has them.
    """

    task: TaskInfo
    branch: BranchInfo
    head: StoredCheckpoint
    by_branch: bool
    files: str | None = None


class StoreInfo(msgspec.Struct, frozen=True):
    """What was fixed when the store was created, and its format as it is now."""

    id: str
    created_at: int
    format: str
    blob_id: str
    migration: int


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
        self, owner: str, ended: Met, status: Literal["met", "refused"], actor: Actor, *, lease: int | None = None
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
        line: Line,
        *,
        before: int | None = None,
        limit: int = 100,
        type: str | None = None,
    ) -> list[StoredCheckpoint]:
        """Newest first, those with a sequence below `before`, neither deleted nor purged."""

    @abstractmethod
    def last_verified(self, line: Line, type: str | None = None) -> StoredCheckpoint | None:
        """The newest of `checkpoints` whose last recorded verification held."""

    @abstractmethod
    def count(self, line: Line, type: str | None = None) -> int:
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
    def history(self, line: Line, *, before: int | None = None, limit: int = 100) -> list[Event]:
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
    def held(self, after: StoredCheckpoint | None = None, limit: int = MAX_PAGE) -> list[Held]:
        """Every checkpoint but those that are purged, deleted ones included: by task, then by sequence."""

    @abstractmethod
    def all_branches(self, task: TaskInfo) -> list[BranchInfo]:
        """Oldest first, deleted ones included, whatever is left of them."""

    @abstractmethod
    def indexed(self, after: int = 0, limit: int = MAX_PAGE) -> list[Indexed]:
        """Every blob, by the number that it has in the index."""

    @abstractmethod
    def sliced(self, after: Sliced | None = None, limit: int = MAX_PAGE) -> list[Sliced]:
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
    def lying_in(self, pack: str) -> list[Indexed]:
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
    def flights(self) -> list[Flight]:
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
    def mend(self, mending: Mending, actor: Actor) -> None:
        """Set all of it right at once; logs `repaired` in the store's own log."""

    @abstractmethod
    def rebuild(self) -> list[str]:
        """Write what can be read of damaged files anew, so that they are whole again; which kinds of rows were not all
        to be read, as an audit names them."""
