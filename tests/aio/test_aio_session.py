"""Sessions in asyncio: the work lives in the loop, which waits for nobody (A11, A15, C6)."""

from __future__ import annotations

import asyncio
import functools
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec

import pytest
from tests.support.programs import KilledError

import lastgood
from lastgood import ControlError, LeaseError, aio
from lastgood.aio.bridge import THREADS

P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 60))

    return run


class Program:
    """A loop somebody wrote, which notes in which thread it is called."""

    def __init__(self, task: aio.Task) -> None:
        self.task = task
        self.memory: dict[str, Any] = {"n": 0}
        self.threads: set[int] = set()

    def session(self, **how: Any) -> aio.Session:
        return self.task.session(state=self.state, load=self.load, **how)

    def state(self) -> Any:
        self.threads.add(threading.get_ident())
        return self.memory

    async def load(self, state: Any) -> None:
        await asyncio.sleep(0)
        self.threads.add(threading.get_ident())
        self.memory = state


@asynccontextmanager
async def work(folder: Path) -> AsyncIterator[tuple[Program, aio.Control]]:
    """Some work, and somebody else who looks at it."""
    async with aio.open(folder / "store", user="tester") as store, aio.open(folder / "store", user="tester") as other:
        program = Program(await store.task("work"))
        yield program, (await other.task("work")).control
        assert program.threads <= {threading.get_ident()}


async def until(control: aio.Control, state: str) -> None:
    while await control.state != state:
        await asyncio.sleep(0)


@in_loop
async def test_work_is_paused_guided_asked_and_restored_while_the_loop_goes_on(tmp_path: Path) -> None:
    async with work(tmp_path) as (program, control):

        async def person() -> None:
            await until(control, "paused")
            await control.guide("shorter")
            await control.resume()
            await until(control, "waiting_for_input")
            question = await control.question
            assert question is not None
            assert question["text"] == "Deploy?"
            lease = await control.lease
            assert lease is not None
            assert lease.executor == session.executor
            await control.answer("yes")

        async with program.session() as session:
            assert session.control_state == "running"
            program.memory["n"] = 1
            good = await session.save(message="so far")
            await control.pause()
            beside = asyncio.create_task(person())
            await session.boundary()
            assert [said["text"] for said in await session.guidance] == ["shorter"]
            assert await session.ask("Deploy?", choices=["yes", "no"]) == "yes"
            assert [one["answer"] for one in await session.decisions] == ["yes"]
            await beside
            async with session.before_risky("deploy") as before:
                assert before.type == "before_risky"
            program.memory["n"] = 2
            asked = await control.restore(good)
            assert not asked.fulfilled
            await session.boundary()
            assert program.memory == {"n": 1}
            assert await control.requests() == []
            assert await session.rounds == 0
        assert session.stopped is None
        assert await control.state == "completed"


@in_loop
async def test_stopped_work_leaves_the_block(tmp_path: Path) -> None:
    async with work(tmp_path) as (program, control):
        reached = []
        async with program.session() as session:
            await control.stop()
            await session.boundary()
            reached.append("behind it")
        assert (reached, session.stopped) == ([], "stopped")
        with pytest.raises(ControlError):
            async with program.session():
                pass
        assert not (await control.retry()).alive
        async with program.session() as session:
            assert session.control_state == "running"


@in_loop
async def test_an_exception_fails_the_work_and_nobody_else_works_on_it_meanwhile(tmp_path: Path) -> None:
    async with work(tmp_path) as (program, control):

        async def fail() -> None:
            async with program.session():
                with pytest.raises(LeaseError):
                    async with aio.Task(control._bridge, control._far).session():
                        pass
                raise RuntimeError("no such luck")

        with pytest.raises(RuntimeError):
            await fail()
        assert await control.state == "failed"


@in_loop
async def test_many_paused_sessions_hold_up_nothing_else(tmp_path: Path) -> None:
    """Each waits in a thread of its own, beside those in which the store works."""
    async with aio.open(tmp_path / "store", user="tester") as store:

        async def one(number: int) -> None:
            task = await store.task(f"work {number}")
            async with task.session() as session:
                await task.control.pause()
                await session.boundary()

        count = THREADS + 2
        running = [asyncio.create_task(one(number)) for number in range(count)]
        controls = []
        for number in range(count):
            while not (task := await store.task(f"work {number}")).head or await task.control.state != "paused":
                await asyncio.sleep(0)
            controls.append(task.control)
        for control in controls:
            await control.resume()
        await asyncio.gather(*running)
        assert [await control.state for control in controls] == ["completed"] * count


@pytest.mark.parametrize("where", ["boundary", "ask"])
@in_loop
async def test_cancelled_while_it_waits_the_work_is_left_to_be_resumed(tmp_path: Path, where: str) -> None:
    async with work(tmp_path) as (program, control):

        async def run() -> None:
            async with program.session() as session:
                program.memory["n"] = 5
                if where == "boundary":
                    await control.pause()
                    await session.boundary()
                await session.ask("Deploy?")

        running = asyncio.create_task(run())
        waits = "paused" if where == "boundary" else "waiting_for_input"
        while (await program.task.refresh()) is None:
            await asyncio.sleep(0)
        await until(control, waits)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await control.lease is None
        assert (await control.state, await program.task.state) == (waits, {"n": 5})


@in_loop
async def test_after_a_timeout_the_session_goes_on(tmp_path: Path) -> None:
    async with work(tmp_path) as (program, control), program.session() as session:
        await control.pause()
        waiting = asyncio.create_task(session.boundary())
        await until(control, "paused")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await control.resume()
        await session.boundary()
        assert session.control_state == "running"


@in_loop
async def test_cancelled_while_it_begins_it_is_not_left_held(tmp_path: Path) -> None:
    async with work(tmp_path) as (program, control):
        begun = asyncio.Event()

        def load(state: Any) -> None:
            begun.set()

        async def run() -> None:
            async with program.task.session(state=program.state, load=load):
                pytest.fail("it was cancelled")

        running = asyncio.create_task(run())
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await control.lease is None


@in_loop
async def test_the_session_that_code_runs_in_is_known_in_tasks_and_threads_that_inherit_it(tmp_path: Path) -> None:
    async with work(tmp_path) as (program, _):

        async def look() -> lastgood.Session:
            await asyncio.sleep(0)
            return lastgood.current_session()

        async with program.session() as session:
            far = session._far
            assert lastgood.current_session() is far
            assert await asyncio.create_task(look()) is far
            assert await asyncio.to_thread(lastgood.current_session) is far
            with lastgood.before_risky("in the loop's own thread") as before:
                assert before.message == "in the loop's own thread"
        with pytest.raises(lastgood.InvalidError):
            lastgood.current_session()


@in_loop
async def test_a_program_that_dies_in_a_session_says_nothing_about_its_work(tmp_path: Path) -> None:
    async with work(tmp_path) as (program, control):
        with pytest.raises(KilledError):
            async with program.session():
                raise KilledError
        assert await control.state == "running"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("waits", ["boundary", "ask"])
def test_a_signal_lets_the_work_be_saved(tmp_path: Path, number: int, waits: str) -> None:
    script = """
import asyncio, os, sys
from lastgood import aio

async def main():
    memory = {"n": 0}
    async with aio.open(sys.argv[1], user="tester") as store:
        task = await store.task("work")
        async with task.session(state=lambda: memory) as session:
            memory["n"] = 1
            if sys.argv[2] == "ask":
                asyncio.get_running_loop().call_later(0, os.write, 1, b"ready")
                await session.ask("Deploy?")
            else:
                os.write(1, b"ready")
                await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
                await session.boundary()
            os.write(1, b"not reached")

asyncio.run(main())
"""
    command = [sys.executable, "-c", script, str(tmp_path / "store"), waits]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(5) == b"ready"
        process.send_signal(number)
        assert process.communicate(b"go on\n", timeout=60)[0] == b""
    assert process.returncode == -number
    with lastgood.open(tmp_path / "store", user="tester") as store:
        assert store.task("work").state == {"n": 1}
        assert store.task("work").control.lease is None
