"""What work in each control state does when something is asked of it: said again in plain Python, for comparison."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

REFUSED, ALREADY, OPEN, MET = "refused", "already", "open", "met"

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
class Wish:
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
    wishes: list[Wish] = field(default_factory=list)
    unheard: int | None = None
    """The number of the last decision, as long as the program may not have gone on since."""

    def open(self) -> list[Wish]:
        return [wish for wish in self.wishes if wish.status == OPEN]

    def expected(self) -> str:
        """The control state when all that is wanted is done."""
        state = self.now.state
        for wish in self.open():
            state = LEADS_TO.get(wish.kind, state)
        return state

    def judge(self, kind: str) -> str:
        found = verdict(kind, self.now.state)
        return OPEN if found == ALREADY and verdict(kind, self.expected()) == OPEN else found

    def go(self, state: str) -> None:
        self.now.state = state
        if state != "waiting_for_input":
            self.now.question = None

    def meet(self, wish: Wish) -> bool:
        """Whether it is done now. Of restores only the wish: where the work goes is not this branch."""
        found = verdict(wish.kind, self.now.state)
        if found != OPEN:
            wish.status = MET if found == ALREADY else REFUSED
            if found == ALREADY:
                self._refuse_earlier(wish, *OPPOSED.get(wish.kind, ()))
            return False
        if wish.kind in ("pause", "restore") and self.now.state == "waiting_for_input":
            return False
        wish.status = MET
        if wish.kind in ("stop", "cancel"):
            self._settle_others(wish)
            self.unheard = None
        self._change(wish)
        if wish.kind in LEADS_TO:
            self.go(LEADS_TO[wish.kind])
        return True

    def _change(self, wish: Wish) -> None:
        now = self.now
        if wish.kind == "answer":
            now.decisions.append((now.question or "", wish.what))
            self.unheard = len(now.decisions)
        elif wish.kind == "guide":
            now.guidance.append(wish.what)
        elif wish.kind == "rounds":
            now.rounds += wish.what
        elif wish.kind == "edit":
            now.artifact = wish.what

    def _settle_others(self, wish: Wish) -> None:
        self._refuse_earlier(wish, "pause", "resume", "retry")
        for other in self.open():
            if other.kind in ("stop", "cancel"):
                other.status = MET

    def _refuse_earlier(self, wish: Wish, *kinds: str) -> None:
        for other in self.wishes[: self.wishes.index(wish)]:
            if other.status == OPEN and other.kind in kinds:
                other.status = REFUSED
