"""Pipelines awaited: asynchronous stages run in the loop, which goes on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood import Pipeline, StageContext, StageError, aio, stage

Ctx = StageContext


def in_loop(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def test_awaited_its_stages_run_in_the_loop_and_the_others_beside_it(tmp_path: Path) -> None:
    threads: dict[str, threading.Thread] = {}

    async def in_the_loop(ctx: Ctx) -> None:
        threads["loop"] = threading.current_thread()
        await ctx.boundary_async()
        ctx.state["session"] = lastgood.current_session() is ctx.session

    def beside(ctx: Ctx) -> None:
        threads["beside"] = threading.current_thread()

    async def main() -> lastgood.types.Outcome:
        async with aio.open(tmp_path / "store") as store:
            outcome = await Pipeline([in_the_loop, beside]).run_async(await store.task("work"))
            assert await (await store.task("work")).progress() is None
            return outcome

    outcome = in_loop(main())
    assert (outcome.state, outcome.stopped) == ({"session": True}, None)
    assert threads["loop"] is threading.main_thread()
    assert threads["beside"] is not threading.main_thread()


def test_the_loop_goes_on_while_the_work_is_paused(store: lastgood.Store) -> None:
    async def work(ctx: Ctx) -> None:
        store.task("work").control.pause()
        await ctx.boundary_async()
        ctx.state["answer"] = await ctx.ask_async("Go on?")

    async def person() -> None:
        while store.task("work").head is None or store.task("work").control.state != "paused":
            await asyncio.sleep(0.01)
        store.task("work").control.resume()
        while store.task("work").control.state != "waiting_for_input":
            await asyncio.sleep(0.01)
        store.task("work").control.answer("yes")

    async def main() -> None:
        outcome, _ = await asyncio.gather(Pipeline([work]).run_async(store.task("work")), person())
        assert outcome.state == {"answer": "yes"}

    in_loop(main())


def test_cancelled_it_leaves_the_work_to_be_gone_on_with(store: lastgood.Store) -> None:
    """The stage that was in flight knows it afterwards."""
    attempts: list[int] = []
    held: list[str] = []

    async def main() -> None:
        begun = asyncio.Event()

        def first(ctx: Ctx) -> None:
            ctx.state["first"] = True

        async def second(ctx: Ctx) -> None:
            attempts.append(ctx.attempt)
            begun.set()
            if ctx.attempt == 1:
                try:
                    await asyncio.Event().wait()
                finally:
                    held.append("cleaned up")

        pipeline = Pipeline([first, second])
        running = asyncio.create_task(pipeline.run_async(store.task("work")))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert held == ["cleaned up"]
        assert store.task("work").control.lease is None
        assert store.task("work").control.state == "running"
        outcome = await pipeline.run_async(store.task("work"))
        assert outcome.state == {"first": True}

    in_loop(main())
    assert attempts == [1, 2]


def test_cancelled_while_it_waits_or_in_a_stage_that_cannot_be_cancelled(store: lastgood.Store) -> None:
    async def main() -> None:
        loop, begun, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def blocking(ctx: Ctx) -> None:
            loop.call_soon_threadsafe(begun.set)
            assert release.wait(60)

        @stage(retries=1, backoff=1e6)
        def failing(ctx: Ctx) -> None:
            loop.call_soon_threadsafe(begun.set)
            raise ValueError("no")

        pipeline = Pipeline([blocking, failing])
        running = asyncio.create_task(pipeline.run_async(store.task("work")))
        await begun.wait()
        running.cancel()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        progress = store.task("work").progress()
        assert progress is not None
        assert progress.completed == ("blocking",)  # it ended, and that is recorded

        begun.clear()
        running = asyncio.create_task(pipeline.run_async(store.task("work")))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert store.task("work").control.lease is None

    in_loop(main())


def test_a_failure_is_raised_to_who_awaits(store: lastgood.Store) -> None:
    async def bad(ctx: Ctx) -> None:
        raise ValueError("no")

    async def cancels_itself(ctx: Ctx) -> None:
        raise asyncio.CancelledError

    for work in (bad, cancels_itself):
        with pytest.raises(StageError):
            in_loop(Pipeline([work]).run_async(store.task(work.__name__)))
        with pytest.raises(StageError):
            Pipeline([work]).run(store.task(f"{work.__name__} again"))


def test_within_a_loop_an_asynchronous_stage_says_how_to_run_it(store: lastgood.Store) -> None:
    async def work(ctx: Ctx) -> None:
        pass

    async def main() -> None:
        with pytest.raises(StageError, match="run_async"):
            Pipeline([work]).run(store.task("work"))

    in_loop(main())


def test_all_asynchronous_stages_of_a_run_share_one_loop(store: lastgood.Store) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def one(ctx: Ctx) -> None:
        loops.append(asyncio.get_running_loop())

    Pipeline([one, stage(name="two")(one)]).run(store.task("work"))
    assert loops[0] is loops[1]
    assert loops[0].is_closed()
