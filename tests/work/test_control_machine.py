"""All that can be asked of work, in all control states, in any order, against a model (A11, A15)."""

from __future__ import annotations

import copy
import itertools
import os
import random
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.control_model import ALREADY, FULFILLED, OPEN, REFUSED, Branch, Request, Snapshot, begin_at
from tests.support.programs import KilledError

import lastgood
from lastgood import ControlError
from lastgood.engine.engine import acting
from lastgood.model.task import Process
from lastgood.work.clock import Clock

FULL = bool(os.environ.get("LASTGOOD_FULL"))
QUICK = Path("/dev/shm")
QUESTIONS = st.sampled_from(["Deploy?", "Where?"])
NEW = "a branch that is being made"
TEXTS = st.sampled_from(["one", "two"])


class Waits(BaseException):
    """The work would wait here for people."""


class Frozen(Clock):
    def now(self) -> float:
        return 0.0

    def wait(self, until: threading.Event, seconds: float) -> bool:
        if threading.current_thread() is threading.main_thread():
            raise Waits
        return until.wait()


def someone_gone() -> Process:
    done = subprocess.Popen(["true"])
    done.wait()
    return Process(socket.gethostname(), done.pid)


class Steering(RuleBasedStateMachine):
    """One program, and somebody with a store of their own. `focus` is the branch that all of it is about."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lastgood-control-", dir=QUICK if QUICK.is_dir() else None))
        self.here = lastgood.open(self.folder / "store", user="tester")
        self.there = lastgood.open(self.folder / "store", user="tester")
        self.gone = someone_gone()
        self.session: lastgood.Session | None = None
        self.memory: dict[str, Any] = {}
        self.heard: set[int] = set()
        self.numbers = itertools.count()
        self.branches: dict[str, Branch] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.asked: list[tuple[Request, str, tuple[Any, ...]]] = []

    def teardown(self) -> None:
        if self.session is not None:
            self._leave(KilledError())
        self.here.close()
        self.there.close()
        shutil.rmtree(self.folder)

    @initialize()
    def create(self) -> None:
        artifacts = [{"name": "prompt", "version": 1, "content": "old"}]
        self.here.task("work").save({"n": 0}, artifacts=artifacts)
        self.focus = self.here.task("work").branch_id or ""
        self.branches[self.focus] = Branch(Snapshot())

    @property
    def model(self) -> Branch:
        return self.branches[self.focus]

    # --- the program ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.session is None)
    @rule(restart=st.booleans())
    def begin(self, restart: bool) -> None:
        model, now = self.model, self.model.now
        wanted = {"stopped": ("resume", "retry"), "failed": ("resume", "retry"), "completed": ("rounds",)}
        starting = [request for request in model.open() if request.kind in wanted.get(now.state, ())]
        session = self.here.task(self.focus).session(
            state=lambda: self.memory, load=self._load, restart=restart, signals=False, _clock=Frozen()
        )
        if now.state == "stopped" and not starting and not restart:
            with pytest.raises(ControlError):
                session.__enter__()
            return
        self.session = session.__enter__()
        self.heard = set()
        assert self.memory == {"n": now.n}
        if now.state in ("idle", "stopped", "failed", "completed"):
            for request in starting:
                request.status = OPEN if request.kind == "rounds" else FULFILLED
            model.unheard = None
            model.go("running")

    @precondition(lambda self: self.session is not None)
    @rule(n=st.integers(0, 9))
    def change(self, n: int) -> None:
        self.memory["n"] = n

    @precondition(lambda self: self.session is not None)
    @rule()
    def save(self) -> None:
        assert self.session is not None
        self.session.save()
        self.model.now.n = self.memory["n"]
        self.model.unheard = None

    @precondition(lambda self: self.session is not None)
    @rule()
    def boundary(self) -> None:
        assert self.session is not None
        memory = dict(self.memory)
        self._go_on()
        ends = self._sweep()
        self._expect(self.session.boundary, ends or ("waits" if self.model.now.state == "paused" else None), memory)

    @rule(question=QUESTIONS)
    def ask(self, question: str) -> None:
        if self.session is None:
            self.begin(restart=True)
        assert self.session is not None
        memory = dict(self.memory)
        ends, answer = self._ask(question)
        assert self._expect(partial(self.session.ask, question), ends, memory) == answer

    @precondition(lambda self: self.session is not None and self.model.now.state != "paused")
    @rule()
    def complete(self) -> None:
        self._leave(None)
        self.model.go("completed")
        self.model.now.n = self.memory["n"]
        self.model.unheard = None
        self._end_requests()

    @precondition(lambda self: self.session is not None)
    @rule()
    def fail(self) -> None:
        self._leave(RuntimeError("no such luck"))
        self.model.go("failed")
        self.model.unheard = None
        self._end_requests()

    @precondition(lambda self: self.session is not None)
    @rule(releases=st.booleans())
    def crash(self, releases: bool) -> None:
        """Its lease may still be there, of a process that is not."""
        self._leave(KilledError())
        if not releases:
            catalog, actor = self.here._engine.catalog, acting(self.here.user)
            catalog.acquire_lease("tester", self.focus, self.gone, "gone", 1e6, actor)

    # --- people --------------------------------------------------------------------------------------------

    @rule(kind=st.sampled_from(["pause", "resume", "stop", "cancel", "retry"]))
    def steer(self, kind: str) -> None:
        self._request(kind, kind)

    @precondition(lambda self: self.model.now.state == "waiting_for_input")
    @rule(text=TEXTS)
    def answer(self, text: str) -> None:
        self._request("answer", "answer", text)

    @rule(kind=st.sampled_from(["guide", "answer"]), text=TEXTS)
    def tell(self, kind: str, text: str) -> None:
        self._request(kind, kind, text)

    @rule(text=TEXTS)
    def edit(self, text: str) -> None:
        self._request("edit", "edit", "prompt", text)

    @rule(rounds=st.integers(1, 3))
    def add_rounds(self, rounds: int) -> None:
        self._request("rounds", "add_rounds", rounds)

    @rule(pick=st.integers(0, 1000))
    def restore(self, pick: int) -> None:
        self._request("restore", "restore", list(self.snapshots)[pick % len(self.snapshots)])

    @precondition(lambda self: self.asked)
    @rule(pick=st.integers(0, 1000))
    def ask_for_the_same_again(self, pick: int) -> None:
        """Whatever came of it: it is told, and nothing happens."""
        request, method, arguments = self.asked[pick % len(self.asked)]
        if self.session is None and request.status == OPEN:
            return  # what nobody came to is done then: tests/work/test_stand_in.py
        told = getattr(self._control(), method)(*arguments, id=request.id)
        assert told.request.status == request.status
        assert told.fulfilled == (request.status == FULFILLED)

    @rule(pick=st.integers(0, 1000), paused=st.booleans(), follow=st.booleans())
    def fork(self, pick: int, paused: bool, follow: bool) -> None:
        chosen = list(self.snapshots)[pick % len(self.snapshots)]
        made = self.there.task(self.focus).fork(chosen, paused=paused).branch_id or ""
        self.branches[made] = begin_at(self.snapshots[chosen], "paused" if paused else None)
        if follow and self.session is None:
            self.focus = made

    @precondition(lambda self: self.session is None and len(self.branches) > 1)
    @rule(pick=st.integers(0, 1000))
    def look_elsewhere(self, pick: int) -> None:
        self.focus = list(self.branches)[pick % len(self.branches)]

    # --- what must be so -----------------------------------------------------------------------------------

    @invariant()
    def the_store_says_what_the_model_says(self) -> None:
        now = self.model.now
        head = self.there.task(self.focus).head
        assert head is not None
        assert head.control_state == now.state
        assert head.state == {"n": now.n}
        assert [said["text"] for said in head.guidance if "text" in said] == now.guidance
        assert sum(said.get("rounds", 0) for said in head.guidance) == now.rounds
        assert [artifact["content"] for artifact in head.artifacts] == [now.artifact]
        assert [(one["question"], one["answer"]) for one in head.decisions] == now.decisions
        control = self._control()
        question = control.question
        assert (question and question["text"]) == now.question
        assert [found.id for found in control.requests()] == [request.id for request in self.model.open()]
        for request, _, _ in self.asked:
            found = control.follow(request.id)
            assert found is not None
            assert found.status == request.status
        assert (control.lease is not None) == (self.session is not None)
        self.snapshots[head.id] = copy.deepcopy(now)

    @invariant()
    def every_branch_is_one_line(self) -> None:
        line = self.there.list_checkpoints(self.focus, 1000)
        assert [one.parent_id for one in line] == [*(one.id for one in line[1:]), None]

    # --- how the model moves -------------------------------------------------------------------------------

    def _request(self, kind: str, method: str, *arguments: Any) -> None:
        model, before = self.model, len(self.there.list_checkpoints("work", 1000))
        request = Request(f"request {next(self.numbers)}", kind, arguments[-1] if arguments else None)
        found = model.judge(kind)
        ask = partial(getattr(self._control(), method), *arguments, id=request.id)
        if found == REFUSED:
            with pytest.raises(ControlError) as caught:
                ask()
            assert caught.value.hint
        else:
            told = ask()
            assert told.alive == (self.session is not None)
            assert (told.request is None) == (found == ALREADY)
        if found != OPEN:
            assert len(self.there.list_checkpoints("work", 1000)) == before
            return
        model.requests.append(request)
        self.asked.append((request, method, arguments))
        if self.session is None and kind == "restore":
            request.status = FULFILLED
            self.focus = told.request.outcome["branch"]
            self.branches[self.focus] = begin_at(self.snapshots[arguments[0]], None)
        elif self.session is None and kind not in ("resume", "retry", "rounds"):
            model.fulfil(request)
        assert told.fulfilled == (request.status == FULFILLED)

    def _go_on(self) -> None:
        if self.model.now.state == "waiting_for_input":
            self.model.go("running")

    def _ask(self, question: str) -> tuple[str | None, str | None]:
        """How asking ends, and the answer."""
        now, unheard = self.model.now, self.model.unheard
        if unheard is not None and unheard not in self.heard and now.decisions[-1][0] == question:
            self.heard.add(unheard)
            return None, now.decisions[-1][1]
        if now.question != question:
            self._go_on()
            ends = self._sweep()
            if ends is not None or self.model.now.state == "paused":
                return ends or "waits", None
            self.model.go("waiting_for_input")
            self.model.now.question = question
            self.model.now.n = self.memory["n"]
            self.model.unheard = None
        ends = self._sweep()
        if ends is not None or self.model.now.state == "waiting_for_input":
            return ends or "waits", None
        return None, self.model.now.decisions[-1][1]

    def _sweep(self) -> str | None:
        """What the work does about all that is wanted; how that ends it."""
        for request in self.model.open():
            if not self.model.fulfil(request):
                continue
            if request.kind == "restore":
                self._go_back(request)
            self.model.now.n = self.memory["n"]
            if request.kind in ("stop", "cancel"):
                return "stopped"
            if request.kind == "answer":
                self.heard.add(self.model.unheard or 0)
                return None
        return None

    def _go_back(self, request: Request) -> None:
        """The session goes to a new branch, in the control state that it is in, and takes along what is wanted."""
        left = self.model
        entered = begin_at(self.snapshots[request.what], left.now.state)
        entered.requests = left.open()
        left.requests = [one for one in left.requests if one.status != OPEN]
        left.now.n, left.unheard = self.memory["n"], None
        self.memory = {"n": entered.now.n}
        self.focus = NEW
        self.branches[NEW] = entered

    def _expect(self, work: Callable[[], Any], ends: str | None, memory: dict[str, Any]) -> Any:
        """Do it, from that memory: it ends as the model says."""
        assert self.session is not None
        session, then, self.memory, given = self.session, self.memory, memory, None
        try:
            given = work()
        except Waits:
            assert ends == "waits"
        except lastgood.Stopped as stopped:
            assert ends == "stopped"
            self._leave(stopped)
            self._end_requests()
        else:
            assert ends is None
        assert self.memory == then
        if self.focus == NEW:
            self.focus = session.task.branch_id or ""
            self.branches[self.focus] = self.branches.pop(NEW)
        return given

    def _load(self, state: Any) -> None:
        self.memory = state

    def _leave(self, error: BaseException | None) -> None:
        assert self.session is not None
        session, self.session = self.session, None
        session.__exit__(None if error is None else type(error), error, None)

    def _end_requests(self) -> None:
        """What the work did not come to before it ended is done without it, or refused."""
        for request in self.model.open():
            if request.kind == "restore":
                request.status = REFUSED
            elif request.kind not in ("resume", "retry", "rounds"):
                self.model.fulfil(request)

    def _control(self) -> lastgood.Control:
        return self.there.task(self.focus).control


Steering.TestCase.settings = hypothesis.settings(max_examples=500 if FULL else 10, stateful_step_count=50)
TestSteering = Steering.TestCase


@pytest.mark.parametrize("seed", range(300 if FULL else 12))
def test_a_long_walk_through_the_states(seed: int) -> None:
    """The same machine by dice that are loaded: hypothesis seldom asks, answers and boundaries in one run."""
    dice, machine = random.Random(seed), Steering()
    try:
        machine.create()
        for _ in range(80):
            machine.the_store_says_what_the_model_says()
            _step(machine, dice)
        machine.every_branch_is_one_line()
    finally:
        machine.teardown()


def _step(machine: Steering, dice: random.Random) -> None:
    pick, text = dice.randrange(1000), dice.choice(["one", "two"])
    kinds = ["pause", "pause", "resume", "resume", "stop", "cancel", "retry"]
    anytime: list[Callable[[], None]] = [
        *[lambda: machine.ask(dice.choice(["Deploy?", "Deploy?", "Where?"]))] * 3,
        *[lambda: machine.steer(dice.choice(kinds))] * 4,
        *[lambda: machine.tell("answer", text), lambda: machine.tell("guide", text), lambda: machine.edit(text)],
        *[lambda: machine.add_rounds(1), lambda: machine.restore(pick), lambda: machine.fork(pick, pick % 2 > 0, True)],
        lambda: machine.ask_for_the_same_again(pick) if machine.asked else None,
    ]
    alone: list[Callable[[], None]] = [*[lambda: machine.begin(pick % 2 > 0)] * 4, lambda: machine.look_elsewhere(pick)]
    inside: list[Callable[[], None]] = [
        *[lambda: machine.boundary()] * 4,
        *[lambda: machine.change(pick % 10), lambda: machine.save(), lambda: machine.fail()],
        *[lambda: machine.crash(pick % 2 > 0)] * 2,
        lambda: machine.complete() if machine.model.now.state != "paused" else None,
    ]
    dice.choice([*anytime, *(alone if machine.session is None else inside)])()
