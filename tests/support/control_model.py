"""What work in each control state does when something is asked of it: said again in plain Python, for comparison."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

REFUSED, ALREADY, OPEN, FULFILLED = "refused", "already", "open", "fulfilled"

ACTIVE = {"running", "waiting_for_input", "paused"}
EVERY = ACTIVE | {"idle", "stopped", "completed", "failed"}
LEGAL = {
    "pause": {"running", "waiting_for_input"},
    "resume": {"paused", "stopped", "failed"},
    "retry": {"stopped", "failed"},
    "stop": ACTIVE,
    "cancel": ACTIVE,
    "rounds": ACTIVE | {"completed"},
    "answer": {"waiting_for_input"},
    **dict.fromkeys(("guide", "edit", "restore"), EVERY),
}
THERE = {
    "pause": {"paused"},
    "resume": {"running", "waiting_for_input"},
    "retry": {"running", "waiting_for_input"},
    "stop": {"stopped"},
    "cancel": {"stopped"},
}
OPPOSED = {"pause": ("resume", "retry"), "resume": ("pause",), "retry": ("pause",)}
LEADS_TO = {
    "pause": "paused",
    "resume": "running",
    "retry": "running",
    "answer": "running",
    "stop": "stopped",
    "cancel": "stopped",
}


def begin_at(snapshot: Snapshot, state: str | None) -> Branch:
    """A branch; None: in the control state that the checkpoint has."""
    made = Branch(copy.deepcopy(snapshot))
    if state is not None:
        made.go(state)
    return made


def verdict(kind: str, state: str) -> str:
    return ALREADY if state in THERE.get(kind, ()) else OPEN if state in LEGAL[kind] else REFUSED


@dataclass
class Request:
    id: str
    kind: str
    what: Any = None
    status: str = OPEN


@dataclass
class Snapshot:
    """What a checkpoint holds."""

    n: Any = 0
    state: str = "idle"
    guidance: list[str] = field(default_factory=list)
    rounds: int = 0
    artifact: str = "old"
    decisions: list[tuple[str, str]] = field(default_factory=list)
    question: str | None = None


@dataclass
class Branch:
    now: Snapshot
    requests: list[Request] = field(default_factory=list)
    unheard: int | None = None
    """The number of the last decision, as long as the program may not have gone on since."""

    def open(self) -> list[Request]:
        return [request for request in self.requests if request.status == OPEN]

    def expected(self) -> str:
        """The control state when all that is wanted is done."""
        state = self.now.state
        for request in self.open():
            state = LEADS_TO.get(request.kind, state)
        return state

    def judge(self, kind: str) -> str:
        found = verdict(kind, self.now.state)
        return OPEN if found == ALREADY and verdict(kind, self.expected()) == OPEN else found

    def go(self, state: str) -> None:
        self.now.state = state
        if state != "waiting_for_input":
            self.now.question = None

    def fulfil(self, request: Request) -> bool:
        """Whether it is done now. Of restores only the request: where the work goes is not this branch."""
        found = verdict(request.kind, self.now.state)
        if found != OPEN:
            request.status = FULFILLED if found == ALREADY else REFUSED
            if found == ALREADY:
                self._refuse_earlier(request, *OPPOSED.get(request.kind, ()))
            return False
        if request.kind in ("pause", "restore") and self.now.state == "waiting_for_input":
            return False
        request.status = FULFILLED
        if request.kind in ("stop", "cancel"):
            self._end_others(request)
            self.unheard = None
        self._change(request)
        if request.kind in LEADS_TO:
            self.go(LEADS_TO[request.kind])
        return True

    def _change(self, request: Request) -> None:
        now = self.now
        if request.kind == "answer":
            now.decisions.append((now.question or "", request.what))
            self.unheard = len(now.decisions)
        elif request.kind == "guide":
            now.guidance.append(request.what)
        elif request.kind == "rounds":
            now.rounds += request.what
        elif request.kind == "edit":
            now.artifact = request.what

    def _end_others(self, request: Request) -> None:
        self._refuse_earlier(request, "pause", "resume", "retry")
        for other in self.open():
            if other.kind in ("stop", "cancel"):
                other.status = FULFILLED

    def _refuse_earlier(self, request: Request, *kinds: str) -> None:
        for other in self.requests[: self.requests.index(request)]:
            if other.status == OPEN and other.kind in kinds:
                other.status = REFUSED
