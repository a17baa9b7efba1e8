"""The work on a task as every surface shows it: who does it, how far it is, what it asks, what was asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from lastgood.errors import CheckpointError
from lastgood.local.process import is_alive
from lastgood.model.identity import moment
from lastgood.views.document import View, tagged
from lastgood.views.records import engine_of, find_lease, list_requests

if TYPE_CHECKING:
    from lastgood import Checkpoint, Lease, OpenStep, Request, RequestResult, Store

ProcessState = Literal["running", "gone", "unknown"]
PROCESS: dict[bool | None, ProcessState] = {True: "running", False: "gone", None: "unknown"}
"""Whether a process is there; of another host's it cannot be said here."""

BY_OTHERS = frozenset(
    ("paused", "resumed", "stopped", "cancelled", "guided", "edited", "answered", "rounds_added", "restored", "manual")
)
"""Types of checkpoints that others make of work: they may say nothing of its progress."""
MOST_PASSED = 50
"""So many of them are passed over."""


class RequestView(View, frozen=True, kw_only=True):
    """Something that was asked of work. `data` and `outcome` depend on its kind."""

    id: str
    branch_id: str
    kind: str
    data: Any
    at: datetime
    actor: str
    correlation_id: str | None
    status: Literal["open", "fulfilled", "refused"]
    ended_at: datetime | None
    outcome: Any


class RequestResultView(View, frozen=True, kw_only=True):
    """What came of a request. `fulfilled`: it is done, or was so already. `alive`: a session works on the branch."""

    task_id: str
    run_control_state: str
    fulfilled: bool
    alive: bool
    note: str
    request: RequestView | None


class QuestionView(View, frozen=True, kw_only=True):
    """What work asks; `question` is None, or has an id, a key, a text and choices."""

    task_id: str
    run_control_state: str
    question: Any


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


class StepView(View, frozen=True, kw_only=True):
    """A step that was begun and not ended, and whether its process is there."""

    id: str
    task_id: str
    branch_id: str | None
    name: str
    type: str
    began_at: datetime
    began_by: str
    host: str
    pid: int
    process: ProcessState


class WorkView(View, frozen=True, kw_only=True):
    """How the work on a branch stands."""

    run_control_state: str | None = None
    worker: WorkerView | None = None
    question: Any = None
    requests: Sequence[RequestView] = ()
    progress: ProgressView | None = None

    @property
    def is_worked_on(self) -> bool:
        """Whether a process that may be alive holds the lease."""
        return self.worker is not None and self.worker.lease_live and self.worker.process != "gone"


def view_work(store: Store, task_id: str, owner: str | None, head: Checkpoint) -> WorkView:
    """Read how the work stands on the branch of `head`."""
    lease = find_lease(store, owner, head.branch_id)
    waits = head.integrity_ok and head.control_state == "waiting_for_input"
    return WorkView(
        run_control_state=head.control_state if head.integrity_ok else "unknown",
        worker=None if lease is None else _view_worker(lease),
        question=tagged(store.task(task_id, owner=owner).control.question) if waits else None,
        requests=[view_request(one) for one in list_requests(store, owner, head.branch_id)],
        progress=_find_progress(store, owner, head),
    )


def advise_work(work: WorkView, task_id: str) -> list[str]:
    """Return what a person could do about the work, in sentences."""
    advice = []
    if work.question is not None:
        advice.append(f"it waits for an answer: `lastgood answer {task_id}`")
    elif work.run_control_state == "paused":
        advice.append(f"it is paused: `lastgood resume {task_id}` lets it go on")
    if work.run_control_state in ("running", "waiting_for_input", "paused") and not work.is_worked_on:
        advice.append("nobody is running it: run it again, and it goes on from its newest checkpoint")
    return advice


def find_worker(store: Store, owner: str | None, branch_id: str | None) -> Lease | None:
    """Return the lease on a branch unless it ran out or its holder is known to be gone."""
    lease = find_lease(store, owner, branch_id)
    return lease if lease is not None and lease.is_live and is_alive(lease.process) is not False else None


def view_request(request: Request) -> RequestView:
    """Return a request as JSON shows it."""
    return RequestView.of(
        request,
        data=tagged(request.data),
        at=moment(request.at),
        ended_at=None if request.ended_at is None else moment(request.ended_at),
        outcome=tagged(request.outcome),
    )


def view_result(task_id: str, state: str, result: RequestResult) -> RequestResultView:
    """Return what came of a request as JSON shows it."""
    request = None if result.request is None else view_request(result.request)
    return RequestResultView.of(result, task_id=task_id, run_control_state=state, request=request)


def view_step(step: OpenStep) -> StepView:
    """Return an open step as JSON shows it."""
    host, pid = step.process.host, step.process.pid
    return StepView.of(
        step, began_at=moment(step.began_at), host=host, pid=pid, process=PROCESS[is_alive(step.process)]
    )


def _view_worker(lease: Lease) -> WorkerView:
    return WorkerView(
        executor=lease.executor,
        host=lease.process.host,
        pid=lease.process.pid,
        process=PROCESS[is_alive(lease.process)],
        since=moment(lease.acquired_at),
        lease_until=moment(lease.expires_at),
        lease_live=lease.is_live,
    )


def _find_progress(store: Store, owner: str | None, head: Checkpoint) -> ProgressView | None:
    """None: there is no pipeline, or it is done, or its record cannot be read."""
    checkpoint = head
    for _ in range(MOST_PASSED):
        if checkpoint.integrity_ok and "progress" in checkpoint.metadata:
            return _view_progress(checkpoint.metadata["progress"])
        if not checkpoint.integrity_ok or checkpoint.type not in BY_OTHERS or checkpoint.parent_id is None:
            return None
        try:
            checkpoint = store.get_checkpoint(checkpoint.parent_id, owner=owner)
        except CheckpointError:
            return None
    return None


def _view_progress(record: Any) -> ProgressView | None:
    if not isinstance(record, dict) or record.get("finished") is not None:
        return None
    completed, rest = record.get("completed", []), record.get("plan", [])
    if not (isinstance(completed, list) and isinstance(rest, list)):
        return None
    names = [str(name) for name in (*completed, *rest)]
    return ProgressView(
        pipeline=str(record.get("pipeline", "")),
        stages=names,
        completed=len(completed),
        next=names[len(completed)] if rest else None,
        attempts=record.get("attempts", 0),
        round=record.get("round", 1),
        rounds=record.get("rounds", 1),
    )


def take_lease(store: Store, owner: str, lease: Lease) -> None:
    """Take the lease on a branch away from its holder, and release it."""
    from lastgood.work.lease import HeldLease, name_executor

    hold = HeldLease(engine_of(store), store.user, owner, name_executor(), 1.0)
    hold.acquire(lease.branch_id, over=lease.token)
    hold.release()
