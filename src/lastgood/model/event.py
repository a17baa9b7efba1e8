"""Events: a task's append-only log, history and audit in one."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

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


class Event(msgspec.Struct, frozen=True):
    """One entry: what happened, to which checkpoint, by whom, when, in which correlation."""

    sequence: int
    kind: str
    at: int
    actor: str
    correlation_id: str
    branch_id: str
    checkpoint_id: str | None
    data: dict[str, Any]
