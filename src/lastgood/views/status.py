"""Where a store is and how the work on a task stands: who does it, how far it is, what it asks, what was asked of it.

Also what waits in the spool.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from lastgood.errors import CheckpointError
from lastgood.local.process import is_alive
from lastgood.views.checkpoint import CheckpointView, verification, view_checkpoint
from lastgood.views.document import View, compose
from lastgood.views.records import engine_of, find_lease, find_task, list_requests

if TYPE_CHECKING:
    from lastgood import Checkpoint, Store
    from lastgood.spool.entries import Waiting
    from lastgood.types import Lease, OpenStep, Progress, Recovery, Request, SpoolFigures

ProcessState = Literal["running", "gone", "unknown"]
PROCESS: dict[bool | None, ProcessState] = {True: "running", False: "gone", None: "unknown"}
"""Whether a process is there; of another host's it cannot be said here."""

BY_OTHERS = frozenset(("paused", "resumed", "stopped", "cancelled", "guided", "edited", "answered", "rounds_added"))
BY_OTHERS |= {"restored", "manual", "before_step", "automatic"}
"""Types of checkpoints that others make of work: they may say nothing of its progress."""
MOST_PASSED = 50
"""So many of them are passed over."""


class WorkerView(View, frozen=True, kw_only=True):
    """Who holds the lease on a branch, alive or not."""

    executor: str
    host: str
    pid: int
    process: ProcessState
    since: datetime
    lease_until: datetime
    lease_live: bool


class ProgressView(View, frozen=True, kw_only=True):
    """How far a pipeline has come: so many stages are `completed`, `next` was begun `attempts` times."""

    pipeline: str
    stages: list[str]
    completed: int
    next: str | None
    attempts: int
    round: int
    rounds: int


class StatusView(View, frozen=True, kw_only=True):
    """A store and a task. Without a store, and while it is away, what is not known is None, 0 or empty."""

    store: str
    found_by: str
    exists: bool
    task_id: str
    format: str | None = None
    store_id: str | None = None
    created_at: datetime | None = None
    size: int | None = None
    branch: dict[str, str] | None = None
    branches: int = 0
    checkpoints: int = 0
    head: CheckpointView | None = None
    last_good: str | None = None
    last_good_verified: bool = False
    steps: Sequence[dict[str, Any]] = ()
    run_control_state: str | None = None
    worker: WorkerView | None = None
    question: Any = None
    requests: Sequence[Request] = ()
    progress: ProgressView | None = None
    workspace: dict[str, Any] | None = None
    spool: SpoolFigures | None = None
    advice: Sequence[str] = ()

    @property
    def is_worked_on(self) -> bool:
        """Whether a process that may be alive holds the lease."""
        return self.worker is not None and self.worker.lease_live and self.worker.process != "gone"


def list_spooled(store: Store) -> list[tuple[Waiting, str | None]]:
    """Return the checkpoints that wait for the store; those that were set aside with the reason."""
    from lastgood.spool.spool import Spool

    if not isinstance(spool := engine_of(store).spool, Spool):
        return []
    return [*((each, None) for each in spool.entries.pending()), *spool.entries.aside()]


def add_recovery(status: StatusView, store: Store, owner: str | None, found: Recovery) -> StatusView:
    """Fill in what was found of the task, and of the store unless it is away."""
    known: dict[str, Any] = {
        "head": view_checkpoint(found.head) if found.head else None,
        "last_good": found.last_good.id if found.last_good else None,
        "last_good_verified": found.last_good is not None and verification(found.last_good) == "verified",
        "advice": list(found.advice),
    }
    if found.away is None:
        info = store.info()
        known |= {
            "format": info.format,
            "store_id": info.id,
            "created_at": info.created_at,
            "size": store.size(),
            "steps": [view_step(step) for step in (*found.interrupted, *found.running)],
        }
        if found.head is not None:
            known |= _count_task(store, owner, status.task_id, found)
    return msgspec.structs.replace(status, **known)


def add_work(status: StatusView, store: Store, owner: str | None, head: Checkpoint) -> StatusView:
    """Fill in how the work stands on the branch of `head`, and what a person could do about it."""
    lease = find_lease(store, owner, head.branch_id)
    waits = head.integrity_ok and head.control_state == "waiting_for_input"
    work = msgspec.structs.replace(
        status,
        run_control_state=head.control_state if head.integrity_ok else "unknown",
        worker=None if lease is None else _view_worker(lease),
        question=store.task(status.task_id, owner=owner).control.question if waits else None,
        requests=list_requests(store, owner, head.branch_id),
        progress=_find_progress(store, owner, head),
    )
    return msgspec.structs.replace(work, advice=[*work.advice, *_advise(work)])


def find_worker(store: Store, owner: str | None, branch_id: str | None) -> Lease | None:
    """Return the lease on a branch unless it ran out or its holder is known to be gone."""
    lease = find_lease(store, owner, branch_id)
    return lease if lease is not None and lease.is_live and is_alive(lease.process) is not False else None


def view_step(step: OpenStep) -> dict[str, Any]:
    """Return an open step as JSON shows it, with whether its process is there."""
    process = step.process
    return compose(step, host=process.host, pid=process.pid, process=PROCESS[is_alive(process)])


def _count_task(store: Store, owner: str | None, task_id: str, found: Recovery) -> dict[str, Any]:
    branches = store.branches(task_id, owner=owner)
    branch = next(one for one in branches if found.head and one.id == found.head.branch_id)
    return {
        "branch": {"id": branch.id, "name": branch.name},
        "branches": sum(not one.deleted for one in branches),
        "checkpoints": find_task(store, owner, task_id).checkpoints,
    }


def _advise(work: StatusView) -> list[str]:
    advice = []
    if work.question is not None:
        advice.append(f"it waits for an answer: `lastgood answer {quote(work.task_id)}`")
    elif work.run_control_state == "paused":
        advice.append(f"it is paused: `lastgood resume {quote(work.task_id)}` resumes it")
    if work.run_control_state in ("running", "waiting_for_input", "paused") and not work.is_worked_on:
        advice.append("it is not running: run it again, and it resumes from its newest checkpoint")
    return advice


def _view_worker(lease: Lease) -> WorkerView:
    return WorkerView(
        executor=lease.executor,
        host=lease.process.host,
        pid=lease.process.pid,
        process=PROCESS[is_alive(lease.process)],
        since=lease.acquired_at,
        lease_until=lease.expires_at,
        lease_live=lease.is_live,
    )


def _find_progress(store: Store, owner: str | None, head: Checkpoint) -> ProgressView | None:
    """None: there is no pipeline, or it is done, or its record cannot be read."""
    checkpoint = head
    for _ in range(MOST_PASSED):
        if not checkpoint.integrity_ok:
            return None
        if "progress" in checkpoint.metadata:
            from lastgood.work.progress import read_progress

            progress = read_progress(checkpoint)
            return None if progress is None or progress.finished is not None else _view_progress(progress)
        if checkpoint.type not in BY_OTHERS or checkpoint.parent_id is None:
            return None
        try:
            parent = store.get_checkpoint(checkpoint.parent_id, owner=owner)
        except CheckpointError:
            return None
        if parent is None:
            return None
        checkpoint = parent
    return None


def _view_progress(progress: Progress) -> ProgressView:
    return ProgressView(
        pipeline=progress.pipeline,
        stages=list(progress.plan),
        completed=len(progress.completed),
        next=progress.next,
        attempts=progress.attempts,
        round=progress.round,
        rounds=progress.rounds,
    )


def take_lease(store: Store, owner: str, lease: Lease) -> None:
    """Take the lease on a branch away from its holder, and release it."""
    from lastgood.work.lease import HeldLease, name_executor

    hold = HeldLease(engine_of(store), store.user, owner, name_executor(), 1.0)
    hold.acquire(lease.branch_id, over=lease.token)
    hold.release()
