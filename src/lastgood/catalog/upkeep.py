"""What a catalog may offer beside its contract: looking after itself, being checked row by row, being repaired.

Rows are as they lie there, not joined and not believed, also where they contradict each other. What cannot be read is
left out and reported.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from lastgood.catalog.values import Blob, NewPack
from lastgood.model.task import FolderId

STORE = 0
"""The number of the task that is the store itself: its row counts commits, its events are the store's own."""


class TaskRow(NamedTuple):
    number: int
    owner: str
    id: str
    active_branch: int
    last_sequence: int
    last_event: int
    checkpoints: int


class BranchRow(NamedTuple):
    """Branches are named by their numbers; `origin` and `head` are sequences."""

    number: int
    task: int
    owner: str
    id: str
    name: str
    origin_branch: int | None
    origin: int
    origin_id: str | None
    head: int
    version: int
    own: int
    inherited: int
    deleted: int


class CheckpointRow(NamedTuple):
    """`record` None: purged. `root_size`, `encoding` and `root` are the root of its state."""

    task: int
    sequence: int
    branch: int
    owner: str
    id: str
    type: str
    version: int
    last_event: int
    deleted: int
    verified: int
    verified_at: int | None
    checksum: bytes
    placement: bytes
    record: bytes | None
    root_size: int | None
    encoding: int | None
    root: bytes | None


class AttestationRow(NamedTuple):
    task: int
    sequence: int
    number: int
    kind: str
    at: int
    actor: str
    data: bytes
    digest: bytes


class NameRow(NamedTuple):
    """A key or a tag, and the checkpoint that it names."""

    task: int
    name: str
    owner_task: int
    sequence: int


class MoveRow(NamedTuple):
    """`before` and `after`: (task, sequence) of checkpoints, where files alone were moved."""

    task: int
    number: int
    from_branch: int
    to_branch: int
    before: tuple[int, int] | None
    after: tuple[int, int] | None


class WorkspaceRow(NamedTuple):
    task: int
    path: str
    inode: str
    device: str
    boot: str
    branch: int

    @property
    def folder(self) -> FolderId:
        return FolderId(self.path, self.inode, self.device, self.boot)


class JournalRow(NamedTuple):
    id: str
    owner: str
    task_id: str
    data: bytes


class StepRow(NamedTuple):
    owner: str
    id: str
    task_id: str
    data: bytes
    size: int | None
    encoding: int | None
    snapshot: bytes | None


class BlobRow(NamedTuple):
    """`pack` None: its bytes are `data`, if they were asked for. `length`: of its bytes as they are stored."""

    number: int
    partition: int
    digest: bytes
    size: int
    encoding: int
    pack: int | None
    position: int | None
    length: int | None
    data: bytes | None


class SliceRow(NamedTuple):
    partition: int
    digest: bytes
    size: int
    whole: int
    position: int


class PackRow(NamedTuple):
    number: int
    name: str
    size: int


class Audit(ABC):
    """One snapshot of everything. Belongs to the thread that asked for it, and ends with its `with`.

    Iterators do not raise for damage: they leave out what cannot be read, and `unreadable` says so. From the first
    damage on it may be more than one snapshot.
    """

    unreadable: list[str]
    """Which kinds of rows could not all be read, by the names of the methods here."""

    lost: int
    """How many acknowledged commits are gone."""

    @abstractmethod
    def problems(self) -> list[str]:
        """What the backend itself finds wrong with its files, in words."""

    @abstractmethod
    def tasks(self) -> Iterator[TaskRow]:
        """By number; the first is the store's own."""

    @abstractmethod
    def branches(self) -> Iterator[BranchRow]:
        """By number."""

    @abstractmethod
    def checkpoints(self) -> Iterator[CheckpointRow]:
        """By task and sequence; deleted ones and tombstones, too."""

    @abstractmethod
    def attestations(self) -> Iterator[AttestationRow]: ...

    @abstractmethod
    def events(self) -> Iterator[tuple[int, int]]:
        """(task, sequence) of what the log has, without what checkpoints tell themselves."""

    @abstractmethod
    def keys(self) -> Iterator[NameRow]: ...

    @abstractmethod
    def tags(self) -> Iterator[NameRow]: ...

    @abstractmethod
    def moves(self) -> Iterator[MoveRow]: ...

    @abstractmethod
    def workspaces(self) -> Iterator[WorkspaceRow]: ...

    @abstractmethod
    def journals(self) -> Iterator[JournalRow]: ...

    @abstractmethod
    def steps(self) -> Iterator[StepRow]: ...

    @abstractmethod
    def packs(self) -> Iterator[PackRow]: ...

    @abstractmethod
    def blobs(self, *, data: bool = False) -> Iterator[BlobRow]:
        """By number; with `data`, with the bytes of those that lie here."""

    @abstractmethod
    def slices(self) -> Iterator[SliceRow]: ...

    @abstractmethod
    def read(self, partition: int, digests: Iterable[bytes]) -> dict[bytes, Blob]:
        """As `Catalog.blobs`; those that cannot be read are not there."""


# --- repair --------------------------------------------------------------------------------------------------------


class NameFix(NamedTuple):
    """A key or a tag; without a sequence it goes."""

    task: int
    name: str
    sequence: int | None


class Tombstone(NamedTuple):
    """What is left of a checkpoint that is gone: its place, its id and checksum. `placement`: the place's digest."""

    task: int
    sequence: int
    branch: int
    owner: str
    id: str
    version: int
    last_event: int
    checksum: bytes
    placement: bytes


class Corrections(msgspec.Struct, frozen=True, kw_only=True):
    """Rows to be set right, all at once: nothing in it is new but the place of bytes that were found again.

    Checkpoints are named by task and sequence, everything else by its number.

    `tombstones` stand in holes from now on. `checksums`: (task, sequence, checksum).
    `marks`: (task, sequence, type, deleted, verified, verified_at).
    `branches`: (branch, head, version, own, inherited). `tasks`: (task, last_sequence, last_event, checkpoints).
    `active`: (task, branch). `moves`: (task, number), `workspaces`: (task, inode, device, path), `steps`: (owner, id)
    and `journals`: ids, all of which go.

    `blobs`: (partition, blob) whose bytes were found again and lie in the catalog from now on. `packs`: those of files
    lie there from now on. `lost`: (partition, digest) that are nowhere any more: reading one says that it is
    missing, and saving the same content stores it anew. `retired`: names of packs that nothing lies in any more.
    """

    tombstones: Sequence[Tombstone] = ()
    checksums: Sequence[tuple[int, int, bytes]] = ()
    marks: Sequence[tuple[int, int, str, int, int, int | None]] = ()
    branches: Sequence[tuple[int, int, int, int, int]] = ()
    tasks: Sequence[tuple[int, int, int, int]] = ()
    active: Sequence[tuple[int, int]] = ()
    keys: Sequence[NameFix] = ()
    tags: Sequence[NameFix] = ()
    moves: Sequence[tuple[int, int]] = ()
    workspaces: Sequence[tuple[int, str, str, str]] = ()
    steps: Sequence[tuple[str, str]] = ()
    journals: Sequence[str] = ()
    blobs: Sequence[tuple[int, Blob]] = ()
    packs: Sequence[NewPack] = ()
    lost: Sequence[tuple[int, bytes]] = ()
    retired: Sequence[str] = ()

    def is_empty(self) -> bool:
        return not any(getattr(self, name) for name in self.__struct_fields__)
