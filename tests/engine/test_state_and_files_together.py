"""State and files stay together: handles without a workspace neither drop files nor leave them behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lastgood
from lastgood import CheckpointManager, EvidencePack, InvalidError, Store, Task


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with lastgood.open(tmp_path / "store", user="ada") as store:
        yield store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "a.txt").write_text("one")
    return folder


@pytest.fixture
def task(store: Store, folder: Path) -> Task:
    """A task with two checkpoints, of which the first has `one` in a.txt and the second `two`."""
    task = store.task("t", workspace=folder)
    task.save({"n": 1})
    (folder / "a.txt").write_text("two")
    task.save({"n": 2})
    return task


# --- saving ------------------------------------------------------------------------------------------------


def test_a_save_without_a_workspace_keeps_the_files_of_the_head(store: Store, task: Task) -> None:
    other = store.task("t")
    for saved in (other.save({"n": 3}), other.append({"n": 4}), store.task("t").save({"n": 4}, key="k")):
        assert store.read_file(saved.id, "a.txt") == b"two"
    other.refresh()
    with other.step("s") as step:
        step.state = {"n": 5}
    assert step.checkpoint is not None
    assert store.read_file(step.checkpoint.id, "a.txt") == b"two"
    with store.task("t").session() as session:
        saved = session.save()
    assert store.read_file(saved.id, "a.txt") == b"two"


def test_a_fork_keeps_its_files(store: Store, task: Task) -> None:
    made = task.fork("@1")
    saved = made.save({"n": 3})
    assert store.read_file(saved.id, "a.txt") == b"one"


def test_a_fork_is_worked_on_in_a_folder_of_its_own(store: Store, task: Task, folder: Path, tmp_path: Path) -> None:
    """As its docstring says."""
    (tmp_path / "other").mkdir()
    mine = store.task(task.fork("@1").id, workspace=tmp_path / "other")
    mine.restore("HEAD", "files")
    assert (tmp_path / "other/a.txt").read_text() == "one"
    (tmp_path / "other/a.txt").write_text("three")
    assert store.read_file(mine.save({"n": 3}).id, "a.txt") == b"three"
    assert (folder / "a.txt").read_text() == "two"
    task.save({"n": 4})


def test_the_present_that_a_restore_of_the_state_saves_keeps_the_files(store: Store, task: Task) -> None:
    for handle in (task, store.task("t")):
        handle.refresh()
        before = handle.restore("@1", "state", present={"n": 9}).before
        assert before is not None
        assert store.read_file(before.id, "a.txt") == b"two"
        handle.undo()


def test_a_step_of_a_manager_keeps_the_files(store: Store, task: Task, tmp_path: Path) -> None:
    with CheckpointManager(tmp_path / "store/catalog.sqlite", user="ada") as manager:
        saved = manager.commit_step(manager.begin_step("t", "manual", {"n": 3}), EvidencePack())
    assert store.read_file(saved.id, "a.txt") == b"two"


# --- going back --------------------------------------------------------------------------------------------


def test_a_handle_without_a_workspace_goes_back_with_the_folder_that_has_the_files(
    store: Store, task: Task, folder: Path
) -> None:
    other = store.task("t")
    result = other.restore("@1")
    assert (result.restored, other.state) == (("a.txt",), {"n": 1})
    assert (folder / "a.txt").read_text() == "one"
    (folder / "a.txt").write_text("three")
    assert store.read_file(other.save({"n": 3}).id, "a.txt") == b"three"
    store.task("t").undo()
    assert (folder / "a.txt").read_text() == "two"
    store.task("t").redo()
    assert (folder / "a.txt").read_text() == "three"
    store.task("t").switch("main")
    assert (folder / "a.txt").read_text() == "two"
    assert store.task("t").plan("@1").restored == store.task("t").restore("@1", "files").restored == ("a.txt",)
    store.task("t", workspace=folder).save({"n": 4})  # and nobody conflicts


def test_one_named_folder_is_known_by_its_name(store: Store, folder: Path) -> None:
    task = store.task("t", workspace={"app": folder})
    saved = task.save({})
    (folder / "a.txt").write_text("two")
    assert store.task("t").restore(saved).restored == ("app:a.txt",)


def test_another_folder_in_its_place_is_not_taken(store: Store, task: Task, folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.mkdir()
    (folder / "a.txt").write_text("somebody else's")
    other = store.task("t")
    for go in (lambda: other.restore("@1"), lambda: other.restore("@1", "files"), lambda: other.switch("main")):
        with pytest.raises(InvalidError, match=f"the files of this branch lie in {folder}") as error:
            go()
        assert "store.task(…, workspace=folder)" in str(error.value.hint)
    assert (folder / "a.txt").read_text() == "somebody else's"
    assert other.head is not None
    assert other.head.sequence == 2, "nothing was done"
    assert other.restore("@1", "state").state == {"n": 1}


def test_several_folders_are_not_guessed(store: Store, tmp_path: Path) -> None:
    folders = {"app": tmp_path / "app", "infra": tmp_path / "infra"}
    for one in folders.values():
        one.mkdir()
    saved = store.task("t", workspace=folders).save({})
    with pytest.raises(InvalidError, match="and 1 more"):
        store.task("t").restore(saved)


def test_files_are_left_alone_if_that_is_said(store: Store, task: Task, folder: Path) -> None:
    other = store.task("t", workspace=False)
    assert other.restore("@1").restored == ()
    other.undo()
    other.switch("main")
    with pytest.raises(InvalidError, match="there is no workspace"):
        other.restore("@1", "files")
    assert (folder / "a.txt").read_text() == "two"


def test_a_branch_whose_files_lie_nowhere_goes_back_as_it_is_recorded(store: Store, task: Task, folder: Path) -> None:
    made = task.fork("@1")
    first = made.head
    made.save({"n": 3})
    assert first is not None
    result = made.restore(first)
    assert store.read_file(result.new_checkpoint_id, "a.txt") == b"one"
    assert (folder / "a.txt").read_text() == "two"


def test_a_store_that_a_configuration_names_does_not_lead_out_of_its_folder(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cloned with a project, it could name any folder."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "lastgood.toml").write_text('store = "s"\n')
    monkeypatch.chdir(project)
    monkeypatch.delenv("LASTGOOD_STORE", raising=False)
    with lastgood.open(user="ada") as store:
        saved = store.task("t", workspace=folder).save({})
        (folder / "a.txt").write_text("two")
        with pytest.raises(InvalidError, match="lie in"):
            store.task("t").restore(saved)
        (project / "own").mkdir()
        saved = store.task("u", workspace=project / "own").save({})
        store.task("u").restore(saved)
