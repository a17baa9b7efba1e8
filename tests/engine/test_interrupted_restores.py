"""A restore of files that was killed half-way, and what others do before somebody opens that workspace again (A16)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.crash import run_until_crash

import lastgood

pytestmark = pytest.mark.once


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Iterator[lastgood.Store]:
    with lastgood.open(tmp_path / "store", user="ada", collect="never") as opened:
        yield opened


def save(task: lastgood.Task, work: Path, text: str) -> lastgood.Checkpoint:
    for name in ("a", "b"):
        (work / name).write_text(text)
    return task.save({"is": text})


def restore_and_die(store: lastgood.Store, work: Path, checkpoint: lastgood.Checkpoint, first: str = "") -> None:
    """In another process, which ends as if it was killed when the files are there and nothing is recorded."""
    run_until_crash(
        f"{first}"
        "rewind.FilesRestore._look_again = lambda *_: os._exit(9)\n"
        "store = lastgood.open(sys.argv[1], user='ada', collect='never')\n"
        "store.task('t', workspace=sys.argv[2]).restore(sys.argv[3])\n",
        work.parent / "store",
        work,
        checkpoint.id,
    )
    assert (work / "a").read_text() == "old"


@pytest.mark.parametrize("place", ["work", "mounted elsewhere"])
def test_it_is_found_in_a_container_with_another_name_and_taken_back(
    store: lastgood.Store, work: Path, place: str
) -> None:
    """W2: a journal belongs to the folder; that nobody works on it is told by the folder's lock, not by a host name."""
    task = store.task("t", workspace=work)
    old, before = save(task, work, "old"), save(task, work, "before")
    (work / ".lastgood-0123456789abcdef-1.tmp").touch()
    restore_and_die(store, work, old, "import socket; socket.gethostname = lambda: 'a container that is gone'\n")
    assert store.recovery("t").restores
    elsewhere = work.rename(work.parent / place)
    task = store.task("t", workspace=elsewhere)
    assert {file.name: file.read_text() for file in elsewhere.iterdir()} == {"a": "before", "b": "before"}
    assert store.recovery("t").restores == ()
    assert task._handle.require_workspace().bound("ada", "t") == [before.branch_id]


def test_what_it_is_taken_back_to_cannot_be_purged(store: lastgood.Store, work: Path) -> None:
    task = store.task("t", workspace=work)
    old, before = save(task, work, "old"), save(task, work, "before")
    restore_and_die(store, work, old)
    task.refresh()
    store.task("t").save({"is": "a state, from elsewhere"})
    for needed in (old, before):
        with pytest.raises(lastgood.ConflictError, match="interrupted"):
            store.purge_checkpoint(needed.id)
    store.task("t", workspace=work)
    assert (work / "a").read_text() == "before"
    for needed in (old, before):
        store.purge_checkpoint(needed.id)


def test_a_deleted_task_begins_anew(store: lastgood.Store, work: Path) -> None:
    task = store.task("t", workspace=work)
    old, _ = save(task, work, "old"), save(task, work, "before")
    restore_and_die(store, work, old)
    store.delete_task("t")
    assert store._engine.catalog.journals() == []
    save(store.task("t", workspace=work), work, "new")


@pytest.mark.parametrize("made_anew", [False, True])
def test_one_whose_folder_is_gone_for_good_can_be_abandoned(
    store: lastgood.Store, work: Path, made_anew: bool, tmp_path: Path
) -> None:
    """I4: whether it will come back, as one that is not mounted does, only a person knows."""
    task = store.task("t", workspace=work)
    old, before = save(task, work, "old"), save(task, work, "before")
    restore_and_die(store, work, old)
    assert "gone for good" not in store.recovery("t").advice[0]
    away = work.rename(tmp_path / "away")
    if made_anew:
        work.mkdir()
        store.task("t", workspace=work)
    (journal,) = store.recovery("t").restores
    assert f"if it is gone for good, store.abandon_step({journal.id!r}) ends this" in store.recovery("t").advice[0]
    with pytest.raises(lastgood.ConflictError):
        store.abandon_step(journal.id, owner="eve")
    store.abandon_step(journal.id)
    assert store.recovery("t").restores == ()
    assert (away / "a").read_text() == "old"
    store.purge_checkpoint(old.id)
    store.task("t").save({"is": "a state"})
    store.purge_checkpoint(before.id)


def test_one_that_somebody_works_on_is_not_abandoned(store: lastgood.Store, work: Path) -> None:
    task = store.task("t", workspace=work)
    old, _ = save(task, work, "old"), save(task, work, "before")
    restore_and_die(store, work, old)
    (journal,) = store.recovery("t").restores
    with task._handle.require_workspace().locked(), pytest.raises(lastgood.ConflictError):
        store.abandon_step(journal.id)
    assert [each.id for each in store.recovery("t").restores] == [journal.id]
