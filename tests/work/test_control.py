"""Asking something of work that runs, that nobody runs, or that someone just began to run (A15, C6)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.programs import KilledError, Meanwhile, Program, another_host, die

import lastgood
from lastgood import ConflictError, ControlError, NotFoundError, Store
from lastgood.engine.handle import Handle
from lastgood.engine.restore import restore
from lastgood.work.inbox import stand_in


@pytest.fixture
def asking(program: Program, person: lastgood.Control) -> lastgood.Control:
    with pytest.raises(KilledError), program.session(_clock=Meanwhile(die)) as session:
        session.ask("Deploy?", choices=["yes", "no"])
    return person


def kinds(person: lastgood.Control) -> list[str]:
    return [request.kind for request in person.requests()]


def test_pausing_work_that_waits_and_that_nobody_runs_waits_for_the_answer(
    store: Store, asking: lastgood.Control
) -> None:
    asked = asking.pause()
    assert (asked.fulfilled, asked.alive) == (False, False)
    assert "the work is not running" in asked.note
    asking.answer("yes")
    assert kinds(asking) == ["pause"]
    clock = Meanwhile(lambda: asking.resume())
    with Program(store.task("work")).session(_clock=clock) as session:
        assert session.ask("Deploy?", choices=["yes", "no"]) == "yes"
        session.boundary()
    assert clock.is_over()


def test_an_answer_given_again_with_its_id_is_harmless(asking: lastgood.Control) -> None:
    first = asking.answer("yes", id="mine")
    assert asking.answer("yes", id="mine") == first
    assert first.fulfilled
    with pytest.raises(ControlError):
        asking.answer("no", id="mine")


def test_an_edit_asked_again_with_its_id_is_harmless(store: Store, person: lastgood.Control) -> None:
    task = store.task("work")
    task.save(task.state, artifacts=[{"name": "prompt", "content": "old"}])
    first = person.edit("prompt", "new", id="mine")
    task.refresh()
    task.save(task.state, artifacts=[])
    assert person.edit("prompt", "new", id="mine") == first
    with pytest.raises(NotFoundError):
        person.edit("prompt", "newer", id="other")


def test_a_restore_asked_again_with_its_id_is_done_once(store: Store, person: lastgood.Control) -> None:
    good = store.task("work").head
    assert good is not None
    first = store.task("work").control.restore(good, id="mine")
    assert first.fulfilled
    assert store.task("work").control.restore(good, id="mine") == first
    assert len(store.branches("work")) == 2
    assert first.note == f"it is done, on the branch {store.task('work').branch_id}"
    with pytest.raises(ConflictError):
        person.pause(id="mine")


def test_a_restore_that_is_refused_says_so_and_stays_so(store: Store, person: lastgood.Control) -> None:
    task = store.task("work")
    good = task.save(task.state)
    task.save(task.state)
    store.delete_checkpoint(good.id)
    with pytest.raises(ConflictError):
        task.control.restore(good, id="mine")
    found = person.follow("mine")
    assert found is not None
    assert found.status == "refused"
    assert kinds(person) == []


def test_what_is_wanted_last_is_what_is_done(program: Program, person: lastgood.Control) -> None:
    """Somebody pauses the work, thinks again before it has come to a boundary, and wants it to go on."""
    with program.session(_clock=Meanwhile()) as session:
        person.pause()
        asked = person.resume()
        assert not asked.fulfilled
        session.boundary()
        assert session.control_state == "running"
        assert person.resume().note == "it is running already"
        person.stop()
        assert person.stop().note == "it is done when the work comes to its next boundary"
        person.retry()
        session.boundary()
    assert kinds(person) == ["retry"]
    with program.session() as session:
        assert session.control_state == "running"


def test_more_rounds_do_not_set_stopped_work_going(program: Program, person: lastgood.Control) -> None:
    """A15: stopped work is retried; rounds are for what runs, or is completed."""
    with program.session() as session:
        person.stop()
        person.add_rounds(3)
        session.boundary()
    assert kinds(person) == ["rounds"]
    with pytest.raises(ControlError), program.session():
        pass
    person.retry()
    with program.session() as session:
        session.boundary()
        assert session.rounds == 3


def test_a_session_that_was_silent_for_long_is_asked_and_not_replaced(
    program: Program, person: lastgood.Control, tmp_path: Path
) -> None:
    """Its process is there. Telling it something must not take the branch from it."""
    with another_host(tmp_path / "store") as far, program.session() as session:
        control = far.task("work").control
        assert control.restore(program.task.head or "").alive
        assert control.guide("hello").alive
        session.boundary()
        assert [said["text"] for said in session.guidance] == ["hello"]


def test_a_session_that_begins_just_now_does_what_was_asked(
    program: Program, person: lastgood.Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = program.session()

    def begin_first(handle: Handle, request: lastgood.types.Request) -> None:
        session.__enter__()
        stand_in(handle, request)

    monkeypatch.setattr("lastgood.work.control.stand_in", begin_first)
    asked = person.guide("hello")
    assert (asked.fulfilled, asked.alive) == (False, True)
    with session_ends(session):
        session.boundary()
        assert [said["text"] for said in session.guidance] == ["hello"]


class session_ends:  # noqa: N801
    """What was entered before is left."""

    def __init__(self, session: lastgood.Session) -> None:
        self._session = session

    def __enter__(self) -> None: ...

    def __exit__(self, *how: Any) -> bool:
        return self._session.__exit__(*how)


def test_many_stand_in_at_once(store: Store, person: lastgood.Control) -> None:
    """Nobody runs the work: what each of them says is there at once."""
    begin = threading.Barrier(6)

    def say(number: int) -> None:
        control = store.task("work").control
        begin.wait(30)
        said.append(control.guide(f"{number}"))

    said: list[lastgood.types.RequestResult] = []
    threads = [threading.Thread(target=say, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [asked.fulfilled for asked in said] == [True] * 6
    head = store.task("work").head
    assert head is not None
    assert sorted(one["text"] for one in head.guidance) == [f"{number}" for number in range(6)]


def test_a_stand_in_leaves_work_alone_that_is_begun_while_it_looks(
    program: Program, person: lastgood.Control, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """C6: on a restore, too."""
    good = program.task.head
    assert good is not None

    def begin_first(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        session.__enter__()
        return restore(*args, **kwargs)

    monkeypatch.setattr("lastgood.work.control.restore", begin_first)
    session = program.session()
    asked = person.restore(good)
    assert (asked.fulfilled, asked.alive) == (False, True)
    with session_ends(session):
        session.boundary()
        assert kinds(person) == []
