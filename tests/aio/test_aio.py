"""lastgood for asyncio: the loop goes on, a save is whole or not there, and nothing of the interface is missing."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, assert_type

import pytest

import lastgood
from lastgood import (
    ConflictError,
    Evidence,
    EvidenceError,
    EvidencePack,
    EvidenceType,
    InvalidError,
    NotFoundError,
    UnavailableError,
    UnstorableError,
    aio,
)
from lastgood.aio.bridge import THREADS, Fetched, Opening, Plain

P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 60))

    return run


async def ticks(count: int = 50) -> None:
    """The loop goes round this often; a loop that is blocked does not."""
    for _ in range(count):
        await asyncio.sleep(0)


def is_saving(task: aio.Task) -> bool:
    """Whether a thread has begun to."""
    lock = task._far._handle.lock
    if lock.acquire(blocking=False):
        lock.release()
        return False
    return True


@contextmanager
def writers_held_back(folder: Path) -> Iterator[Callable[[], None]]:
    """Somebody else has the store's writing turn, until what is given is called."""
    taken, released = threading.Event(), threading.Event()

    def hold() -> None:
        with lastgood.open(folder, user="else") as store, store._engine.catalog.exclusive():
            taken.set()
            released.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(30)
    try:
        yield released.set
    finally:
        released.set()
        thread.join()


class Watched:
    """A catalog that notes what is asked of it in a thread that runs a loop, and can be shut for a while."""

    def __init__(self, catalog: Any) -> None:
        self._catalog = catalog
        self.seen: list[str] = []
        self.in_a_loop: list[str] = []
        self._shut = ""
        self._opened = threading.Event()

    def shut(self, name: str) -> None:
        """Whoever calls it from now on waits inside, until `reopen`."""
        self.seen.clear()
        self._shut = name

    def reopen(self) -> None:
        self._opened.set()

    async def reached(self, count: int = 1) -> None:
        """So many stand inside."""
        while self.seen.count(self._shut) < count:
            await asyncio.sleep(0)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._catalog, name)
        if not callable(value):
            return value
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            self.in_a_loop.append(name)
        self.seen.append(name)
        if name == self._shut:
            assert self._opened.wait(30)
        return value


@asynccontextmanager
async def watched_store(folder: Path) -> AsyncIterator[tuple[aio.Store, Watched]]:
    made = lastgood.open(folder / "store", base_path=folder)
    watched: Any = Watched(made._engine.catalog)
    made._engine.catalog = watched
    async with Opening(lambda: made, aio.Store) as store:
        yield store, watched


def in_order(store: lastgood.Store, task_id: str) -> list[lastgood.Checkpoint]:
    """Every checkpoint of a task, oldest first, after looking that all of them are whole and none is missing."""
    page = store.page_checkpoints(task_id, 1000)
    assert [one.sequence for one in page.checkpoints] == list(range(page.total, 0, -1))
    for newer, older in zip(page.checkpoints, [*page.checkpoints[1:], None], strict=True):
        assert newer.parent_id == (older.id if older else None)
        assert store.check_checkpoint(newer.id, evidence=False).problems == []
    return page.checkpoints[::-1]


# --- using it ----------------------------------------------------------------------------------------------


@dataclass
class Round:
    round: int


@in_loop
async def test_work_is_saved_stepped_restored_and_undone(tmp_path: Path) -> None:
    """B1: every operation also has a non-blocking form. The types are those that a type checker sees."""
    async with aio.open(tmp_path / "store", user="ada", base_path=tmp_path) as store:
        assert_type(store, aio.Store)
        task = assert_type(await store.task("t"), aio.Task)
        assert task.head is None
        first = assert_type(await task.save({"round": 1}, message="plan agreed"), aio.Checkpoint)
        assert (first.message, first.type, first.sequence, first.status) == ("plan agreed", "manual", 1, "stored")

        async with task.step("edit", type="tool_executed") as step:
            (await step.state)["round"] = 2
            (tmp_path / "report.md").write_text("done")
            done = await step.run([sys.executable, "-c", "print('ok')"], capture_output=True, text=True)
            await step.expect_file("report.md")
            step.expect(Evidence(EvidenceType.ARTIFACT_EXISTS, "it is there", {"path": "report.md"}))
        assert done.stdout == "ok\n"
        assert step.checkpoint is not None
        assert (step.checkpoint.verified, step.checkpoint.parent_id) == (True, first.id)
        assert (await step.checkpoint.evidence_pack).verification_summary()["verified"] == 3

        assert await task.state == await task.load() == {"round": 2}
        assert assert_type(await task.load(Round), Round) == Round(2)
        good = assert_type(await task.last_good(), aio.Checkpoint | None)
        assert good is not None
        assert (good.id, await good.load(Round)) == (step.checkpoint.id, Round(2))

        result = assert_type(await task.restore(first, present={"round": 3}), aio.Restored)
        assert await result.state == {"round": 1} == await result.checkpoint.state
        assert result.before is not None
        assert await result.before.state == {"round": 3}
        assert (await task.undo()).id == result.before.id
        assert (await task.redo()).id == result.new_checkpoint_id
        await task.tag(result.checkpoint, "green")
        aside = await task.fork(first, name="try b")
        assert await (await aside.append({"round": 9})).state == {"round": 9}
        assert [branch.name for branch in await task.branches()][-1] == "try b"
        assert (await store.find_checkpoint("green", "t")).id == result.new_checkpoint_id
        assert (await task.history(all=True))[0].kind == "created"
        page = assert_type(await store.page_checkpoints("t"), aio.CheckpointPage)
        assert page.total == 6
        assert await page.checkpoints[0].state == {"round": 9}
        found = await store.recovery("t")
        assert (found.clean, found.head and found.head.id) == (True, result.new_checkpoint_id)


@in_loop
async def test_steps_are_begun_and_committed_by_id(tmp_path: Path) -> None:
    """D4, D5."""
    (tmp_path / "run.log").write_text("x")
    evidence = Evidence(EvidenceType.ARTIFACT_EXISTS, "log written", {"path": "run.log"})
    async with aio.open_manager(tmp_path / "registry.sqlite", base_path=tmp_path) as manager:
        step_id = await manager.begin_step("task-123", "tool_executed", {"tool": "bash"})
        assert [step.id for step in await manager.open_steps()] == [step_id]
        made = assert_type(await manager.commit_step(step_id, EvidencePack([evidence])), aio.Checkpoint)
        assert made.verified
        last = await manager.get_last_verified_checkpoint("task-123")
        assert last is not None
        assert await manager.rollback_to_checkpoint(last.checkpoint_id) == {"tool": "bash"}
    async with aio.open_verifier(tmp_path) as verifier:
        assert assert_type(await verifier.verify_evidence(evidence), bool)
        assert (await verifier.verify_multiple([evidence]))["all_passed"]


@in_loop
async def test_a_store_is_opened_with_async_with_or_awaited_and_closed(tmp_path: Path) -> None:
    store = await aio.open(tmp_path / "store")
    await (await store.task("t")).save({"n": 1})
    await store.close()
    await store.aclose()
    with pytest.raises(UnavailableError, match="closed"):
        await store.tasks()
    async with await aio.open(tmp_path / "store") as again:
        task = await again.task("t")
        assert await task.state == {"n": 1}
    with pytest.raises(UnavailableError, match="closed"):
        await task.save({"n": 2})


@in_loop
async def test_a_store_that_cannot_be_opened_says_so_and_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    before = threading.active_count()
    with pytest.raises(UnavailableError, match="cannot be opened"):
        await aio.open(tmp_path / "file" / "store")
    with pytest.raises(InvalidError, match="auto_verify"):
        async with aio.open_manager(tmp_path / "s.db", auto_verify="yes"):  # type: ignore[arg-type]
            pass
    await _only(before)


async def _only(threads: int) -> None:
    """The last one ends by itself, just after it said that all was closed."""
    while threading.active_count() > threads:
        await ticks()


@in_loop
async def test_errors_are_those_of_the_engine(tmp_path: Path) -> None:
    """A9: the same classes, with what they carry."""
    async with aio.open(tmp_path / "store", base_path=tmp_path) as store:
        one, other = await store.task("t"), await store.task("t")
        with pytest.raises(NotFoundError, match="no checkpoint yet"):
            await one.state
        first = await one.save({"n": 1})
        with pytest.raises(ConflictError) as caught:
            await other.save({"n": 2})
        assert caught.value.head == first.as_head()
        with pytest.raises(UnstorableError, match=r"state\.s: "):
            await one.save({"s": threading.Lock()})
        with pytest.raises(NotFoundError):
            await store.find_checkpoint("nothing")
        with pytest.raises(TypeError, match="colour"):
            one.step("s", colour="red")  # type: ignore[call-arg]
        missing = EvidencePack([Evidence(EvidenceType.ARTIFACT_EXISTS, "there", {"path": "missing"})])
        bad = await one.save({"n": 2}, evidence=missing)
        assert not bad.verified
        with pytest.raises(EvidenceError):
            await one.restore(bad)
        assert await (await one.restore(bad, verify=False)).state == {"n": 2}


@in_loop
async def test_everything_in_a_correlation_carries_its_id(tmp_path: Path) -> None:
    """A7: each coroutine its own, through whatever thread does the work."""

    async def work(store: aio.Store, n: int) -> aio.Checkpoint:
        with lastgood.correlation(f"request-{n}"):
            task = await store.task(f"t{n}")
            async with task.step("edit") as step:
                await ticks(n)
        assert step.checkpoint is not None
        return step.checkpoint

    async with aio.open(tmp_path / "store") as store:
        made = await asyncio.gather(*(work(store, n) for n in range(20)))
        assert [one.correlation_id for one in made] == [f"request-{n}" for n in range(20)]
        assert {entry.correlation_id for entry in await store.history("t7")} == {"request-7"}


# --- the loop goes on --------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[aio.CheckpointManager, aio.Task, aio.Checkpoint], Awaitable[Any]]] = {
    "save": lambda store, task, first: task.save({"n": 3}),
    "append": lambda store, task, first: task.append({"n": 3}),
    "tag": lambda store, task, first: task.tag(first, "green"),
    "restore": lambda store, task, first: task.restore(first),
    "fork": lambda store, task, first: task.fork(first),
    "begin": lambda store, task, first: task.step("edit").begin(),
    "begin_step": lambda store, task, first: store.begin_step("u", "step", {}),
    "delete_task": lambda store, task, first: store.delete_task("t"),
    "purge": lambda store, task, first: store.delete_old_checkpoints("t", 1),
}


@pytest.mark.parametrize("write", WRITES)
@in_loop
async def test_the_loop_goes_on_while_a_write_waits_for_others(tmp_path: Path, write: str) -> None:
    """B1. Reading does not wait at all."""
    async with aio.open_manager(tmp_path / "store") as store:
        task = await store.task("t")
        first = await task.save({"n": 1})
        await task.save({"n": 2})  # so that there is an old one to delete
        with writers_held_back(tmp_path / "store") as release:
            writing = asyncio.ensure_future(WRITES[write](store, task, first))
            await ticks()
            assert await first.fresh_state() == {"n": 1}
            assert not writing.done()
            release()
            await writing


@in_loop
async def test_the_loop_goes_on_while_evidence_is_checked(tmp_path: Path) -> None:
    asked, answer = threading.Event(), threading.Event()

    def check(evidence: Evidence, _: object) -> str | None:
        asked.set()
        return None if answer.wait(30) else "nobody answered"

    lastgood.register_evidence("answered_by_the_loop", check)
    async with aio.open(tmp_path / "store") as store:
        task = await store.task("t")
        pack = EvidencePack([Evidence("answered_by_the_loop", "it goes on", {})])
        saving = asyncio.ensure_future(task.save({}, evidence=pack))
        while not asked.is_set():
            await ticks(1)
        answer.set()
        assert (await saving).verified


@in_loop
async def test_commands_that_take_long_hold_up_nothing_else(tmp_path: Path) -> None:
    """More of them than there are threads for the store: a save goes through, and may be what they wait for."""
    reader, writer = os.pipe()
    running = 0
    async with aio.open(tmp_path / "store") as store:
        task = await store.task("t")

        async def work() -> None:
            nonlocal running
            async with task.step("wait") as step:
                running += 1
                await step.run(["cat"], stdin=reader)

        working = [asyncio.ensure_future(work()) for _ in range(THREADS + 2)]
        try:
            async with asyncio.timeout(30):
                while running < len(working):
                    await ticks()
                await (await store.task("other")).save({"n": 1})
            assert not any(one.done() for one in working)
        finally:
            os.close(writer)
            await asyncio.gather(*working)
        assert (await store.page_checkpoints("t")).total == len(working)
    os.close(reader)


@in_loop
async def test_what_is_not_awaited_never_touches_the_store(tmp_path: Path) -> None:
    """Every attribute that is read at once, of everything there is, as it comes from the store."""
    async with watched_store(tmp_path) as (store, watched):
        task = await store.task("t")
        async with task.step("edit", artifacts=[1], guidance=["left"]) as step:
            await step.expect_file(__file__)
            assert await step.state == {}
        (listed,) = await store.list_checkpoints("t")
        restored, recovery = await task.restore(listed), await task.recovery()
        for handle in (store, task, step, listed, restored, recovery):
            for name, kind in inspect.getmembers_static(type(handle)):
                if isinstance(kind, Plain):
                    getattr(handle, name)
                if isinstance(kind, Fetched):
                    await getattr(handle, name)
        assert (await listed.evidence_pack).is_verified
        assert await listed.artifacts == [1]
    assert {"root", "blobs", "attestations", "commit"} <= set(watched.seen)
    assert watched.in_a_loop == []


# --- many at once ------------------------------------------------------------------------------------------


@in_loop
async def test_fifty_tasks_save_at_once(tmp_path: Path) -> None:
    """B11."""
    async with aio.open(tmp_path / "store") as store:

        async def work(n: int) -> None:
            task = await store.task(f"t{n}")
            for step in range(3):
                await task.save({"by": n, "step": step})
            assert await task.state == {"by": n, "step": 2}

        await asyncio.gather(*(work(n) for n in range(50)))
        assert len(await store.tasks()) == 50
    with lastgood.open(tmp_path / "store") as reopened:
        assert all(len(in_order(reopened, f"t{n}")) == 3 for n in range(50))


@in_loop
async def test_coroutines_share_a_handle(tmp_path: Path) -> None:
    """Many more than there are threads: saves, appends, steps and reads of one task get through."""
    async with aio.open(tmp_path / "store") as store:
        task = await store.task("t")
        await task.save({"n": 0})

        async def step(n: int) -> None:
            async with task.step(f"step {n}"):
                await ticks(1)

        kinds: list[Callable[[int], Awaitable[Any]]] = [
            lambda n: task.save({"n": n}),
            lambda n: task.append({"n": n}),
            step,
            lambda n: task.state,
            lambda n: task.refresh(),
        ]
        await asyncio.gather(*(kinds[n % len(kinds)](n) for n in range(20 * len(kinds))))
    with lastgood.open(tmp_path / "store") as reopened:
        assert len(in_order(reopened, "t")) == 61


@in_loop
async def test_a_property_that_is_not_awaited_never_gives_a_wrong_answer(tmp_path: Path) -> None:
    """First use, the library: it is no method that looks like a property."""
    async with aio.open(tmp_path / "store") as store:
        task = await store.task("t")
        await task.save({"n": 1})
        with pytest.raises(TypeError, match="await"):
            assert task.control.state == "idle"
        with pytest.raises(TypeError, match="await"):
            assert task.state
        assert not callable(task.state)
        assert await asyncio.wait_for(task.state, 30) == {"n": 1}
        assert tuple(await asyncio.gather(task.state, task.control.state)) == ({"n": 1}, "idle")


@in_loop
async def test_two_who_ask_for_a_steps_state_at_once_change_the_same(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "store") as store:
        task = await store.task("t")
        await task.save({"long": [{"n": n} for n in range(20_000)]})
        async with task.step("edit") as step:
            copies = await asyncio.gather(*(step.state for _ in range(THREADS)))
            assert len({id(copy) for copy in copies}) == 1


# --- cancelling --------------------------------------------------------------------------------------------


@in_loop
async def test_saves_cancelled_at_any_moment_are_whole_or_not_there(tmp_path: Path) -> None:
    """I1, I2: what was acknowledged is there, what was not is there whole or not at all."""
    chance = random.Random(7)
    acknowledged: dict[str, int] = {}
    cancelled: set[int] = set()

    async def attempt(task: aio.Task, n: int) -> None:
        saving = asyncio.ensure_future(task.save({"n": n, "one": [n] * 300, "two": [n] * 300}))
        patience = chance.choice((3, 100, 3000))
        for _ in range(chance.randrange(patience)):
            await asyncio.sleep(0)
        if n % 10:
            saving.cancel()
        try:
            acknowledged[(await saving).id] = n
        except asyncio.CancelledError:
            cancelled.add(n)

    async with aio.open(tmp_path / "store") as store:
        tasks = [await store.task(f"t{n}") for n in range(4)]
        for begin in range(0, 200, 20):
            await asyncio.gather(*(attempt(tasks[n % 4], n) for n in range(begin, begin + 20)))
        totals = [(await store.page_checkpoints(f"t{n}")).total for n in range(4)]
    assert len(acknowledged) >= 20
    assert len(cancelled) >= 20

    with lastgood.open(tmp_path / "store") as reopened:
        lines = [in_order(reopened, f"t{n}") for n in range(4)]
    with lastgood.open(tmp_path / "store") as reopened:
        found = {one.id: one.state for line in lines for one in in_order(reopened, line[0].task_id)}
    assert [len(line) for line in lines] == totals  # all was decided when the cancellation was heard
    assert all(found[id_]["n"] == n for id_, n in acknowledged.items())
    assert all(state["one"] == state["two"] == [state["n"]] * 300 for state in found.values())
    assert len({state["n"] for state in found.values()}) == len(found)
    assert {state["n"] for id_, state in found.items() if id_ not in acknowledged} <= cancelled


@in_loop
async def test_a_save_under_way_is_finished_before_its_cancellation_is_heard(tmp_path: Path) -> None:
    """However often it is cancelled: nobody may change a state that is still being saved."""
    async with watched_store(tmp_path) as (store, watched):
        task = await store.task("t")
        watched.shut("commit")
        saving = asyncio.ensure_future(task.save({"n": 1}))
        await watched.reached()
        for _ in range(3):
            saving.cancel()
            await ticks()
        assert not saving.done()
        watched.reopen()
        with pytest.raises(asyncio.CancelledError):
            await saving
        assert await task.state == {"n": 1}
        assert (await task.save({"n": 2})).parent_id == (await store.find_checkpoint("@1", "t")).id


@in_loop
async def test_a_save_that_had_not_begun_when_it_was_cancelled_is_never_made(tmp_path: Path) -> None:
    async with watched_store(tmp_path) as (store, watched):
        tasks = [await store.task(f"t{n}") for n in range(THREADS + 1)]
        watched.shut("commit")
        saving = [asyncio.ensure_future(task.save({})) for task in tasks]
        await watched.reached(THREADS)
        saving[-1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving[-1]
        watched.reopen()
        await asyncio.gather(*saving[:-1])
        assert {info.id for info in await store.tasks()} == {f"t{n}" for n in range(THREADS)}


@in_loop
async def test_a_timeout_is_told_as_one_with_what_went_wrong_meanwhile(tmp_path: Path) -> None:
    async with watched_store(tmp_path) as (store, watched):
        task = await store.task("t")
        await (await store.task("t")).save({"n": 1})
        watched.shut("commit")
        expiring: list[asyncio.Future[None]] = []

        async def expire(limit: asyncio.Timeout) -> None:
            await watched.reached()
            limit.reschedule(asyncio.get_running_loop().time())
            while not limit.expired():
                await ticks()
            watched.reopen()

        async def save() -> None:
            async with asyncio.timeout(None) as limit:
                expiring.append(asyncio.ensure_future(expire(limit)))
                await task.save({"n": 2})

        with pytest.raises(TimeoutError) as caught:
            await save()
        await expiring[0]
        cancelled = caught.value.__cause__
        assert isinstance(cancelled, asyncio.CancelledError)
        assert isinstance(cancelled.__cause__, ConflictError)


@in_loop
async def test_a_store_that_is_opened_when_nobody_wants_it_any_more_is_closed(tmp_path: Path) -> None:
    made: list[lastgood.Store] = []
    going_on = threading.Event()

    def make() -> lastgood.Store:
        made.append(lastgood.open(tmp_path / "store"))
        assert going_on.wait(30)
        return made[0]

    before = threading.active_count()
    opening = asyncio.ensure_future(Opening(make, aio.Store)._open())
    while not made:
        await ticks()
    opening.cancel()
    await ticks()
    going_on.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    with pytest.raises(UnavailableError, match="closed"):
        made[0].tasks()
    await _only(before)


@in_loop
async def test_closing_waits_for_what_is_under_way(tmp_path: Path) -> None:
    async with watched_store(tmp_path) as (store, watched):
        task = await store.task("t")
        watched.shut("commit")
        saving = asyncio.ensure_future(task.save({"n": 1}))
        await watched.reached()
        closing = asyncio.ensure_future(store.close())
        await ticks()
        closing.cancel()
        await ticks()
        assert not closing.done()
        with pytest.raises(UnavailableError, match="closed"):
            await task.save({"n": 2})
        watched.reopen()
        assert (await saving).sequence == 1
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(UnavailableError, match="closed"):
            store._far.tasks()


# --- steps -------------------------------------------------------------------------------------------------


@in_loop
async def test_a_step_that_raises_is_recorded_and_moves_nothing(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "store") as store:
        task = await store.task("t")
        first = await task.save({"n": 1})
        with pytest.raises(ZeroDivisionError):
            async with task.step("edit") as step:
                (await step.state)["n"] = 1 / 0
        assert step.checkpoint is None
        await _expect_failed(store, first, "ZeroDivisionError: division by zero")


async def _expect_failed(store: aio.Store, head: aio.Checkpoint, reason: str) -> None:
    assert await store.open_steps() == []
    fresh = await store.task("t")
    assert fresh.head is not None
    assert fresh.head.id == head.id
    newest = (await store.history("t"))[0]
    assert (newest.kind, newest.data["reason"]) == ("step_failed", reason)


@in_loop
async def test_a_step_that_is_cancelled_is_recorded_as_failed(tmp_path: Path) -> None:
    """Also when it is cancelled again while that is being recorded, and every thread is busy."""
    async with watched_store(tmp_path) as (store, watched):
        task = await store.task("t")
        first = await task.save({"n": 1})
        others = [await store.task(f"o{n}") for n in range(THREADS)]
        inside = asyncio.Event()

        async def work() -> None:
            async with task.step("edit") as step:
                (await step.state)["n"] = 2
                inside.set()
                await asyncio.Event().wait()

        working = asyncio.ensure_future(work())
        await inside.wait()
        watched.shut("commit")
        saving = [asyncio.ensure_future(other.save({})) for other in others]
        await watched.reached(THREADS)
        for _ in range(3):
            working.cancel()
            await ticks()
        assert not working.done()
        watched.reopen()
        with pytest.raises(asyncio.CancelledError):
            await working
        await asyncio.gather(*saving)
        await _expect_failed(store, first, "CancelledError: ")


@in_loop
async def test_a_step_that_is_cancelled_while_it_begins_is_not_left_open(tmp_path: Path) -> None:
    async with watched_store(tmp_path) as (store, watched):
        task = await store.task("t")
        first = await task.save({"n": 1})

        async def work() -> None:
            async with task.step("edit"):
                raise AssertionError("it was never begun")

        watched.shut("begin_step")
        working = asyncio.ensure_future(work())
        await watched.reached()
        working.cancel()
        await ticks()
        watched.reopen()
        with pytest.raises(asyncio.CancelledError):
            await working
        await _expect_failed(store, first, "CancelledError: ")


@in_loop
async def test_a_step_that_is_cancelled_while_it_commits_is_committed(tmp_path: Path) -> None:
    async with watched_store(tmp_path) as (store, watched):
        task = await store.task("t")
        step = await task.step("edit").begin()
        watched.shut("commit")
        leaving = asyncio.ensure_future(step.__aexit__(None, None, None))
        await watched.reached()
        leaving.cancel()
        await ticks()
        watched.reopen()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert step.checkpoint is not None
        assert [one.id for one in await store.list_checkpoints("t")] == [step.checkpoint.id]
        assert await store.open_steps() == []


@in_loop
async def test_a_steps_state_is_changed_in_place_or_set_but_never_lost(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "store") as store:
        task = await store.task("t")
        async with task.step("set") as step:
            step.set_state({"n": 1})
            assert await step.state == {"n": 1}
        async with task.step("assigned") as step:
            with pytest.raises(AttributeError):
                step.state = {"n": 2}  # type: ignore[misc, assignment]
        async with task.step("untouched"):
            await (await store.task("t")).append({"n": 3})
        assert await task.state == {"n": 3}
        step = await task.step("changed").begin()
        (await step.state)["n"] = 4
        await (await store.task("t")).append({"n": 5})
        with pytest.raises(ConflictError):
            await step.__aexit__(None, None, None)
        assert (await store.history("t"))[0].kind == "step_failed"


@in_loop
async def test_what_went_wrong_in_a_step_is_heard_although_the_store_is_closed(tmp_path: Path) -> None:
    store = await aio.open(tmp_path / "store")
    task = await store.task("t")

    async def work() -> None:
        async with task.step("edit"):
            await store.close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    with pytest.raises(UnavailableError, match="closed"):
        await task.step("edit").begin()


# --- loops and processes -----------------------------------------------------------------------------------


def test_a_store_outlives_its_loop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A loop that is closed early takes nothing down: what it began is finished, and the next one goes on."""
    folder = tmp_path / "store"

    async def begin() -> tuple[aio.Store, aio.Task]:
        store = await aio.open(folder)
        return store, await store.task("t")

    async def go_on() -> None:
        await task.save({"n": 2})
        assert [await one.state for one in await store.list_checkpoints("t")] == [{"n": 2}, {"n": 1}]
        await store.close()

    loop = asyncio.new_event_loop()
    store, task = loop.run_until_complete(begin())
    with writers_held_back(folder) as release:
        saving = loop.create_task(task.save({"n": 1}))
        while not is_saving(task):
            loop.run_until_complete(ticks(1))
        loop.close()
        release()
        asyncio.run(go_on())
    del saving
    gc.collect()
    assert {record.name for record in caplog.records} <= {"asyncio"}  # which says that it was pending, and so it was


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_goes_on_with_threads_of_its_own(tmp_path: Path) -> None:
    """B11: those of its parent are not there any more."""

    async def begin() -> aio.Store:
        store = await aio.open(tmp_path / "store")
        await (await store.task("t")).save({"from": "parent"})
        await asyncio.gather(*(store.tasks() for _ in range(THREADS)))  # now there are several, waiting for work
        return store

    async def go_on(who: str) -> None:
        await (await store.task("t")).append({"from": who})

    def in_child() -> None:
        try:
            asyncio.run(go_on("child"))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    store = asyncio.run(begin())
    child = multiprocessing.get_context("fork").Process(target=in_child)
    child.start()
    child.join(20)
    child.kill()
    child.join()
    assert child.exitcode == 0
    asyncio.run(go_on("parent"))
    asyncio.run(store.close())
    with lastgood.open(tmp_path / "store") as reopened:
        assert [one.state["from"] for one in in_order(reopened, "t")] == ["parent", "child", "parent"]


def test_only_who_asks_for_it_pays_for_it() -> None:
    code = "import sys, lastgood; lastgood.Store, lastgood.Task; print({'asyncio', 'lastgood.aio'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# --- nothing is missing ------------------------------------------------------------------------------------

ENGINE = "for the rest of the engine"
LEFT_OUT = {
    "Store": {"meter": ENGINE},
    "Session": dict.fromkeys(("interrupt", "interrupt_wait", "signals", "may_continue", "pass_boundary"), ENGINE),
    "Step": dict.fromkeys(("as_open", "again", "commit_and_begin", "is_open", "note_begun", "put"), ENGINE),
    "EvidenceVerifier": {"checking": ENGINE},
    "Checkpoint": {"from_dict": "makes a checkpoint apart from any store; lastgood.Checkpoint.from_dict does"},
}
LEFT_OUT["CheckpointManager"] = LEFT_OUT["Store"]
ADDED = {"aclose", "set_state"}
"""As contextlib.aclosing wants it; in place of setting step.state."""
AT_ONCE = {"step", "expect", "as_head", "session", "before_risky", "stream_file"}
"""Methods that only touch memory; `stop` of a step is one, too. A stream of a file is awaited piece by piece."""
LOADS = {"load"}
"""Its class may be left out here."""


@in_loop
async def test_every_public_name_of_the_engine_has_a_counterpart(tmp_path: Path) -> None:
    """B1. Methods are coroutines with the same parameters; attributes are read at once, or awaited."""
    with lastgood.CheckpointManager(tmp_path / "store") as store, lastgood.EvidenceVerifier() as verifier:
        task = store.task("t")
        with task.step("edit") as step:
            pass
        head, recovery = store.list_checkpoints("t")[0], task.recovery()
        engines: list[Any] = [store, task, step, head, recovery, task.restore(head), verifier]
        engines += [task.session(), task.control]
        engines.append(lastgood.open(":memory:"))
        for engine in engines:
            name = type(engine).__name__
            _compare(engine, getattr(aio, name), LEFT_OUT.get(name, {}))
        engines[-1].close()
    assert set(lastgood.types.CheckpointPage._fields) == set(aio.CheckpointPage._fields)
    assert set(aio.__all__) - {"open", "open_manager", "open_verifier"} <= {*lastgood.__all__, *lastgood.types.__all__}
    for opened, function in (
        (aio.open, lastgood.open),
        (aio.open_manager, lastgood.CheckpointManager),
        (aio.open_verifier, lastgood.EvidenceVerifier),
    ):
        assert inspect.signature(opened).parameters == inspect.signature(function).parameters


def _compare(engine: Any, kind: type, left_out: dict[str, str]) -> None:
    public = {name for name in dir(engine) if not name.startswith("_")}
    here = {name for name in dir(kind) if not name.startswith("_")}
    assert public - set(left_out) - here == set(), f"missing from aio.{kind.__name__}"
    assert here - public - ADDED == set(), f"only in aio.{kind.__name__}"
    assert set(left_out) <= public, f"left out of aio.{kind.__name__}, and not there at all"
    for name in here & public:
        mine, theirs = inspect.getattr_static(kind, name), inspect.getattr_static(type(engine), name, None)
        if not inspect.isfunction(theirs):
            assert isinstance(mine, Plain | Fetched | property), name
        elif name not in AT_ONCE and (kind, name) != (aio.Step, "stop"):
            assert inspect.iscoroutinefunction(mine), name
        if inspect.isfunction(theirs) and inspect.isfunction(mine) and name not in LOADS:
            assert _parameters(mine) == _parameters(theirs), name


def _parameters(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]


def test_cancelling_a_command_kills_it(tmp_path: Path) -> None:
    """Nobody waits an hour for a command that nobody wants any more."""
    started = tmp_path / "started"

    async def main() -> None:
        async with aio.open(tmp_path / "store", base_path=tmp_path) as store:
            task = await store.task("t")
            await task.save({"n": 1})

            async def work() -> None:
                async with task.step("long") as step:
                    await step.run(["sh", "-c", f"echo $$ > {started}; exec sleep 3600"])

            running = asyncio.create_task(work())
            while not started.exists() or not started.read_text().strip():
                await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            pid = int(started.read_text())
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
            assert await store.open_steps("t") == []
            assert (await task.history())[0].kind == "step_failed"

    asyncio.run(main())
