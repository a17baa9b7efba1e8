"""Steering in the history: where the work was, what was asked, which checkpoint met it (A11, A17, E9; finding 11)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import lastgood
from lastgood import Control, Store, correlation

PLACE: dict[str, Any] = {"step_id": "draft", "iteration": 7, "iteration_state": "judging", "work_item_id": "item-3"}
PLAN = [{"id": "plan", "name": "plan.md", "version": 1, "content": "short"}]
STEERED: dict[str, Callable[[Control], Any]] = {
    "paused": lambda control: control.pause(),
    "guided": lambda control: control.guide("be brief"),
    "edited": lambda control: control.edit("plan.md", "shorter"),
    "rounds_added": lambda control: control.add_rounds(3),
    "stopped": lambda control: control.stop(),
    "cancelled": lambda control: control.cancel(),
}


def _place(checkpoint: lastgood.Checkpoint) -> dict[str, Any]:
    return {name: getattr(checkpoint, name) for name in PLACE}


@pytest.mark.parametrize("type", STEERED)
@pytest.mark.parametrize("alive", [True, False], ids=["a session", "nobody"])
def test_a_steering_checkpoint_says_where_the_work_is(store: Store, type: str, alive: bool) -> None:
    """E9, finding 11: whoever fulfils the request."""
    task = store.task("work")
    steer = STEERED[type]
    if alive:
        with task.session() as session:
            session.save(artifacts=PLAN, **PLACE)
            steer(store.task("work").control)
            if type == "paused":
                store.task("work").control.resume()
            session.boundary()
    else:
        task.save({}, control_state="running", artifacts=PLAN, **PLACE)
        if type != "rounds_added":  # which waits for a program
            steer(task.control)
    made = [one for one in store.list_checkpoints("work") if one.type not in ("step", "started", "manual")]
    assert made or type == "rounds_added"
    assert {one.type: _place(one) for one in made} == {one.type: PLACE for one in made}


def test_completed_failed_and_answered_work_stays_where_it_was(store: Store) -> None:
    """E9, finding 11: and a question, too."""
    with contextlib.suppress(RuntimeError), store.task("work").session() as session:
        session.save(**PLACE)
        store.task("work").control.guide("x")
        session.boundary()
        raise RuntimeError
    with store.task("work").session(restart=True):
        pass
    made = [one for one in store.list_checkpoints("work") if one.type in ("failed", "completed", "guided")]
    assert sorted(one.type for one in made) == ["completed", "failed", "guided"]
    assert all(_place(one) == PLACE for one in made)


def test_what_a_program_saves_is_its_own(store: Store) -> None:
    """E9: a save that names no step is of none, whatever was saved before."""
    with store.task("work").session() as session:
        session.save(**PLACE)
        assert session.save().step_id == "initial"


def test_history_says_what_was_guided_answered_and_edited(store: Store) -> None:
    """A17, E9, finding 11."""
    task, person = store.task("work"), store.task("work").control
    with task.session() as session:
        session.save(artifacts=PLAN)
        person.guide("be brief")
        person.edit("plan.md", "shorter")
        person.add_rounds(3)
        session.boundary()
        session._saver.save(
            "question",
            control_state="waiting_for_input",
            metadata={"question": _question("Deploy?")},
            message="Deploy?",
        )
        person.answer("yes")
        assert session.ask("Deploy?") == "yes"
    made = {entry.type: entry.message for entry in task.history(kinds=["created"])}
    told = {"guided": "be brief", "edited": "plan.md", "rounds_added": "3 more rounds", "answered": "Deploy? yes"}
    assert {name: made[name] for name in told} == told
    asked = {entry.data["kind"]: entry.data for entry in task.history(kinds=["requested"])}
    assert asked["guide"]["text"] == "be brief"
    assert asked["edit"]["artifact"] == "plan.md"
    assert "content" not in asked["edit"]
    assert asked["answer"]["answer"] == "yes"
    assert asked["rounds"]["rounds"] == 3


def _question(text: str) -> dict[str, Any]:
    from lastgood.work.requests import make_question

    return make_question(text, None, None)


@pytest.mark.parametrize("alive", [True, False], ids=["a session", "nobody"])
def test_history_says_which_checkpoint_met_a_request_under_the_askers_correlation(store: Store, alive: bool) -> None:
    """E9, A7, finding 11."""
    task = store.task("work")
    if alive:
        with correlation("the program"), task.session() as session:
            with correlation("the person"):
                asked = store.task("work").control.guide("be brief", id="wish-1")
            session.boundary()
    else:
        task.save({})
        with correlation("the person"):
            asked = task.control.guide("be brief", id="wish-1")
    assert asked.request is not None
    (met,) = store.history("work", kinds=["request_fulfilled"])
    (made,) = [one for one in store.list_checkpoints("work") if one.type == "guided"]
    assert (met.data["request"], met.data["kind"], met.checkpoint_id) == ("wish-1", "guide", made.id)
    assert met.correlation_id == made.correlation_id == "the person"
    assert [entry.kind for entry in store.history("work", checkpoint_id=made.id)] == ["created", "request_fulfilled"]


@pytest.mark.parametrize("alive", [True, False], ids=["a session", "nobody"])
def test_a_restore_that_was_asked_for_is_met_under_the_askers_correlation(store: Store, alive: bool) -> None:
    """E9, A7, finding 11."""
    task = store.task("work")
    good = task.save({"n": 1})
    if alive:
        with task.session() as session:
            with correlation("the person"):
                store.task("work").control.restore(good, id="wish-1")
            session.boundary()
    else:
        task.save({"n": 2})
        with correlation("the person"):
            task.control.restore(good, id="wish-1")
    (met,) = store.history("work", kinds=["request_fulfilled"])
    (made,) = [one for one in store.list_checkpoints("work") if one.type == "restored"]
    assert (met.data["kind"], met.checkpoint_id, met.correlation_id) == ("restore", made.id, "the person")
    assert made.correlation_id == "the person"


def test_a_request_that_needs_no_checkpoint_is_fulfilled_in_the_history_too(store: Store) -> None:
    """A17, finding 11: its kind was misspelt, so that no filter found it."""
    task = store.task("work")
    with task.session() as session:
        control = store.task("work").control
        control.pause(id="one")
        control.resume(id="two")
        control.pause(id="three")
        control.stop(id="four")
        control.cancel(id="five")
        session.boundary()
    met = {entry.data["request"] for entry in store.history("work", kinds=["request_fulfilled"])}
    assert met == {"one", "two", "three", "four", "five"}
