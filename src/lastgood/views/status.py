"""Where a store is and how a task in it stands; what waits in the spool."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.model.identity import moment
from lastgood.views.checkpoint import CheckpointView, view_checkpoint
from lastgood.views.document import View
from lastgood.views.records import engine_of, find_task
from lastgood.views.work import StepView, WorkView, view_step

if TYPE_CHECKING:
    from lastgood import Recovery, SpoolFigures, Store, TaskInfo
    from lastgood.views.workspace import WorkspaceView


class TaskView(View, frozen=True, kw_only=True):
    """A task: who owns it, how many checkpoints it has, and which branch is active."""

    number: int
    id: str
    owner: str
    checkpoints: int
    active_branch_id: str
    created_at: datetime


class NamedBranchView(View, frozen=True, kw_only=True):
    """A branch's id and its name."""

    id: str
    name: str


class SpoolView(View, frozen=True, kw_only=True):
    """What waits for the store: how many checkpoints, and their bytes. `aside` cannot come into it.

    `away`: why the store does not answer. `left`: folders of spools that were put out of the way.
    """

    depth: int
    bytes: int
    max_bytes: int
    oldest: datetime | None
    aside: int
    away: str | None
    durable: bool
    folder: str | None
    left: list[str]


class SpooledCheckpointView(View, frozen=True, kw_only=True):
    """A checkpoint in the spool; `reason`: why it was set aside, None while it waits."""

    id: str
    owner: str
    task_id: str
    since: datetime
    reason: str | None


class SpoolListView(SpoolView, frozen=True, kw_only=True):
    """What waits for the store, one by one; `replayed`: what became of it, if that was wanted."""

    checkpoints: list[SpooledCheckpointView]
    replayed: Any


class StatusView(WorkView, frozen=True, kw_only=True):
    """A store and a task. Without a store, and while it is away, what is not known is None, 0 or empty."""

    store: str
    found_by: str
    exists: bool
    task_id: str
    format: str | None = None
    store_id: str | None = None
    created_at: datetime | None = None
    size: int | None = None
    branch: NamedBranchView | None = None
    branches: int = 0
    checkpoints: int = 0
    head: CheckpointView | None = None
    last_good: str | None = None
    steps: Sequence[StepView] = ()
    workspace: WorkspaceView | None = None
    spool: SpoolView | None = None
    advice: Sequence[str] = ()


def view_task(task: TaskInfo) -> TaskView:
    """Return a task as JSON shows it."""
    return TaskView.of(task, created_at=moment(task.created_at))


def view_spool(figures: SpoolFigures) -> SpoolView:
    """Return what waits for the store as JSON shows it."""
    return SpoolView.of(figures, left=list(figures.left))


def list_spooled(store: Store) -> list[SpooledCheckpointView]:
    """Return the checkpoints that wait for the store, and those that were set aside."""
    from lastgood.spool.spool import Spool

    if not isinstance(spool := engine_of(store).spool, Spool):
        return []
    both = [*((each, None) for each in spool.entries.pending()), *spool.entries.aside()]
    return [SpooledCheckpointView.of(each, since=moment(each.at), reason=reason) for each, reason in both]


def add_recovery(status: StatusView, store: Store, owner: str | None, found: Recovery) -> StatusView:
    """Fill in what was found of the task, and of the store unless it is away."""
    known: dict[str, Any] = {
        "head": view_checkpoint(found.head) if found.head else None,
        "last_good": found.last_good.id if found.last_good else None,
        "advice": list(found.advice),
    }
    if found.away is None:
        info = store.info()
        known |= {
            "format": info.format,
            "store_id": info.id,
            "created_at": moment(info.created_at),
            "size": store.size(),
            "steps": [view_step(step) for step in (*found.interrupted, *found.running)],
        }
        if found.head is not None:
            known |= _count_task(store, owner, status.task_id, found)
    return msgspec.structs.replace(status, **known)


def _count_task(store: Store, owner: str | None, task_id: str, found: Recovery) -> dict[str, Any]:
    branches = store.branches(task_id, owner=owner)
    branch = next(one for one in branches if found.head and one.id == found.head.branch_id)
    return {
        "branch": NamedBranchView.of(branch),
        "branches": sum(not one.deleted for one in branches),
        "checkpoints": find_task(store, owner, task_id).checkpoints,
    }
