"""Sessions: one process works on a branch, and people steer it (A6, A11, A15, C6, E4)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.programs import Program

import lastgood
from lastgood import ControlError, LeaseError, Stopped, Store
from lastgood.work.clock import Clock


@pytest.fixture
def outside(store: Store) -> Callable[[], lastgood.Control]:
    """As somebody else sees the work."""
    return lambda: store.task("work").control


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[threading.Thread]:
    """What people do while the program waits. The program must have come to its end in the meantime."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield thread
    thread.join(60)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


def wait_until(control: lastgood.Control, state: str) -> None:
    while control.state != state:
        threading.Event().wait(0.01)


def types(store: Store) -> list[str]:
    return [checkpoint.type for checkpoint in reversed(store.list_checkpoints("work"))]


def test_a_session_runs_and_completes(store: Store, program: Program) -> None:
    with program.session() as session:
        assert session.control_state == "running"
        for n in range(3):
            program.memory["n"] = n
            session.boundary()
        session.save(message="so far")
    head = store.task("work").head
    assert head is not None
    assert (head.control_state, head.state) == ("completed", {"n": 2})
    assert types(store) == ["started", "step", "completed"]


def test_inside_nobody_else_advances_the_branch(store: Store, program: Program) -> None:
    """C6."""
    with program.session(), pytest.raises(LeaseError):
        store.task("work").save({"by": "another"})
    with program.session(restart=True), pytest.raises(LeaseError), store.task("work").session():
        pass
    store.task("work").save({"by": "another"})


def test_through_the_handle_of_the_session_everything_goes_on(program: Program) -> None:
    with program.session():
        first = program.task.save({"n": 1})
        with program.task.step("edit") as step:
            step.state["n"] = 2
        program.task.restore(first)
        program.task.save({"n": 3})
        program.task.undo()
        assert program.task.state == {"n": 2}


def test_an_exception_fails_the_work_and_a_new_session_goes_on(store: Store, program: Program) -> None:
    def work() -> None:
        with program.session() as session:
            program.memory["n"] = 1
            session.save()
            program.memory["n"] = 99
            raise RuntimeError("no such luck; api_key=sk-abcdefghijklmnopqrstuvwxyz0123456789")

    with pytest.raises(RuntimeError):
        work()
    head = store.task("work").head
    assert head is not None
    assert (head.control_state, head.state) == ("failed", {"n": 1})
    assert "no such luck" in head.metadata["error"]
    assert "sk-abc" not in head.metadata["error"]
    again = Program(store.task("work"))
    with again.session() as session:
        assert (again.memory, session.control_state) == ({"n": 1}, "running")


def test_a_session_on_completed_work_reopens_it(program: Program) -> None:
    """A15."""
    for _ in range(2):
        with program.session() as session:
            assert session.control_state == "running"
        assert session.control_state == "completed"


def test_paused_work_waits_until_it_is_resumed(store: Store, program: Program, outside: Any) -> None:
    """A11: pausing is a checkpoint."""

    def person() -> None:
        control = outside()
        wait_until(control, "paused")
        assert control.pause().note == "it is paused already"
        control.resume()

    with program.session() as session:
        program.memory["n"] = 1
        asked = outside().pause()
        assert (asked.fulfilled, asked.alive) == (False, True)
        with beside(person):
            session.boundary()
        assert session.control_state == "running"
    paused = [one for one in store.list_checkpoints("work") if one.type == "paused"]
    assert [(one.control_state, one.state) for one in paused] == [("paused", {"n": 1})]
    found = outside().follow(asked.request.id)
    assert found.status == "fulfilled"


def test_stopped_work_ends_at_its_next_boundary_and_is_retried(store: Store, program: Program, outside: Any) -> None:
    reached = []
    with program.session() as session:
        outside().stop()
        session.boundary()
        reached.append("behind it")
    assert not reached
    assert session.stopped == "stopped"
    assert outside().state == "stopped"
    with pytest.raises(ControlError), program.session():
        pass
    asked = outside().retry()
    assert not asked.alive
    assert "the work is not running" in asked.note
    with program.session() as session:
        assert session.control_state == "running"
    assert outside().follow(asked.request.id).status == "fulfilled"


def test_cancelled_work_is_not_good(program: Program, outside: Any) -> None:
    """C2."""
    with program.session() as session:
        good = session.save()
        outside().cancel()
        session.boundary()
    assert program.task.head is not None
    assert program.task.head.type == "cancelled"
    found = program.task.last_good()
    assert found is not None
    assert found.id == good.id


def test_guidance_edits_and_rounds_are_in_the_next_checkpoint_and_come_back(program: Program, outside: Any) -> None:
    """A11."""
    with program.session() as session:
        session.save(artifacts=[{"id": "a", "name": "prompt", "version": 1, "content": "old"}])
        outside().guide("shorter")
        outside().edit("prompt", "new")
        outside().add_rounds(2)
        session.boundary()
        steered = program.task.head
        assert steered is not None
        assert [said.get("text") for said in session.guidance] == ["shorter", None]
        assert (session.artifacts[0]["content"], session.artifacts[0]["version"]) == ("new", 2)
        assert session.rounds == 2
        program.memory["n"] = 5
        session.save(artifacts=[], guidance=[])
        program.task.restore(steered)
        assert (session.rounds, session.artifacts[0]["content"]) == (2, "new")
        assert session.control_state == "running"


def test_a_restore_in_a_session_keeps_the_work_running(program: Program) -> None:
    """A11: without one, the control state of the checkpoint comes back."""
    idle = program.task.save({"n": 0})
    with program.session() as session:
        session.save()
        program.task.restore(idle)
        assert session.control_state == "running"
    program.task.refresh()
    assert program.task.restore(idle).checkpoint.control_state == "idle"


def test_a_question_waits_for_its_answer_which_is_a_decision(program: Program, outside: Any) -> None:
    def person() -> None:
        control = outside()
        wait_until(control, "waiting_for_input")
        question = control.question
        assert (question["text"], question["choices"]) == ("Deploy?", ["yes", "no"])
        with pytest.raises(lastgood.InvalidError):
            control.answer("perhaps")
        control.answer("yes")

    with program.session() as session:
        with beside(person):
            assert session.ask("Deploy?", choices=["yes", "no"]) == "yes"
        assert session.control_state == "running"
        assert [(one["question"], one["answer"]) for one in session.decisions] == [("Deploy?", "yes")]
        with pytest.raises(ControlError):
            outside().answer("no")


def test_an_answer_given_while_nobody_was_there_is_taken(store: Store, program: Program, outside: Any) -> None:
    class Killed(BaseException):
        pass

    class Ended(Clock):
        def wait(self, until: threading.Event, seconds: float) -> bool:
            if threading.current_thread() is threading.main_thread():
                raise Killed
            return super().wait(until, seconds)

    with pytest.raises(Killed), program.session(_clock=Ended()) as session:
        session.ask("Deploy?")
    assert outside().state == "waiting_for_input"
    asked = outside().answer("go")
    assert (asked.fulfilled, asked.alive) == (True, False)
    with Program(store.task("work")).session() as session:
        assert session.ask("Deploy?") == "go"
        session.save()
        assert session.control_state == "running"


def test_a_question_stays_open_while_people_say_other_things(program: Program, outside: Any) -> None:
    def person() -> None:
        control = outside()
        wait_until(control, "waiting_for_input")
        control.guide("think of the others")
        control.pause()
        control.answer("yes")
        control.guide("and of yourself")
        wait_until(control, "paused")
        control.resume()

    with program.session() as session, beside(person):
        assert session.ask("Deploy?") == "yes"
        session.boundary()
        assert [said["text"] for said in session.guidance] == ["think of the others", "and of yourself"]


def test_the_same_question_again_is_asked_again(program: Program, outside: Any) -> None:
    def person() -> None:
        control = outside()
        for answer in ("yes", "no"):
            while control.question is None or control.requests():
                threading.Event().wait(0.01)
            control.answer(answer)

    with program.session() as session, beside(person):
        assert [session.ask("More?"), session.ask("More?")] == ["yes", "no"]


def test_a_restore_is_asked_for_and_reaches_the_programs_memory(program: Program, outside: Any) -> None:
    with program.session() as session:
        program.memory["n"] = 1
        first = session.save()
        program.memory["n"] = 2
        session.save()
        program.memory["n"] = 3
        asked = outside().restore(first)
        assert not asked.fulfilled
        session.boundary()
        assert program.memory == {"n": 1}
        assert session.control_state == "running"
        before = [one for one in program.task.history(all=True) if one.type == "before_restore"]
        assert len(before) == 1
        session.save()
    assert outside().follow(asked.request.id).status == "fulfilled"


@pytest.mark.parametrize("kind", ["pause", "resume", "stop", "cancel", "retry"])
def test_what_cannot_be_done_is_refused_with_its_reason(program: Program, outside: Any, kind: str) -> None:
    """A15."""
    program.task.save({})
    with pytest.raises(ControlError) as caught:
        getattr(outside(), kind)()
    assert str(caught.value).startswith("work that is idle cannot be ")
    assert caught.value.hint


def test_asking_again_with_the_same_id_is_harmless(program: Program, outside: Any) -> None:
    with program.session() as session:
        outside().guide("shorter", id="mine")
        outside().guide("shorter", id="mine")
        session.boundary()
        assert outside().guide("shorter", id="mine").fulfilled
        session.boundary()
        assert len(session.guidance) == 1


def test_before_risky_saves_first(store: Store, program: Program) -> None:
    """E4."""

    @lastgood.before_risky("drop the table")
    def drop() -> str:
        return types(store)[-1]

    with program.session() as session:
        assert drop() == "before_risky"
        with session.before_risky("deploy") as before:
            assert before.message == "deploy"
    with pytest.raises(lastgood.InvalidError):
        drop()


def test_stopped_is_no_exception_that_loops_swallow() -> None:
    assert not issubclass(Stopped, Exception)


def test_files_come_along_to_another_workspace(store: Store, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    with store.task("work", workspace=here).session() as session:
        (here / "notes").write_text("of the first")
        session.save()
    with store.task("work", workspace=there).session(restart=True):
        assert (there / "notes").read_text() == "of the first"
