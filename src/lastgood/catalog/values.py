"""What goes into a catalog and comes out of it: frozen values, without behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from lastgood.model.checkpoint import Placement, Record
from lastgood.model.identity import Moment
from lastgood.model.task import BranchInfo, EventKind, FolderId, OpenStep, Process, TaskInfo

MAX_PAGE = 1000
FILES = 0
"""The partition of what belongs to no task: the content of files is the store's."""


class StoreInfo(msgspec.Struct, frozen=True):
    """What was fixed when the store was created, its format as it is now, and the most bytes that it may take."""

    id: str
    created_at_us: int
    format: str
    blob_id: str
    migration: int
    max_bytes: int | None = None

    created_at = Moment()


class Actor(NamedTuple):
    """A user who acts, and the correlation id of what they do."""

    user: str
    correlation_id: str | None = None


# --- content ------------------------------------------------------------------------------------------------------


class PackRange(NamedTuple):
    """The bytes of a blob in a pack: the object's name, where they begin in it, and how many they are."""

    pack: str
    position: int
    length: int


class ContainingBlob(NamedTuple):
    """A blob that another one is a part of: its digest and size, and where the part begins."""

    digest: bytes
    size: int
    position: int


class Blob(NamedTuple):
    """Bytes as they are stored: digest and size are those of the bytes before `encoding`.

    With `whole`, encoding and data are those of that blob, and this one is `size` bytes of it. With `place` the
    data are not here but in a pack.
    """

    digest: bytes
    size: int
    encoding: int
    data: bytes
    whole: ContainingBlob | None = None
    place: PackRange | None = None


class NewSlice(NamedTuple):
    """A stored blob that becomes a part of another one, and where it begins there."""

    digest: bytes
    whole: bytes
    position: int


class PackedBlob(NamedTuple):
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
    entries: Sequence[PackedBlob]


class KnownPack(NamedTuple):
    """An object that blobs lie in, and how many bytes it has."""

    name: str
    size: int


class AnnouncedPack(NamedTuple):
    """A pack that a process is about to commit: when it was announced, and by which process."""

    name: str
    at: int
    process: Process


class IndexedBlob(NamedTuple):
    """A blob as the index has it, without its bytes. `length` of them are stored: in `pack` at `position`, or here.
    `condemned`: since when garbage collection takes it for unreferenced."""

    number: int
    partition: int
    digest: bytes
    size: int
    length: int
    pack: str | None
    position: int | None = None
    encoding: int = 0
    condemned: int | None = None


class SlicedBlob(NamedTuple):
    """A blob that is a part of another one, which has its bytes."""

    partition: int
    digest: bytes
    whole: bytes


# --- a commit -----------------------------------------------------------------------------------------------------


class Binding(NamedTuple):
    """Folders that a commit says something about. With `takes_over` their files are those of its branch from now on;
    else they must be so already, or of no branch of this task."""

    folders: Sequence[FolderId]
    takes_over: bool = False


class FulfilledRequest(NamedTuple):
    """A request and its result."""

    id: str
    outcome: dict[str, Any]
    kind: str = ""


class NewBranch(msgspec.Struct, frozen=True):
    """A branch to be made by a commit. The commit's parent is its origin; without one it begins the task.

    With `may_rename` a name that is taken gets a number behind it, or a higher one: main-2, main-3. An `active` one
    becomes the task's active branch; then `expects` is the head of the branch that was active as the writer saw it
    (None: whatever it is).
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


class NewEvent(NamedTuple):
    """An entry for the log that comes with a commit: about a branch, and a checkpoint of the task."""

    kind: EventKind
    branch_id: str
    checkpoint_id: str | None
    data: dict[str, Any]


class AppliedRestore(NamedTuple):
    """A restore whose files were all in place at `at`, by the clock of their host; `made` has them."""

    journal: str
    at: int
    made: str = ""
    """Of a commit: the checkpoint that it makes."""


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint and all that must become visible with it.

    `may_repeat`: its id or its key was given by a caller, who may have committed it before; `inherited`:
    the fields that do not count then, because the caller left them as they were. `root`: the root of
    its state, which lies with the checkpoint, because it is small and hardly ever the same twice; `keep_root`: it
    is the parent's, because the state is. `slices`: blobs
    of the task that are parts of others now; their own bytes may go, they are read as before. `step`: the open
    step that ends with this commit. `notes` stand in the log before the checkpoint itself.

    `append`: its parent is the head of the branch, whatever that is; with `only_if_active`, or a new branch of a task
    that is there, of the task's active branch. The fields in `inherited` are that head's then (`files`, too,
    if they are named there), and it brings all content of its own. `Committed.stored` has the record as it came to be.

    `file_blobs` and `packs` bring content of files, which is the store's; `relies_on` names what it needs of it beyond
    that and what its parent has, or the checkpoint `base`, which must not be purged. `binding`: the folders that were
    captured. `journal`: a restore of files that is given up with this commit, unless it was applied. `applied`: one
    whose files are in place; it ends when they are durable. `files_move`: files alone were restored; the
    parent has them as they were, and undo goes back to those (on the active branch: else the task has not moved).
    `keeps_redo`: it was not the user who saved, so what was undone can still be redone.

    `lease`: the token of the process that works on the branch; on a new branch, of the one that goes on there from the
    branch that the lease is of. `fulfilled`: requests that end with this commit. `begins`: a step that begins with it,
    unless a request to the branch is open: then the commit is made without.
    """

    owner: str
    record: Record
    data: bytes
    checksum: bytes
    branch: str | NewBranch
    only_if_active: bool = False
    append: bool = False
    may_repeat: bool = True
    inherited: Sequence[str] = ()
    root: Blob | None = None
    keep_root: bool = False
    blobs: Sequence[Blob] = ()
    slices: Sequence[NewSlice] = ()
    attestations: Sequence[tuple[str, dict[str, Any]]] = ()
    step: str | None = None
    notes: Sequence[NewEvent] = ()
    file_blobs: Sequence[Blob] = ()
    packs: Sequence[NewPack] = ()
    relies_on: Sequence[bytes] = ()
    base: str | None = None
    binding: Binding | None = None
    journal: str | None = None
    applied: AppliedRestore | None = None
    files_move: bool = False
    keeps_redo: bool = False
    lease: int | None = None
    fulfilled: Sequence[FulfilledRequest] = ()
    begins: OpenStep | None = None


# --- what is stored -----------------------------------------------------------------------------------------------


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


class CheckpointRoot(NamedTuple):
    """A checkpoint that is not purged, and the root of its state, its digest left empty."""

    stored: StoredCheckpoint
    root: Blob | None


class Committed(msgspec.Struct, frozen=True):
    """What a commit came to. `repeated`: it had been stored before, under the same key or id; nothing begins then.
    `begun`: the step that was to begin with it has."""

    stored: StoredCheckpoint
    previous_control_state: str
    repeated: bool = False
    begun: bool = False


class HistoryRange(msgspec.Struct, frozen=True):
    """A part of a task's history: all of its checkpoints, or with `branch` that branch's ancestors and its own."""

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


class DiskUse(NamedTuple):
    """Bytes of a catalog: on disk, how many it would take if it was tidied up, and how many will be used again."""

    size: int
    used: int
    free: int
