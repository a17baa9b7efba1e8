"""Sessions: whatever people ask for is open or done, never lost, and never done twice; work is taken over."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.faults.facts import STEERED
from tests.faults.ledger import Content, state_digest
from tests.faults.scenarios.scenario import Scenario, some_state
from tests.faults.worker import Worker

import lastgood
from lastgood import LeaseError, UnavailableError
from lastgood.engine.engine import acting
from lastgood.model.task import Process
from lastgood.work.clock import Clock
from lastgood.work.requests import open_requests

LONG = 1e6
"""Of a lease: nothing is written by itself while a scenario runs."""
PATIENCE = 3


class _People(Clock):
    """What they do when the work waits in a control state, once. Afterwards nobody comes, and it gives up."""

    def __init__(self, task: lastgood.Task, deeds: dict[str, Callable[[], object]]) -> None:
        self._task = task
        self._deeds = dict(deeds)
        self._waited = 0

    def wait(self, until: threading.Event, seconds: float) -> bool:
        if threading.current_thread() is not threading.main_thread():
            return super().wait(until, seconds)
        if self._task.head is not None and (deed := self._deeds.pop(self._task.head.control_state, None)) is not None:
            deed()
            return False
        self._waited += 1
        if self._waited > PATIENCE:
            raise UnavailableError("nobody came")
        return False


class _Program:
    def __init__(self, worker: Worker, number: int) -> None:
        self.worker = worker
        self.task = worker.store.task(STEERED)
        self.memory: Any = some_state(number)
        states = [state_digest(some_state(one)) for one in range(number + 1)]
        worker.ledger.know(Content(states[-1], None))
        worker.ledger.expect(f"state {STEERED}", states)

    def session(self, **deeds: Callable[[], object]) -> lastgood.Session:
        how: dict[str, Any] = {"signals": False, "lease": LONG, "_clock": _People(self.task, deeds)}
        return self.task.session(state=lambda: self.memory, load=self._load, **how)

    def _load(self, state: Any) -> None:
        self.memory = state

    def request(self, kind: str, *arguments: Any) -> None:
        """Somebody asks for it, by an id that says what it is."""
        self.worker.doing = kind
        self.worker.ledger.expect(f"request {kind}", [[None, 0], ["open", 0], ["late", 0], ["fulfilled", 1]])
        getattr(self.worker.store.task(STEERED).control, kind)(*arguments, id=kind)
        self.worker.ledger.expect(f"request {kind}", [["open", 0], ["late", 0], ["fulfilled", 1]])

    def require_met(self, kind: str) -> None:
        """The work went on without it, and has said why: that is an error like any other."""
        if kind in {request.id for request in open_requests(self.task._handle)}:
            raise UnavailableError(f"{kind} is still open")
        self.worker.ledger.expect(f"request {kind}", [["fulfilled", 1]])


def _begin(worker: Worker) -> None:
    task = worker.store.task(STEERED)
    artifacts = [{"name": "prompt", "version": 1, "content": "old"}]
    for number in range(2):
        worker.save(task, some_state(number), f"steered {number}", files=False, artifacts=artifacts)


def _steer(worker: Worker) -> None:
    program = _Program(worker, 2)
    good = worker.kept("steered 0")
    people: dict[str, Callable[[], object]] = {
        "paused": lambda: program.request("resume"),
        "waiting_for_input": lambda: program.request("answer", "go"),
    }
    with program.session(**people) as session:
        program.memory = some_state(2)
        requests: list[tuple[str, list[Any]]] = [
            ("guide", ["shorter"]),
            ("edit", ["prompt", "new"]),
            ("add_rounds", [2]),
        ]
        for kind, arguments in [*requests, ("pause", [])]:
            program.request(kind, *arguments)
            session.boundary()
            program.require_met(kind)
        program.require_met("resume")
        session.ask("Deploy?")
        program.require_met("answer")
        program.request("restore", good)
        session.boundary()
        program.require_met("restore")
        program.request("stop")
        session.boundary()
        raise UnavailableError("it was not stopped")
    program.require_met("stop")


def _leave_behind(worker: Worker) -> None:
    """The work of a process that is gone, which still has its lease; and somebody has asked for something since."""
    _begin(worker)
    program = _Program(worker, 1)
    with program.session():
        pass
    program.request("add_rounds", 2)
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    gone, store = Process(socket.gethostname(), child), worker.store
    store._engine.catalog.acquire_lease(
        store.user, program.task.branch_id or "", gone, "gone", LONG, acting(store.user)
    )


def _take_over(worker: Worker) -> None:
    program = _Program(worker, 2)
    with program.session() as session:
        program.memory = some_state(2)
        session.boundary()
        program.require_met("add_rounds")
        session.save()


def _be_taken_over(worker: Worker) -> None:
    """Somebody else works on the branch now: whatever this one still wants to save is refused."""
    program, store = _Program(worker, 1), worker.store
    with suppress(LeaseError), program.session() as session:
        program.memory = some_state(2)  # which nobody may find
        branch_id = program.task.branch_id or ""
        held = store._engine.catalog.lease(store.user, branch_id)
        assert held is not None
        process = Process(socket.gethostname(), os.getpid())
        store._engine.catalog.acquire_lease(
            store.user, branch_id, process, "another", LONG, acting(store.user), over=held.token
        )
        session.save()
        raise AssertionError("it saved, and another has taken over")


SCENARIOS = {
    "steer a session": Scenario(_begin, _steer),
    "take over a session": Scenario(_leave_behind, _take_over),
    "be taken over": Scenario(_begin, _be_taken_over),
}
