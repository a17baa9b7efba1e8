"""Questions that work asks people: each is open until it is answered, and each answer is heard once (A11, E3)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.programs import KilledError, Meanwhile, Program, die

import lastgood
from lastgood import ControlError, Store


def test_guidance_that_comes_first_does_not_close_the_question(program: Program, person: lastgood.Control) -> None:
    clock = Meanwhile(lambda: person.guide("think of the weekend"), lambda: person.answer("no"))
    with program.session(_clock=clock) as session:
        assert session.ask("Deploy?", choices=["yes", "no"]) == "no"
        assert [said["text"] for said in session.guidance] == ["think of the weekend"]


def test_what_is_saved_while_the_work_waits_does_not_close_the_question(store: Store, tmp_path: Path) -> None:
    """A6: the files change, and are saved when nothing has happened for long."""
    (folder := tmp_path / "files").mkdir()
    task = store.task("work", workspace=folder)
    person = store.task("work")

    def edit() -> None:
        (folder / "notes").write_text("by hand")
        session.save(type="idle")

    def answer() -> None:
        assert person.control.question == {**asked, "text": "Deploy?", "choices": []}
        person.control.answer("go")

    asked: dict[str, object] = {}
    clock = Meanwhile(edit, lambda: asked.update(person.control.question or {}), answer)
    with task.session(_clock=clock) as session:
        assert session.ask("Deploy?") == "go"
    assert clock.is_over()


def test_what_is_wanted_after_an_answer_waits_for_the_next_boundary(program: Program, person: lastgood.Control) -> None:
    def decide() -> None:
        person.answer("go")
        person.guide("carefully")
        person.pause()

    clock = Meanwhile(decide, lambda: person.resume())
    with program.session(_clock=clock) as session:
        assert session.ask("Deploy?") == "go"
        assert (session.control_state, session.guidance) == ("running", [])
        session.boundary()
        assert [said["text"] for said in session.guidance] == ["carefully"]
    assert clock.is_over()


def test_the_same_question_is_asked_each_time(program: Program, person: lastgood.Control) -> None:
    """An answer is heard once; the next round is another matter."""
    clock = Meanwhile(lambda: person.answer("no"), lambda: person.answer("yes"))
    with program.session(_clock=clock) as session:
        assert session.ask("Deploy?") == "no"
        session.boundary()
        assert session.ask("Deploy?") == "yes"
        assert [one["answer"] for one in session.decisions] == ["no", "yes"]


def test_an_answer_given_while_nobody_was_there_is_heard_whatever_else_was_said(
    store: Store, program: Program, person: lastgood.Control
) -> None:
    with pytest.raises(KilledError), program.session(_clock=Meanwhile(die)) as session:
        session.ask("Deploy?")
    person.guide("before")
    person.answer("go")
    person.guide("after")
    person.pause()
    person.resume()
    clock = Meanwhile(lambda: person.answer("stay"))
    with Program(store.task("work")).session(_clock=clock) as session:
        session.boundary()
        assert session.ask("Deploy?") == "go"
        assert session.ask("Deploy?") == "stay"


def test_an_answer_to_other_choices_is_none(store: Store, program: Program, person: lastgood.Control) -> None:
    with pytest.raises(KilledError), program.session(_clock=Meanwhile(die)) as session:
        session.ask("Where?", choices=["here", "there"], key="where")
    person.answer("there")
    clock = Meanwhile(lambda: person.answer("elsewhere"))
    with Program(store.task("work")).session(_clock=clock) as session:
        assert session.ask("Where?", choices=["here", "elsewhere"], key="where") == "elsewhere"


def test_a_question_comes_along_to_a_fork(store: Store, program: Program, person: lastgood.Control) -> None:
    """A11."""
    with pytest.raises(KilledError), program.session(_clock=Meanwhile(die)) as session:
        session.ask("Deploy?")
    fork = store.task("work").fork()
    assert fork.control.question is not None
    assert fork.control.answer("only here").fulfilled
    assert fork.control.state == "running"
    assert person.state == "waiting_for_input"


def test_work_that_goes_on_without_an_answer_asks_no_more(
    store: Store, program: Program, person: lastgood.Control
) -> None:
    with pytest.raises(KilledError), program.session(_clock=Meanwhile(die)) as session:
        session.ask("Deploy?")
    with Program(store.task("work")).session() as session:
        session.boundary()
        assert person.question is None
        with pytest.raises(ControlError):
            person.answer("late")


def test_to_resume_work_that_waits_for_an_answer_takes_back_the_pause(
    store: Store, program: Program, person: lastgood.Control
) -> None:
    """What is wanted last is what is done."""

    def decide() -> None:
        person.pause()
        person.resume()

    clock = Meanwhile(decide, lambda: person.answer("go"))
    with program.session(_clock=clock) as session:
        assert session.ask("Deploy?") == "go"
        session.boundary()
        assert session.control_state == "running"
    assert person.requests() == []


def test_work_that_is_led_back_to_an_answer_asks_again(
    store: Store, program: Program, person: lastgood.Control
) -> None:
    """What is done on the new branch is decided there."""
    with pytest.raises(KilledError), program.session(_clock=Meanwhile(die)) as session:
        session.ask("Deploy?")
    person.answer("go")
    store.task("work").restore("HEAD")
    clock = Meanwhile(lambda: store.task("work").control.answer("stay"))
    with Program(store.task("work")).session(_clock=clock) as session:
        assert session.ask("Deploy?") == "stay"


def test_an_answer_is_heard_also_when_files_were_put_back_since(store: Store, tmp_path: Path) -> None:
    """The answer was given while nobody was there; whoever goes on has another folder."""
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        (folder / "file").write_text("content")
    person = store.task("work")
    with (
        pytest.raises(KilledError),
        store.task("work", workspace=one).session(_clock=Meanwhile(die)) as session,
    ):
        session.ask("Deploy?")
    person.control.answer("go")
    (two / "file").write_text("other content")
    with store.task("work", workspace=two).session(_clock=Meanwhile()) as session:
        assert "restored" in [one.type for one in store.list_checkpoints("work", 3)]
        assert session.ask("Deploy?") == "go"
