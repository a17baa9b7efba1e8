"""Tasks, their branches, and the events of their append-only log (history and audit in one)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from lastgood.model.checkpoint import Head

MAIN = "main"

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
    "request_met",
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
    created_at: int
    active_branch_id: str
    last_sequence: int
    last_event: int
    checkpoints: int


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
    created_at: int
    created_by: str
    metadata: dict[str, Any]
    deleted: bool = False


class Event(msgspec.Struct, frozen=True):
    """An entry of a task's log: what happened, to which checkpoint, by whom, when, in which correlation."""

    sequence: int
    kind: str
    at: int
    actor: str
    correlation_id: str
    branch_id: str
    checkpoint_id: str | None
    data: dict[str, Any]
