"""Stages that take too long: they fail at their next call of the context, or when they have ended."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import lastgood
from lastgood import Evidence, EvidenceType, Pipeline, StageContext, StageError, StageTimeout, Store, stage
from lastgood.work.clock import Clock, TimeLimit

Ctx = StageContext


class Advancing(Clock):
    """A clock that a test can advance."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead

    def wait(self, until: threading.Event, seconds: float) -> bool:
        if threading.current_thread().name == "lastgood timeout":
            seconds = min(seconds, 0.01)
        return super().wait(until, seconds)


@pytest.fixture
def clock() -> Advancing:
    return Advancing()


def watches() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "lastgood timeout"]


CALLS: dict[str, Callable[[Ctx], object]] = {
    "boundary": lambda ctx: ctx.boundary(),
    "wait": lambda ctx: ctx.wait(0),
    "ask": lambda ctx: ctx.ask("Shall I?"),
    "before_risky": lambda ctx: ctx.before_risky("deploy"),
    "set_artifact": lambda ctx: ctx.set_artifact("report", "text"),
    "expect": lambda ctx: ctx.expect(Evidence(EvidenceType.ARTIFACT_EXISTS, "it is there", {"path": "a"})),
    "expect_file": lambda ctx: ctx.expect_file("a"),
    "run": lambda ctx: ctx.run(["true"]),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_stage_whose_time_is_up_ends_at_its_next_call_of_the_context(
    store: Store, clock: Advancing, call: str
) -> None:
    cleaned: list[bool] = []

    @stage(timeout=30)
    def slow(ctx: Ctx) -> None:
        ctx.state["done"] = True
        clock.ahead = 31
        try:
            while True:
                with contextlib.suppress(Exception):  # code which goes on after errors does not go on after this
                    CALLS[call](ctx)
        finally:
            cleaned.append(True)

    with pytest.raises(StageError, match="it took longer than 30 seconds"):
        Pipeline([slow]).run(store.task("work"), clock=clock)
    assert cleaned == [True]
    head = store.task("work").head
    assert head is not None
    assert (head.type, head.control_state, head.state) == ("stage_failed", "failed", {})


def test_a_stage_in_time_makes_all_of_these_calls(store: Store) -> None:
    @stage(timeout=1e6)
    def work(ctx: Ctx) -> None:
        for name, call in CALLS.items():
            if name != "ask":
                call(ctx)

    assert Pipeline([work]).run(store.task("work")).checkpoint.control_state == "completed"


def test_a_stage_that_returns_late_has_failed(store: Store, clock: Advancing) -> None:
    @stage(timeout=30)
    def late(ctx: Ctx) -> None:
        ctx.state["done"] = True
        clock.ahead = 31

    with pytest.raises(StageError, match="it took longer than 30 seconds"):
        Pipeline([late]).run(store.task("work"), clock=clock)
    assert store.task("work").state == {}


def test_a_stage_that_swallows_it_has_failed_all_the_same(store: Store, clock: Advancing) -> None:
    @stage(timeout=30)
    def stubborn(ctx: Ctx) -> None:
        clock.ahead = 31
        with contextlib.suppress(BaseException):
            ctx.boundary()

    with pytest.raises(StageError, match="longer than 30 seconds"):
        Pipeline([stubborn]).run(store.task("work"), clock=clock)


def test_an_error_of_a_late_stage_is_told_as_it_is(store: Store, clock: Advancing) -> None:
    @stage(timeout=30)
    def late(ctx: Ctx) -> None:
        clock.ahead = 31
        raise ValueError("out of paper")

    with pytest.raises(StageError, match="out of paper"):
        Pipeline([late]).run(store.task("work"), clock=clock)


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


def test_an_asynchronous_stage_that_holds_the_loop_for_too_long_has_failed(store: Store, clock: Advancing) -> None:
    @stage(timeout=30)
    async def late(ctx: Ctx) -> None:
        clock.ahead = 31
        ctx.set_artifact("report", "text")

    with pytest.raises(StageError, match="it took longer than 30 seconds"):
        Pipeline([late]).run(store.task("work"), clock=clock)


def test_a_timeout_of_its_own_is_an_error_like_any_other(store: Store) -> None:
    @stage(timeout=30)
    async def own(ctx: Ctx) -> None:
        raise TimeoutError("the service is slow")

    with pytest.raises(StageError, match="the service is slow"):
        Pipeline([own]).run(store.task("work"))


@pytest.mark.parametrize("check", [False, True])
def test_a_command_that_never_ends_is_killed(store: Store, clock: Advancing, check: bool) -> None:
    went_on: list[bool] = []

    @stage(timeout=30)
    def endless(ctx: Ctx) -> None:
        clock.ahead = 29
        threading.Timer(0.05, lambda: setattr(clock, "ahead", 31)).start()
        with contextlib.suppress(subprocess.CalledProcessError):
            ctx.run(["sleep", "3600"], check=check)
        went_on.append(True)

    with pytest.raises(StageError, match="longer than 30 seconds"):
        Pipeline([endless]).run(store.task("work"), clock=clock)
    assert went_on == []


def test_an_asynchronous_stage_that_takes_too_long_ends_its_commands_and_cannot_make_light_of_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    run = lastgood.Step.run

    def run_and_remember(self: lastgood.Step, *about: Any, **how: Any) -> Any:
        result = run(self, *about, **how)
        ended.append(result.returncode)
        return result

    @stage(timeout=2)
    async def swallows(ctx: Ctx) -> None:
        def sleep() -> None:
            ctx.run(["sleep", "3600"])

        with contextlib.suppress(asyncio.CancelledError):
            work = asyncio.get_running_loop().run_in_executor(None, sleep)
            await work

    monkeypatch.setattr(lastgood.Step, "run", run_and_remember)
    with pytest.raises(StageError, match="longer than 2 seconds"):
        Pipeline([swallows]).run(store.task("work"))
    assert ended == [-signal.SIGKILL]


def test_a_retry_after_a_timeout_has_all_of_its_time(store: Store, clock: Advancing) -> None:
    attempts: list[int] = []

    @stage(timeout=30, retries=1, backoff=0)
    def slow(ctx: Ctx) -> None:
        attempts.append(ctx.attempt)
        clock.ahead += 31 if ctx.attempt == 1 else 29
        ctx.boundary()

    Pipeline([slow]).run(store.task("work"), clock=clock)
    assert attempts == [1, 2]


def test_waiting_for_people_does_not_count(store: Store, clock: Advancing, monkeypatch: pytest.MonkeyPatch) -> None:
    boundary = lastgood.Session.boundary

    def wait_long(self: lastgood.Session) -> None:
        clock.ahead += 1000
        boundary(self)

    monkeypatch.setattr(lastgood.Session, "boundary", wait_long)

    went_on: list[bool] = []

    @stage(timeout=30)
    def asks(ctx: Ctx) -> None:
        clock.ahead += 20
        ctx.boundary()
        went_on.append(False)
        ctx.boundary()
        clock.ahead += 20
        ctx.boundary()
        went_on.append(True)

    with pytest.raises(StageError, match="longer than 30 seconds"):
        Pipeline([asks]).run(store.task("work"), clock=clock)
    assert went_on == [False]


def test_no_time_passes_while_anybody_in_the_stage_waits_for_people(clock: Advancing) -> None:
    limit = TimeLimit(30.0, clock, lambda: None)
    asked, answered = threading.Event(), threading.Event()

    def ask() -> None:
        with limit.suspended():
            asked.set()
            answered.wait()

    thread = threading.Thread(target=ask)
    thread.start()
    asked.wait()
    with limit.suspended():
        clock.ahead += 100
    clock.ahead += 100
    limit.check()
    answered.set()
    thread.join()
    limit.check()
    clock.ahead += 31
    with pytest.raises(StageTimeout):
        limit.check()


def test_limits_within_limits_are_told_apart(clock: Advancing) -> None:
    """A stage may run a pipeline in its thread."""
    outer = TimeLimit(30.0, clock, lambda: None)
    inner = TimeLimit(1e6, clock, lambda: None)

    def work() -> None:
        clock.ahead = 31
        inner.call(outer.check)

    with pytest.raises(TimeoutError, match="30 seconds"):
        outer.call(work)


def test_a_thread_of_a_stage_whose_time_is_up_learns_of_it(store: Store, clock: Advancing) -> None:
    told: list[str] = []

    def look(ctx: Ctx) -> None:
        try:
            ctx.boundary()
        except StageTimeout:
            told.append("the time is up")

    @stage(timeout=30)
    def work(ctx: Ctx) -> None:
        clock.ahead = 31
        helper = threading.Thread(target=look, args=[ctx])
        helper.start()
        helper.join()

    with pytest.raises(StageError, match="longer than 30 seconds"):
        Pipeline([work]).run(store.task("work"), clock=clock)
    assert told == ["the time is up"]


def test_a_command_that_has_ended_is_watched_no_more(store: Store) -> None:
    @stage(timeout=1e6)
    def work(ctx: Ctx) -> None:
        ctx.run(["true"])
        for watch in watches():
            watch.join(10)

    Pipeline([work]).run(store.task("work"))
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
