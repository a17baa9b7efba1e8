"""Undo, redo and switch with a workspace: what is refused touches nothing, and the work goes on where it went to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.crash import run_until_crash
from tests.support.file_trees import Bench, bench, files, replace

import lastgood
from lastgood.engine import restore_files as rewind
from lastgood.errors import ConflictError, UnavailableError
from lastgood.files.apply import apply


@pytest.fixture
def place() -> Iterator[Bench]:
    with bench() as made:
        yield made


def sequences(place: Bench) -> list[int | None]:
    return [checkpoint.sequence for checkpoint in place.store.list_checkpoints("t")]


def test_switching_to_the_branch_one_is_on_leaves_the_files(place: Bench) -> None:
    replace(place.root, files(a="saved"))
    task = place.task()
    task.save({"n": 1})
    replace(place.root, files(a="edited"))
    task.switch("main")
    assert (place.root / "a").read_text() == "edited"


def refuse_undo(task: lastgood.Task) -> None:
    task.undo()


def refuse_redo(task: lastgood.Task) -> None:
    task.redo()


def refuse_switch(task: lastgood.Task) -> None:
    task.switch("aside")


@pytest.mark.parametrize("go", [refuse_undo, refuse_redo, refuse_switch])
@pytest.mark.parametrize("is_stale", [False, True])
def test_what_is_refused_saves_nothing_and_touches_no_file(place: Bench, go: Any, is_stale: bool) -> None:
    """Promise 8: failure is loud, and it leaves everything as it was."""
    replace(place.root, files(a="first"))
    task = place.task()
    first = task.save({"n": 1})
    replace(place.root, files(a="second"))
    task.save({"n": 2})
    aside = task.fork(first, name="aside")
    assert aside.head is not None
    if not is_stale:
        place.store.delete_checkpoint(aside.head.id)
        task.restore(first)
        task.undo()
        task.save({"n": 3})  # nothing to redo any more, and nothing to undo
    replace(place.root, files(a="edited"))
    if is_stale:
        place.store.task("t").append({"n": 4})
    before = sequences(place)
    with pytest.raises(ConflictError):
        go(task)
    assert (place.root / "a").read_text() == "edited"
    assert sequences(place) == before


def test_work_goes_on_where_undo_went_to_also_where_no_files_were_saved(place: Bench) -> None:
    first = place.store.task("t").save({"n": 1})
    replace(place.root, files(a="present"))
    task = place.task()
    task.restore(first)
    task.undo()
    saved = task.save({"n": 2})
    assert place.store.read_file(saved.id, "a") == b"present"
    assert saved.branch_id == first.branch_id


def test_files_restored_on_a_side_branch_are_no_move_of_the_task(place: Bench) -> None:
    """Undo takes back what the task did, and does not lead it to a branch that it was never on."""
    replace(place.root, files(a="first"))
    task = place.task()
    first = task.save({"n": 1})
    aside = task.fork(first, name="aside")
    side = place.store.task(aside.id, workspace=place.root)
    side.restore(first, what="files")
    assert place.store.task("t").branch_id == first.branch_id
    with pytest.raises(ConflictError):
        place.store.task("t").undo()


def test_a_restore_that_was_to_take_a_folder_over_is_taken_back(place: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 3. The folder was another branch's, whose files are the same."""
    replace(place.root, files(a="first"))
    task = place.task()
    first = task.save({"n": 1})
    replace(place.root, files(a="second", b="new"))
    second = task.save({"n": 2})
    place.store.task("t").restore(second, what="state")  # without the files: the folder stays main's
    put_back = apply

    def put_back_and_fail(*args: Any, **more: Any) -> Any:
        monkeypatch.setattr(rewind, "apply", put_back)
        put_back(*args, **more)
        raise UnavailableError("the disk is away")

    monkeypatch.setattr(rewind, "apply", put_back_and_fail)
    with pytest.raises(UnavailableError):
        place.task().restore(first)
    assert (place.root / "a").read_text() == "second"
    assert (place.root / "b").read_text() == "new"
    assert place.store.recovery("t").restores == ()


def test_what_was_edited_after_a_crash_is_not_overwritten_by_finishing_an_undo(place: Bench) -> None:
    """Promise 3. The process ends when the task has moved, and nothing else was done since."""
    replace(place.root, files(a="first"))
    task = place.task()
    first = task.save({"n": 1})
    replace(place.root, files(a="second"))
    task.save({"n": 2})
    task.restore(first)
    run_until_crash(
        "store = lastgood.open(sys.argv[1], user='tester')\n"
        "catalog = store._engine.catalog\n"
        "move = catalog.move\n"
        "catalog.move = lambda *about, **how: (move(*about, **how), os._exit(9))\n"
        "store.task('t', workspace=sys.argv[2]).undo()\n",
        place.root.parent / "store",
        place.root,
    )
    replace(place.root, files(a="edited"))
    task = place.task()
    assert (place.root / "a").read_text() == "edited"
    assert place.store.recovery("t").restores == ()
    assert task.save({"n": 3}).branch_id == first.branch_id


@pytest.mark.parametrize("deed", ["undo", "restore", "switch"])
def test_a_move_that_a_session_refuses_touches_no_file(tmp_path: Path, deed: str) -> None:
    """A session works on the branch that is left, or on the one that would be entered: its files are its own."""
    work = tmp_path / "work"
    work.mkdir()
    with lastgood.open(tmp_path / "store", user="ada") as store:
        task = store.task("t", workspace=work)
        for text in ("one", "two"):
            (work / "a.txt").write_text(text)
            task.save({"text": text})
        first = task.find("@1")
        task.restore(first)
        side = task.fork(task.find("@2"), name="side")
        moves: dict[str, Callable[[], object]] = {
            "undo": task.undo,
            "restore": lambda: task.restore("@2"),
            "switch": lambda: task.switch("side"),
        }
        with store.task("t").session(signals=False):
            task.refresh()
            with pytest.raises(lastgood.LeaseError):
                moves[deed]()
        assert (work / "a.txt").read_text() == "one"
        assert not store._engine.catalog.journals()
        task.refresh()
        with side.session(signals=False), pytest.raises(lastgood.LeaseError):
            task.switch("side")
        assert (work / "a.txt").read_text() == "one"
        task.refresh()
        moves[deed]()
        assert (work / "a.txt").read_text() == "two"
