"""Tasks and branches as values."""

from __future__ import annotations

from typing import Any

import msgspec

from lastgood.model.checkpoint import Head

MAIN = "main"


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
    """One line of a task's history. `origin` is the checkpoint it began from; None for the first."""

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
