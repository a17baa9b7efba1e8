"""What a step finds is saved before it begins: nothing that was there can be lost by it (finding 1)."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

import lastgood
from lastgood import Store, Task


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    (place / "my.txt").write_text("mine\n")
    return place


@pytest.fixture
def task(store: Store, folder: Path) -> Task:
    return store.task("agent", workspace=folder)


def _types(store: Store) -> list[str]:
    return [one.type for one in reversed(store.list_checkpoints("agent"))]


def test_a_step_that_ruins_a_file_can_be_taken_back(store: Store, task: Task, folder: Path) -> None:
    """Finding 1: nobody has saved before."""
    with task.step("edit") as step:
        (folder / "my.txt").write_text("ruined\n")
    assert _types(store) == ["before_step", "step"]
    assert step.before is not None
    task.restore(step.before)
    assert (folder / "my.txt").read_text() == "mine\n"


def test_what_was_changed_since_the_last_save_can_be_got_back(store: Store, task: Task, folder: Path) -> None:
    """Finding 1: by hand, between a save and a step. The state and the place of the work stay."""
    task.save({"round": 3}, step_id="plan", iteration=3, iteration_state="open")
    (folder / "my.txt").write_text("changed by hand\n")
    with task.step("edit"):
        (folder / "my.txt").write_text("ruined\n")
    before = store.find_checkpoint("HEAD~1", "agent")
    assert (before.type, before.state, before.step_id) == ("before_step", {"round": 3}, "plan")
    assert (before.iteration, before.iteration_state) == (3, "open")
    assert store.read_file(before.id, "my.txt") == b"changed by hand\n"


def test_files_that_are_saved_are_not_saved_again(store: Store, task: Task, folder: Path) -> None:
    """Finding 1: whenever they differ, and only then."""
    task.save({})
    for _ in range(2):
        with task.step("edit") as step:
            (folder / "my.txt").write_text("changed by the step\n")
        assert step.before is None
    assert _types(store) == ["manual", "step", "step"]


def test_a_step_without_a_workspace_saves_nothing_before_it(store: Store) -> None:
    with store.task("agent").step("edit"):
        pass
    assert _types(store) == ["step"]


def test_a_step_on_a_head_that_others_have_moved_still_begins(store: Store, task: Task, folder: Path) -> None:
    """Finding 1: one that leaves the state alone conflicts with nobody."""
    task.save({"n": 1})
    store.task("agent", workspace=folder).save({"n": 2})
    (folder / "my.txt").write_text("changed by hand\n")
    with task.step("edit"):
        pass
    assert _types(store) == ["manual", "manual", "before_step", "step"]
    assert task.state == {"n": 2}


def test_a_failed_step_that_restores_puts_back_what_it_found(task: Task, folder: Path) -> None:
    """Finding 1: and not an older save."""
    task.save({})
    (folder / "my.txt").write_text("changed by hand\n")
    with contextlib.suppress(RuntimeError), task.step("edit", on_error="restore"):
        (folder / "my.txt").write_text("ruined\n")
        raise RuntimeError
    assert (folder / "my.txt").read_text() == "changed by hand\n"


def test_a_step_in_a_session_is_preceded_by_what_it_found(store: Store, task: Task, folder: Path) -> None:
    """Finding 1: the program has changed files since its last boundary."""
    with task.session() as session:
        session.boundary()
        (folder / "my.txt").write_text("changed by the program\n")
        with task.step("edit") as step:
            (folder / "my.txt").write_text("ruined\n")
    assert step.before is not None
    assert store.read_file(step.before.id, "my.txt") == b"changed by the program\n"
    assert step.before.control_state == "running"


def test_a_step_whose_files_cannot_be_saved_does_not_begin(store: Store, tmp_path: Path) -> None:
    """Finding 1: nothing is done to files that could not be got back."""
    place = tmp_path / "gone"
    place.mkdir()
    task = store.task("agent", workspace=place)
    place.rmdir()
    with pytest.raises(lastgood.CheckpointError), task.step("edit"):
        pytest.fail("it has begun")
    assert store.open_steps("agent") == []
