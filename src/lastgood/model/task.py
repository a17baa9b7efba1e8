"""A task as values: its branches, the events of its append-only log (history and audit in one), and the work under way
on it: open steps, leases, requests, and restores of files that can be interrupted."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

import msgspec

from lastgood.model.checkpoint import Head
from lastgood.model.identity import Moment, moment, without_unit

MAIN = "main"

RequestKind = Literal["pause", "resume", "stop", "cancel", "retry", "rounds", "guide", "edit", "answer", "restore"]
RequestStatus = Literal["open", "fulfilled", "refused"]

EventKind = Literal[
    "created",
    "branched",
    "diverged",
    "restored",
    "switched",
    "undone",
    "redone",
    "branch_deleted",
    "step_failed",
    "step_abandoned",
    "taken_over",
    "requested",
    "request_fulfilled",
    "request_refused",
    "tagged",
    "untagged",
    "verified",
    "deleted",
    "undeleted",
    "purged",
    "task_deleted",
    "repaired",
]


class TaskInfo(msgspec.Struct, frozen=True):
    """A task: who owns it, which branch is active, and its counters."""

    number: int
    id: str
    owner: str
    created_at_us: int
    active_branch_id: str
    last_sequence: int
    last_event: int
    checkpoints: int

    created_at = Moment()


class BranchInfo(msgspec.Struct, frozen=True):
    """A line of a task's history. `origin` is the checkpoint it began from; None for the first."""

    number: int
    id: str
    task_id: str
    owner: str
    name: str
    description: str
    origin_id: str | None
    origin_sequence: int
    head: Head | None
    version: int
    control_state: str
    checkpoints: int
    created_at_us: int
    created_by: str
    metadata: dict[str, Any]
    deleted: bool = False

    created_at = Moment()

    def __repr__(self) -> str:
        return f"<Branch {self.name!r} of {self.task_id!r}, {self.checkpoints} checkpoints{', deleted' * self.deleted}>"


class Event(msgspec.Struct, frozen=True):
    """An entry of a task's log: what happened, to which checkpoint, by whom, when, in which correlation."""

    sequence: int
    kind: str
    at_us: int
    actor: str
    correlation_id: str
    branch_id: str
    checkpoint_id: str | None
    data: dict[str, Any]

    at = Moment()


class Process(msgspec.Struct, frozen=True, array_like=True):
    """A process on some host. `started` tells it from a later one with the same number, `space` from one whose number
    is counted apart, as in another container; 0: not known."""

    host: str
    pid: int
    started: int = 0
    space: int = 0


class OpenStep(msgspec.Struct, frozen=True, kw_only=True, rename=without_unit):
    """A step that was begun, and neither committed nor ended otherwise."""

    id: str
    owner: str
    task_id: str
    name: str
    type: str
    began_at_us: int
    began_by: str
    process: Process
    branch_id: str | None = None
    work_item_id: str | None = None
    correlation_id: str | None = None
    metadata: dict[str, Any] = {}
    has_snapshot: bool = False

    began_at = Moment()


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right of a process to work on a branch for a while, or a right of the store's own called `name`.

    `token` is larger than that of any lease before it in the store: the holder of an earlier one can be refused.
    `is_live`: it had not run out when it was read, by the catalog's clock.
    """

    token: int
    branch_id: str
    process: Process
    executor: str
    acquired_at_us: int
    expires_at_us: int
    is_live: bool
    name: str = ""

    acquired_at = Moment()
    expires_at = Moment()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a person to the work on one branch. Asking again with the same `id` is harmless. `outcome` is its
    result, once it is fulfilled or refused."""

    id: str
    branch_id: str
    kind: RequestKind
    data: dict[str, Any]
    at_us: int
    actor: str
    correlation_id: str | None = None
    status: RequestStatus = "open"
    ended_at_us: int | None = None
    outcome: dict[str, Any] = {}

    at = Moment()

    @property
    def ended_at(self) -> datetime | None:
        return None if self.ended_at_us is None else moment(self.ended_at_us)


class FolderId(msgspec.Struct, frozen=True, array_like=True):
    """A folder on disk, whoever reaches it, by whatever path: containers have new host names, and mount it elsewhere.

    Numbers of devices are given anew when the system starts: after that (`boot` is another one, or not known) a folder
    is known by its path. Numbers are text, because databases have no integers of 64 bits without a sign.
    """

    path: str
    inode: str
    device: str
    boot: str = ""

    def is_same(self, other: FolderId) -> bool:
        if self.boot and self.boot == other.boot:
            return (self.inode, self.device) == (other.inode, other.device)
        return (self.inode, self.path) == (other.inode, other.path)


class Journal(msgspec.Struct, frozen=True, kw_only=True, rename=without_unit):
    """A record of a restore of files: those of `chosen` come into these folders; `before` has them as they were.

    It is what taking the restore back needs after it was interrupted. Whether somebody works on it is told by the locks
    of the folders: who holds them, and finds it, finds it interrupted. From `applied_at` on the files are in place, and
    `made` has them; then it is there until they are durable.
    """

    id: str
    owner: str
    task_id: str
    began_at_us: int
    process: Process
    chosen: str
    before: str
    folders: tuple[FolderId, ...]
    doubted: bool = False
    """Whether the disk failed to confirm the files: whether they are durable shows when the system has started anew."""
    made: str | None = None
    applied_at_us: int | None = None

    began_at = Moment()

    def is_of(self, boot: str) -> bool:
        """Return whether the system has run since then without a stop."""
        return bool(boot) and all(folder.boot == boot for folder in self.folders)

    def is_about(self, folders: Iterable[FolderId]) -> bool:
        """Return whether these are all among its folders."""
        return all(any(folder.is_same(one) for one in self.folders) for folder in folders)

    def needs(self) -> tuple[str, ...]:
        """Return the checkpoints that it needs to end. What was saved last in a folder is its branch's head."""
        return (self.before, self.chosen) if self.made is None else ()


decode_step = msgspec.msgpack.Decoder(OpenStep).decode
decode_journal = msgspec.msgpack.Decoder(Journal).decode
encode_step = encode_journal = msgspec.msgpack.Encoder().encode
