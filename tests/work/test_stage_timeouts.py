"""Stages that take too long: they fail in time, and nothing lands after they have ended."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood import Pipeline, StageContext, StageError, StageTimeout, Store, stage
from lastgood.work import timeout
from lastgood.work.clock import Clock
from lastgood.work.timeout import SENDS, SENDS_APART, Limit

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""The end of a stage's time may come in a finalizer, where Python drops and tells it: then it comes again."""

Ctx = StageContext


class Expired(Clock):
    """The time of whatever is limited is up at once; or when it is told so."""

    def __init__(self, gate: threading.Event | None = None, *, each_time: bool = False, hurried: bool = False) -> None:
        self.gate = gate
        self.each_time = each_time
        self.hurried = hurried

    def wait(self, until: threading.Event, seconds: float) -> bool:
        if threading.current_thread().name != "lastgood timeout":
            return super().wait(until, seconds)
        if seconds == SENDS_APART and not (self.each_time or self.hurried):
            return until.wait(0.01)
        if self.gate is not None:
            self.gate.wait()
            if self.each_time:
                self.gate.clear()
        return until.is_set()


def spin() -> None:
    while True:
        pass


def watches() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "lastgood timeout"]


def test_a_stage_that_never_ends_fails_in_time(store: Store) -> None:
    cleaned: list[bool] = []
    gate = threading.Event()

    @stage(timeout=30)
    def endless(ctx: Ctx) -> None:
        try:
            while True:
                try:
                    gate.set()
                    spin()
                except Exception:  # code which goes on after errors does not go on after this
                    continue
        finally:
            cleaned.append(True)

    with pytest.raises(StageError, match="it took longer than 30 seconds"):
        Pipeline([endless]).run(store.task("work"), clock=Expired(gate))
    assert cleaned == [True]
    head = store.task("work").head
    assert head is not None
    assert (head.type, head.control_state) == ("stage_failed", "failed")


def test_a_stage_that_swallows_it_has_failed_all_the_same(store: Store) -> None:
    gate = threading.Event()
    swallowed: list[bool] = []

    @stage(timeout=30)
    def stubborn(ctx: Ctx) -> None:
        ctx.state["done"] = True
        for _ in range(SENDS):
            try:
                gate.set()
                spin()
            except BaseException:
                swallowed.append(True)

    with pytest.raises(StageError, match="longer than 30 seconds"):
        Pipeline([stubborn]).run(store.task("work"), clock=Expired(gate, each_time=True))
    assert len(swallowed) == SENDS
    assert store.task("work").state == {}


def test_an_asynchronous_stage_is_cancelled_in_time(store: Store) -> None:
    began: list[bool] = []
    cancelled: list[bool] = []

    @stage(timeout=0.01)
    async def endless(ctx: Ctx) -> None:
        began.append(True)  # which may be too late already
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(StageError, match=r"it took longer than 0\.01 seconds"):
        Pipeline([endless]).run(store.task("work"))
    assert cancelled == began


def test_a_timeout_of_its_own_is_an_error_like_any_other(store: Store) -> None:
    @stage(timeout=30)
    async def own(ctx: Ctx) -> None:
        raise TimeoutError("the service is slow")

    with pytest.raises(StageError, match="the service is slow"):
        Pipeline([own]).run(store.task("work"))


def test_a_command_that_never_ends_is_killed(store: Store) -> None:
    gate = threading.Event()

    @stage(timeout=30)
    def endless(ctx: Ctx) -> None:
        gate.set()
        ctx.run(["sleep", "3600"])
        spin()

    with pytest.raises(StageError, match="longer than 30 seconds"):
        Pipeline([endless]).run(store.task("work"), clock=Expired(gate))


@pytest.mark.parametrize("what", ["a command", "an import"])
def test_nobody_is_interrupted_in_the_midst_of_starting_a_command_or_importing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A command that nobody knows of would go on running; of a module one half would be there."""
    gate, held_back, started = threading.Event(), threading.Event(), list[int]()
    send = timeout._send_safely

    def try_to_send(*about: Any) -> bool:
        sent = send(*about)
        if not sent:
            held_back.set()
        return sent

    monkeypatch.setattr(timeout, "_send_safely", try_to_send)

    def reached() -> None:
        gate.set()
        held_back.wait(10)

    monkeypatch.setattr(timeout, "reached", reached, raising=False)
    (tmp_path / "slow_to_import.py").write_text("from lastgood.work import timeout\ntimeout.reached()\nDONE = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def execute_and_wait(self: Any, *about: Any) -> None:
        execute(self, *about)
        started.append(self.pid)
        timeout.reached()  # type: ignore[attr-defined]

    monkeypatch.setattr(subprocess.Popen, "_execute_child", execute_and_wait)

    @stage(timeout=30)
    def endless(ctx: Ctx) -> None:
        if what == "a command":
            ctx.run(["sleep", "3600"])
        else:
            importlib.import_module("slow_to_import")
        spin()

    with pytest.raises(StageError, match="longer than 30 seconds"):
        Pipeline([endless]).run(store.task("work"), clock=Expired(gate))
    assert held_back.is_set()
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    if what == "an import":
        assert sys.modules.pop("slow_to_import").DONE


def test_an_asynchronous_stage_that_takes_too_long_ends_its_commands_and_cannot_make_light_of_it(store: Store) -> None:
    ended: list[int] = []

    @stage(timeout=30)
    async def swallows(ctx: Ctx) -> None:
        running = threading.Event()

        def sleep() -> None:
            running.set()
            ended.append(ctx.run(["sleep", "3600"]).returncode)

        with contextlib.suppress(asyncio.CancelledError):
            work = asyncio.get_running_loop().run_in_executor(None, sleep)
            await asyncio.to_thread(running.wait)
            asyncio.get_running_loop().call_later(0, expire)
            await work

    limits: list[Limit] = []
    made = Limit.__init__

    def expire() -> None:
        alarm = limits[-1]._alarm
        assert isinstance(alarm, timeout._Cancellation)
        alarm._reschedule(0)

    def remember(self: Limit, *about: Any) -> None:
        limits.append(self)
        made(self, *about)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Limit, "__init__", remember)
        with pytest.raises(StageError, match="longer than 30 seconds"):
            Pipeline([swallows]).run(store.task("work"))
    assert ended == [-signal.SIGKILL]


def test_a_retry_after_a_timeout_has_all_of_its_time(store: Store) -> None:
    gate = threading.Event()
    attempts: list[int] = []

    @stage(timeout=30, retries=1, backoff=0)
    def slow(ctx: Ctx) -> None:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            gate.set()
            spin()
        assert clock.gate is not None

    clock = Expired(gate)

    def listen(event: lastgood.ProgressEvent) -> None:
        if event.kind == "failed":
            clock.gate = never

    never = threading.Event()
    Pipeline([slow]).run(store.task("work"), clock=clock, on_progress=listen)
    never.set()
    assert attempts == [1, 2]


def test_waiting_for_people_does_not_count(store: Store) -> None:
    """The watch is taken down while a stage waits, and set up again afterwards."""
    watched: list[int] = []

    @stage(timeout=1e6)
    def asks(ctx: Ctx) -> None:
        watched.append(len(watches()))
        ctx.boundary()
        watched.append(len(watches()))

    class Looking(Clock):
        pass

    task = store.task("work")
    session_boundary = lastgood.Session.boundary

    def boundary(self: Any) -> None:
        while watches():
            threading.Event().wait(0.001)  # the one that was closed ends by itself
        session_boundary(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lastgood.Session, "boundary", boundary)
        Pipeline([asks]).run(task, clock=Looking())
    assert watched == [1, 1]


@pytest.mark.parametrize("bytecodes", [0, 1, 5, 30, 200])
def test_it_never_lands_after_the_stage_has_ended(bytecodes: int) -> None:
    """Fired as near to the end as can be, many times: in the stage, or not at all."""
    gate = threading.Event()

    def work() -> str:
        gate.set()
        for _ in range(bytecodes):
            pass
        return "done"

    ended = {"in time": 0, "too late": 0}
    try:
        for _ in range(400):
            gate.clear()
            limit = Limit(30.0, Expired(gate, hurried=True), lambda: None)
            try:
                assert limit.call(work) == "done"
                ended["in time"] += 1
            except TimeoutError:
                ended["too late"] += 1
            for _ in range(50):
                pass
    except StageTimeout:
        pytest.fail(f"it landed outside, after {ended}")
    assert sum(ended.values()) == 400


def test_time_that_is_up_when_the_stage_has_ended_is_up_for_nobody() -> None:
    ended = threading.Event()
    killed: list[bool] = []

    class Late(Clock):
        def wait(self, until: threading.Event, seconds: float) -> bool:
            return not ended.wait(60)

    assert Limit(30.0, Late(), lambda: killed.append(True)).call(lambda: "done") == "done"
    try:
        ended.set()
        for watch in watches():
            watch.join(60)
        spun = sum(1 for _ in range(1000))
    except StageTimeout:
        pytest.fail("it landed outside")
    assert (spun, killed) == (1000, [])


def test_work_that_starts_threads_is_ended_too_and_none_of_them_is_hit() -> None:
    for _ in range(10):
        gate = threading.Event()

        def work(gate: threading.Event = gate) -> None:
            while True:
                thread = threading.Thread(target=gate.set)
                thread.start()
                thread.join()
                for _ in range(500_000):  # longer than Python lets one thread have its turn
                    pass

        with pytest.raises(TimeoutError):
            Limit(30.0, Expired(gate), lambda: None).call(work)


def test_limits_within_limits_are_told_apart() -> None:
    """A stage may run a pipeline in its thread."""
    gate = threading.Event()
    inner = Limit(1e6, Clock(), lambda: None)
    outer = Limit(30.0, Expired(gate), lambda: None)
    told: list[str] = []

    def work() -> None:
        try:
            gate.set()
            inner.call(spin)
        except TimeoutError:
            told.append("the inner one")
            raise

    with pytest.raises(TimeoutError, match="30 seconds"):
        outer.call(work)
    assert told == []


def test_the_stage_is_struck_and_not_its_thread_that_looked_what_people_want(store: Store) -> None:
    gate, over = threading.Event(), threading.Event()
    helpers: list[threading.Thread] = []
    told: list[str] = []

    def look(ctx: Ctx) -> None:
        try:
            ctx.boundary()
            gate.set()
            while not over.is_set():
                pass
            ctx.boundary()
        except StageTimeout:
            told.append("it looks no more" if over.is_set() else "it was struck")
        finally:
            over.set()

    @stage(timeout=30)
    def work(ctx: Ctx) -> None:
        helpers.append(threading.Thread(target=look, args=[ctx]))
        helpers[0].start()
        while not over.is_set():
            pass
        told.append("the stage went on")

    with pytest.raises(StageError, match="longer than 30 seconds"):
        Pipeline([work]).run(store.task("work"), clock=Expired(gate))
    over.set()
    helpers[0].join()
    assert told == ["it looks no more"]


class Asking:
    """A thread in which the work waits for people, from `start` to `answer`."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._asked, self._answered = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def start(self) -> None:
        self._thread.start()
        self._asked.wait()

    def answer(self) -> None:
        self._answered.set()
        self._thread.join()

    def _ask(self) -> None:
        with self._limit.suspended():
            self._asked.set()
            self._answered.wait()


def test_no_time_passes_while_anybody_in_the_stage_waits_for_people() -> None:
    limit = Limit(1e6, Clock(), lambda: None)
    asking = Asking(limit)

    def work() -> None:
        asking.start()
        with limit.suspended():
            pass
        for watch in watches():
            watch.join(10)  # one that was halted ends by itself
        watched.append(len(watches()))
        asking.answer()
        watched.append(len(watches()))

    watched: list[int] = []
    limit.call(work)
    assert watched == [0, 1]


def test_an_answer_that_comes_when_the_stage_has_ended_sets_up_no_watch() -> None:
    limit = Limit(1e6, Clock(), lambda: None)
    asking = Asking(limit)
    limit.call(asking.start)
    for watch in watches():
        watch.join(10)
    asking.answer()
    assert watches() == []


async def look_twice_at_once(ctx: Ctx) -> None:
    await asyncio.gather(ctx.boundary_async(), ctx.boundary_async())


async def look_in_a_thread(ctx: Ctx) -> None:
    await asyncio.to_thread(ctx.boundary)


@pytest.mark.parametrize("look", [look_twice_at_once, look_in_a_thread])
def test_an_asynchronous_stage_may_look_what_people_want_wherever_it_is(
    store: Store, look: Callable[[Ctx], Awaitable[None]]
) -> None:
    @stage(timeout=1e6)
    async def work(ctx: Ctx) -> None:
        await look(ctx)
        ctx.state["done"] = True

    assert Pipeline([work]).run(store.task("work")).state == {"done": True}


@pytest.mark.parametrize("look", [look_twice_at_once, look_in_a_thread])
def test_its_time_goes_on_afterwards(store: Store, look: Callable[[Ctx], Awaitable[None]]) -> None:
    @stage(timeout=0.1)
    async def endless(ctx: Ctx) -> None:
        await look(ctx)
        await asyncio.Event().wait()

    with pytest.raises(StageError, match=r"it took longer than 0\.1 seconds"):
        Pipeline([endless]).run(store.task("work"))


def test_a_stage_whose_time_is_up_waits_for_nobody(store: Store) -> None:
    @stage(timeout=0.01)
    async def asks_at_the_end(ctx: Ctx) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await ctx.ask_async("Did you like it?")

    with pytest.raises(StageError, match=r"it took longer than 0\.01 seconds"):
        Pipeline([asks_at_the_end]).run(store.task("work"))
