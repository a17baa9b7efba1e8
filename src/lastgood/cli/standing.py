"""How work stands: its control state, who does it, what it asks, what is asked of it, how far it has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lastgood.cli.output import local_time
from lastgood.cli.stages import find_progress, progress_text
from lastgood.local.process import is_alive
from lastgood.model.control import describe
from lastgood.model.identity import moment

if TYPE_CHECKING:
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.model.lease import Lease
    from lastgood.model.request import Request
    from lastgood.store import Store

PROCESS = {True: "running", False: "gone", None: "unknown"}


class Standing(NamedTuple):
    """Of a branch. `worker`: who has the lease there, alive or not."""

    task: str
    control_state: str
    worker: Lease | None
    question: dict[str, Any] | None
    requests: list[Request]
    progress: dict[str, Any] | None

    @property
    def is_worked_on(self) -> bool:
        """Whether someone who may be alive works on it."""
        return self.worker is not None and works(self.worker)

    def described(self) -> dict[str, Any]:
        """For programs."""
        return {
            "control_state": self.control_state,
            "worker": None if self.worker is None else _described(self.worker),
            "question": self.question,
            "requests": _described_requests(self.requests) if self.requests else [],
            "progress": self.progress,
        }

    def fields(self) -> list[tuple[str, str]]:
        """For people: names and values."""
        shown = [("control", describe(self.control_state))]
        if self.worker is not None:
            shown.append(("executor", _worker_text(self.worker)))
        if self.progress is not None:
            shown.append(("progress", progress_text(self.progress)))
        if self.question is not None:
            choices = ", ".join(self.question.get("choices") or ())
            shown.append(("asks", self.question["text"] + (f" ({choices})" if choices else "")))
        return shown + [
            ("requested", f"{one.kind} by {one.actor}, {local_time(moment(one.at))} ({one.id})")
            for one in self.requests
        ]

    def advice(self) -> list[str]:
        said = []
        if self.question is not None:
            said.append(f"it waits for an answer: `lastgood answer {self.task}`")
        elif self.control_state == "paused":
            said.append(f"it is paused: `lastgood resume {self.task}` lets it go on")
        if self.control_state in ("running", "waiting_for_input", "paused") and not self.is_worked_on:
            said.append("nobody is running it: run it again, and it goes on from its newest checkpoint")
        return said


def works(lease: Lease) -> bool:
    """Whether its holder is not known to be gone."""
    return lease.is_live and is_alive(lease.process) is not False


def find_worker(store: Store, owner: str, branch_id: str | None) -> Lease | None:
    """Who works on a branch. None: nobody who is not known to be gone."""
    lease = store.catalog.lease(owner, branch_id) if branch_id else None
    return lease if lease is not None and works(lease) else None


def look_at_work(store: Store, task: str, owner: str, head: Checkpoint) -> Standing:
    branch_id = head.branch_id or ""
    waits = head.integrity_ok and head.control_state == "waiting_for_input"
    return Standing(
        task,
        head.control_state if head.integrity_ok else "unknown",
        store.catalog.lease(owner, branch_id),
        _question(store, task, owner) if waits else None,
        store.catalog.open_requests(owner, branch_id),
        find_progress(store, owner, head),
    )


def _question(store: Store, task: str, owner: str) -> dict[str, Any] | None:
    return store.task(task, owner=owner).control.question


def _described(lease: Lease) -> dict[str, Any]:
    from lastgood.cli.summary import moment_text

    return {
        "executor": lease.executor,
        "host": lease.process.host,
        "pid": lease.process.pid,
        "process": PROCESS[is_alive(lease.process)],
        "since": moment_text(moment(lease.acquired_at)),
        "lease_until": moment_text(moment(lease.expires_at)),
        "lease_live": lease.is_live,
    }


def _described_requests(requests: list[Request]) -> list[dict[str, Any]]:
    from lastgood.cli.asking import described

    return [described(request) for request in requests]


def _worker_text(lease: Lease) -> str:
    alive = is_alive(lease.process)
    if alive is False:
        how = "gone; whoever runs the work next takes over at once"
    elif not lease.is_live:
        how = "silent: its lease has run out, anyone may take over"
    elif alive is None:
        how = f"on another host; its lease is good until {local_time(moment(lease.expires_at))}"
    else:
        how = f"alive, process {lease.process.pid}"
    return f"{lease.executor} since {local_time(moment(lease.acquired_at))} ({how})"
