"""What a session saves by itself, and when: with a clock that goes on only when it is told to (A6, A8, E4)."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.programs import Hands, Program

import lastgood
from lastgood import ConflictError, InvalidError, Store, UnstorableError
from lastgood.types import Alert, Autosave
from lastgood.work.autosave import AutosaveTimer

MINUTE, HOUR = 60.0, 3600.0


@pytest.fixture
def alerts() -> list[Alert]:
    return []


@pytest.fixture
def store(tmp_path: Path, alerts: list[Alert]) -> Iterator[Store]:
    with lastgood.open(tmp_path / "store", user="tester", on_alert=alerts.append) as opened:
        yield opened


@pytest.fixture
def clock() -> Hands:
    return Hands()


def types(program: Program) -> list[str]:
    return [one.type for one in reversed(program.store.list_checkpoints("work"))]


def wait_once(session: lastgood.Session) -> None:
    """As paused work, or work that asks, does again and again."""
    session._wait()


def test_at_a_boundary_work_is_saved_when_its_time_has_come_and_it_has_changed(program: Program, clock: Hands) -> None:
    """E4."""
    with program.session(_clock=clock) as session:
        clock.go_on(5 * MINUTE - 1)
        program.memory["n"] = 1
        session.boundary()
        assert types(program) == ["started"]
        clock.go_on(1)
        session.boundary()
        assert types(program) == ["started", "boundary"]
        clock.go_on(5 * MINUTE)
        session.boundary()
        assert types(program) == ["started", "boundary"]
        clock.go_on(5 * MINUTE - 1)
        program.memory["n"] = 2
        session.boundary()
        assert types(program) == ["started", "boundary"]
        clock.go_on(1)
        session.boundary()
        assert types(program) == ["started", "boundary", "boundary"]


@pytest.mark.parametrize("how", ["save", "risky", "step", "handle"])
def test_whatever_is_saved_otherwise_is_a_save_and_keeps_automatic_ones_at_a_distance(
    program: Program, clock: Hands, how: str
) -> None:
    """E4: steps, risky operations and people's own saves are made whatever the time is."""
    with program.session(_clock=clock) as session:
        for n in range(1, 4):
            clock.go_on(4 * MINUTE)
            program.memory["n"] = n
            if how == "save":
                session.save()
            elif how == "risky":
                session.before_risky("deploy").__enter__()
            elif how == "step":
                with program.task.step("edit") as step:
                    step.state["n"] = n
            else:
                program.task.save(program.memory)
            session.boundary()
            program.memory["n"] = n + 0.5
        assert "boundary" not in types(program)
        assert len(types(program)) == 4
        clock.go_on(5 * MINUTE)
        session.boundary()
        assert types(program)[-1] == "boundary"


def test_files_that_change_are_a_change(store: Store, clock: Hands, tmp_path: Path) -> None:
    (folder := tmp_path / "files").mkdir()
    task = store.task("work", workspace=folder)
    with task.session(_clock=clock) as session:
        for content, count in (("a", 2), ("a", 2), ("b", 3)):
            (folder / "notes").write_text(content)
            clock.go_on(5 * MINUTE)
            session.boundary()
            assert len(store.list_checkpoints("work")) == count


def test_silence_is_counted_from_the_last_thing_that_happened(program: Program, clock: Hands) -> None:
    """A6: pausing, guidance, edits start it anew; then one snapshot, if there is something to save."""
    with program.session(_clock=clock, signals=False) as session:
        person = program.store.task("work").control
        session.save(artifacts=[{"name": "prompt", "content": "old"}])
        person.pause()
        session._fulfil_requests()
        deeds: list[Callable[[], object]] = [lambda: person.guide("shorter"), lambda: person.edit("prompt", "new")]
        for deed in deeds:
            clock.go_on(5 * MINUTE - 1)
            program.memory["n"] += 1
            deed()
            session._fulfil_requests()
            wait_once(session)
        assert "idle" not in types(program)
        program.memory["n"] += 1
        clock.go_on(5 * MINUTE - 1)
        wait_once(session)
        assert "idle" not in types(program)
        clock.go_on(1)
        wait_once(session)
        for _ in range(3):
            clock.go_on(5 * MINUTE)
            wait_once(session)
        assert types(program).count("idle") == 1
        head = program.task.head
        assert head is not None
        assert (head.control_state, head.state) == ("paused", program.memory)
        person.resume()


def test_every_hour_while_it_is_active_unless_there_is_a_younger_one(clock: Hands) -> None:
    """E4: skipped when one is younger than 55 minutes."""
    due = AutosaveTimer(Autosave(distance=10 * HOUR, idle=10 * HOUR), clock)
    clock.go_on(HOUR - 1)
    assert due.at_boundary() is None
    clock.go_on(1)
    assert due.while_waiting(active=False) is None
    assert due.while_waiting(active=True) == "hourly"
    due.reset()
    clock.go_on(6 * MINUTE)
    due.reset()
    clock.go_on(54 * MINUTE)
    assert due.at_boundary() is None
    clock.go_on(HOUR)
    assert due.at_boundary() == "hourly"


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan"), True, "300"])
def test_seconds_are_seconds(program: Program, wrong: Any) -> None:
    for how in ({"lease": wrong}, {"deadline": wrong}):
        with pytest.raises(InvalidError):
            program.session(**how)
    with pytest.raises(InvalidError):
        Autosave(idle=wrong)


def test_an_automatic_save_that_fails_is_an_alert_and_the_work_goes_on(
    store: Store, clock: Hands, tmp_path: Path, alerts: list[Alert]
) -> None:
    """A8."""
    (folder := tmp_path / "files").mkdir()
    memory = {"n": 0}
    with store.task("work", workspace=folder).session(state=lambda: memory, _clock=clock) as session:
        shutil.rmtree(folder)
        memory["n"] = 1
        clock.go_on(5 * MINUTE)
        session.boundary()
        assert [alert.message for alert in alerts] == [
            "a checkpoint of 'work' was not saved: the workspace cannot be read"
        ]
        session.boundary()
        assert len(alerts) == 1
        folder.mkdir()
        clock.go_on(5 * MINUTE)
        session.boundary()
        assert session.task.state == {"n": 1}


def test_what_cannot_be_stored_and_a_moved_head_always_raise(program: Program, clock: Hands, tmp_path: Path) -> None:
    """A8."""
    with program.session(_clock=clock) as session:
        clock.go_on(5 * MINUTE)
        program.memory["socket"] = object()
        with pytest.raises(UnstorableError):
            session.boundary()
        del program.memory["socket"]
        program.memory["n"] = 7
        session._lease.drop(program.task._handle)  # as if it had run out
        program.store.task("work").save({"by": "another"})
        with pytest.raises(ConflictError):
            session.boundary()
        program.task.refresh()


# --- at any moment -----------------------------------------------------------------------------------------


def test_with_anytime_work_without_boundaries_is_saved(program: Program, clock: Hands) -> None:
    with program.session(_clock=clock, anytime=True) as session:
        program.memory["n"] = 1
        session._save_by_itself()
        assert types(program) == ["started"]
        clock.go_on(5 * MINUTE)
        session._save_by_itself()
        assert types(program) == ["started", "boundary"]
        assert program.task.state == {"n": 1}


def test_what_was_read_before_another_save_is_not_saved_on_top_of_it(program: Program, clock: Hands) -> None:
    """The scheduler's thread reads the state, the program changes and saves it: the old one must not be the head."""
    read, saved = threading.Event(), threading.Event()

    def provide() -> Any:
        if threading.current_thread() is threading.main_thread():
            return dict(program.memory)
        state = dict(program.memory)
        read.set()
        assert saved.wait(30)
        return state

    with program.task.session(state=provide, _clock=clock, anytime=True) as session:
        program.memory["n"] = "old"
        clock.go_on(5 * MINUTE)
        thread = threading.Thread(target=session._save_by_itself)
        thread.start()
        assert read.wait(30)
        program.memory["n"] = "new"
        session.save()
        saved.set()
        thread.join()
        assert program.task.state == {"n": "new"}
        assert types(program) == ["started", "step"]


def test_a_state_that_cannot_be_read_just_now_is_an_alert_and_is_read_again(
    program: Program, clock: Hands, alerts: list[Alert]
) -> None:
    def provide() -> Any:
        if program.memory.get("busy"):
            raise RuntimeError("dictionary changed size during iteration")
        return program.memory

    with program.task.session(state=provide, _clock=clock, anytime=True) as session:
        program.memory.update(n=1, busy=True)
        clock.go_on(5 * MINUTE)
        session._save_by_itself()
        assert [alert.message for alert in alerts] == [
            "the work was not saved: dictionary changed size during iteration"
        ]
        del program.memory["busy"]
        clock.go_on(5 * MINUTE)
        session._save_by_itself()
        assert types(program)[-1] == "boundary"
