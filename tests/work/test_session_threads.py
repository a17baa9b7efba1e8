"""A session, threads and contexts: who is in it, and who saves meanwhile."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.programs import Program

import lastgood
from lastgood import InvalidError, LeaseError, Store


def test_a_worker_is_in_the_session_while_the_main_thread_saves_through_the_same_handle(
    store: Store, program: Program
) -> None:
    """All saves are there, in one line, whoever made them; requests are fulfilled once."""
    control = store.task("work").control
    begin = threading.Barrier(2)

    def work() -> None:
        begin.wait(30)
        for _ in range(20):
            session.boundary()
            session.save()

    with program.session() as session, ThreadPoolExecutor(1) as worker:
        done = worker.submit(work)
        begin.wait(30)
        for n in range(20):
            program.task.save({"n": n})
            control.guide(f"{n}")
        done.result()
        session.boundary()
        assert [said["text"] for said in session.guidance] == [f"{n}" for n in range(20)]
    line = store.list_checkpoints("work", 1000)
    assert [one.parent_id for one in line] == [*(one.id for one in line[1:]), None]
    types = [one.type for one in line]
    assert (types.count("step"), types.count("manual"), types.count("guided")) == (20, 20, 20)


def test_a_session_may_be_begun_and_left_in_a_worker(store: Store, program: Program) -> None:
    def work() -> str:
        with program.session() as session:
            assert lastgood.current_session() is session
            session.save()
        return session.control_state

    with ThreadPoolExecutor(1) as worker:
        assert worker.submit(work).result() == "completed"
    with pytest.raises(InvalidError):
        lastgood.current_session()


def test_who_inherits_the_session(program: Program) -> None:
    def look() -> object:
        try:
            return lastgood.current_session()
        except InvalidError:
            return None

    async def look_in_tasks() -> list[object]:
        async def one() -> object:
            return look()

        return [await asyncio.create_task(one()), await asyncio.to_thread(look)]

    with program.session() as session, ThreadPoolExecutor(1) as worker:
        assert worker.submit(look).result() is None
        assert worker.submit(contextvars.copy_context().run, look).result() is session
        assert asyncio.run(look_in_tasks()) == [session, session]
        outer = contextvars.copy_context()
    assert look() is None
    with pytest.raises(InvalidError):
        outer.run(lastgood.before_risky("too late").__enter__)


def test_a_session_left_in_another_context_is_left(store: Store, program: Program) -> None:
    session = program.session()
    contextvars.copy_context().run(session.__enter__)
    session.__exit__(None, None, None)
    assert store.task("work").control.lease is None


def test_sessions_one_in_the_other(store: Store) -> None:
    with store.task("outer").session() as outer:
        with store.task("inner").session() as inner:
            assert lastgood.current_session() is inner
        assert lastgood.current_session() is outer
        with pytest.raises(LeaseError), store.task("outer").session():
            pass
        assert lastgood.current_session() is outer


def test_sessions_left_in_another_order(store: Store) -> None:
    first, second = store.task("first").session(), store.task("second").session()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    with pytest.raises(InvalidError):
        lastgood.current_session()


def test_a_session_that_is_over_refuses_to_save(program: Program) -> None:
    with program.session() as session:
        pass
    with pytest.raises(InvalidError):
        session.save()


def test_a_session_that_is_refused_takes_nothing_from_the_one_that_has_the_handle(program: Program) -> None:
    """C6."""
    with program.session() as session:
        with pytest.raises(LeaseError), program.session():
            raise AssertionError
        program.memory["n"] = 1
        assert session.save().status == "stored"
    assert program.task.state == {"n": 1}


def test_a_stage_is_not_failed_by_what_another_thread_saves_through_the_handle(store: Store) -> None:
    task = store.task("work")
    over = threading.Event()

    def save() -> None:
        while not over.is_set():
            with task.step("tool"):
                pass

    def add(ctx: lastgood.StageContext) -> None:
        ctx.state["n"] = ctx.state.get("n", 0) + 1

    with ThreadPoolExecutor(1) as other:
        pipeline = lastgood.Pipeline([lastgood.stage(name=f"{n}")(add) for n in range(30)])
        task.save({})
        beside = other.submit(save)
        try:
            pipeline.run(task)
        finally:
            over.set()
        beside.result()
    assert task.state == {"n": 30}
    types = [one.type for one in store.list_checkpoints("work", 10_000)]
    assert types.count("stage_succeeded") == 30
    assert store.open_steps("work") == []
