"""Restored files on their way to the disk: nobody waits for them, and power loss before that is made good (A16)."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.support.crash import run_until_crash

import lastgood
from lastgood.engine import engine, restore_files
from lastgood.engine.restore_files import FilesRestore
from lastgood.engine.workspace import Workspace, sync_restored
from lastgood.files import folders
from lastgood.files.roots import Root
from lastgood.local import process
from lastgood.model.task import Journal

pytestmark = pytest.mark.once


class Place:
    """A store and a workspace with three files, and what becomes of them when the system stops."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.alerts: list[lastgood.Alert] = []
        self.work = folder / "work"
        self.work.mkdir()
        self.store = self.open()
        self.task = self.store.task("t", workspace=self.work)
        self.old = self.save("old", "a", "b", "c")
        self.new = self.save("new", "a", "b", "d")

    def open(self) -> lastgood.Store:
        return lastgood.open(self.folder / "store", user="ada", collect="never", on_alert=self.alerts.append)

    def save(self, text: str, *names: str) -> lastgood.Checkpoint:
        for file in self.work.iterdir():
            file.unlink()
        for name in names:
            (self.work / name).write_text(text)
        return self.task.save({"is": text})

    def journals(self) -> list[Journal]:
        return self.store._engine.catalog.journals()

    def open_again(self) -> lastgood.Task:
        self.store.close()
        self.store = self.open()
        return self.store.task("t", workspace=self.work)

    def found(self) -> dict[str, str]:
        return {file.name: file.read_text() for file in self.work.iterdir()}


MAKE_DURABLE = Workspace.make_durable


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(Workspace, "make_durable", lambda *_: None)  # the system stops before it has begun
    made = Place(tmp_path)
    yield made
    made.store.close()


def _path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


OLD = dict.fromkeys("abc", "old")


def _restart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "boot").write_text("another start")
    monkeypatch.setattr(process, "BOOT_FILE", tmp_path / "boot")
    process.boot_id.cache_clear()


@pytest.fixture(autouse=True)
def _forget_boot() -> Iterator[None]:
    yield
    process.boot_id.cache_clear()


def test_a_restore_returns_before_its_files_are_durable_and_the_journal_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 1 is about checkpoints; that files are restored is acknowledged while a journal can make it good."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(_path_of(descriptor)))
    result = place.task.restore(place.old)
    assert not [path for path in synced if path.startswith(str(place.work))]
    (journal,) = place.journals()
    assert (journal.made, journal.before) == (result.checkpoint.id, place.new.id)
    assert place.found() == OLD
    sync_restored(place.store._engine, journal, FilesRestore(place.task._handle)._plan_sync(journal))
    assert {Path(path).name for path in synced} >= {"a", "b", "c", "work"}
    assert place.journals() == []


def test_in_the_background_they_are_made_durable_and_the_journal_ends(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workspace, "make_durable", MAKE_DURABLE)
    place.task.restore(place.old)
    for thread in place.task._handle.require_workspace()._syncing:
        thread.join()
    assert place.journals() == []


def test_what_power_loss_took_is_put_there_again(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Half written, as it was before, and gone; what it was is kept."""
    place.task.restore(place.old)
    (place.work / "a").write_text("")
    (place.work / "b").write_text("new")
    (place.work / "c").unlink()
    (place.work / "d").write_text("new")
    _restart(monkeypatch, tmp_path)
    monkeypatch.setattr(restore_files, "_changed_at", lambda root, path: 0)
    task = place.open_again()
    assert place.found() == OLD
    assert place.journals() == []
    assert task.state == {"is": "old"}
    assert place.alerts[-1].code == "restore_interrupted"
    left = next(one for one in place.store.list_checkpoints("t") if one.message.startswith("as the system left it"))
    assert place.store.read_file(left.id, "b") == b"new"
    assert place.store.read_file(left.id, "a") == b""


def test_what_was_changed_after_the_restore_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file that was written later has a later ctime, whatever is lost of the others."""
    place.task.restore(place.old)
    (place.work / "a").write_text("edited after the restore")
    (place.work / "e").write_text("made after the restore")
    _restart(monkeypatch, tmp_path)
    place.open_again()
    assert place.found() == {**OLD, "a": "edited after the restore", "e": "made after the restore"}
    assert place.journals() == []


def test_what_was_removed_or_moved_there_after_the_restore_stays_so(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An orderly stop of the system, hours later: nothing was lost. What is in a moved folder has old stamps."""
    (place.work / "folder").mkdir()
    (place.work / "folder" / "f").write_text("old")
    chosen = place.task.save({"is": "with a folder"})
    (place.work / "folder" / "f").write_text("new")
    (other := tmp_path / "other").mkdir()
    (other / "f").write_text("of another folder")
    (other / ".gitignore").write_text("x")
    place.task.restore(chosen)
    _wait_for_clock(tmp_path)
    (place.work / "a").unlink()
    (place.work / "folder").rename(tmp_path / "away")
    other.rename(place.work / "folder")
    _restart(monkeypatch, tmp_path)
    place.open_again()
    assert sorted(file.name for file in place.work.iterdir()) == ["b", "d", "folder"]
    assert (place.work / "folder" / "f").read_text() == "of another folder"
    assert (place.work / "folder" / ".gitignore").exists()
    assert place.journals() == []


def _wait_for_clock(tmp_path: Path) -> int:
    """Wait until the clock that stamps files has gone past now; return now."""
    now = time.time_ns()
    while not (tmp_path / "probe").exists() or (tmp_path / "probe").stat().st_ctime_ns <= now:
        (tmp_path / "probe").write_text("another stamp")
    return now


def test_after_a_restore_that_was_cut_short_the_head_is_what_lies_there(place: Place) -> None:
    """What lay there in between is kept, and nobody goes on from it."""
    run_until_crash(
        "rewind.FilesRestore._look_again = lambda *_: os._exit(9)\n"
        "store = lastgood.open(sys.argv[1], user='ada', collect='never')\n"
        "store.task('t', workspace=sys.argv[2]).restore(sys.argv[3])\n",
        place.folder / "store",
        place.work,
        place.old.id,
    )
    assert place.found() == OLD
    task = place.open_again()
    assert place.found() == dict.fromkeys("abd", "new")
    assert task.head is not None
    assert [info.path for info in place.store.list_files(task.head.id)] == ["a", "b", "d"]
    assert place.store.read_file(task.head.id, "a") == b"new"
    assert (task.last_good(any=True) or task.head).id != task.head.id, "nobody saved it"
    kept = next(one for one in place.store.list_checkpoints("t") if one.message == "as an interrupted restore left it")
    assert place.store.read_file(kept.id, "a") == b"old"


def test_a_socket_in_the_place_of_a_file_keeps_nothing_else_from_being_restored(place: Place) -> None:
    (place.work / "b").unlink()
    (place.work / "a").write_text("edited")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place.work / "b"))
        result = place.task.restore(place.new)
    assert [path for path, _ in result.failed] == ["b"]
    assert (place.work / "a").read_text() == "new"
    assert place.store.find_checkpoint(result.checkpoint.id).message == "(in part: 1 not put back, the first is b)"


def test_a_folder_that_is_moved_away_is_no_disk_that_fails(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.task.restore(place.old)
    (journal,) = place.journals()
    plans = FilesRestore(place.task._handle)._plan_sync(journal)
    away = place.work.rename(place.folder / "away")
    sync_restored(place.store._engine, journal, plans)
    assert not place.alerts
    assert place.journals() == [journal]
    away.rename(place.work)


def test_closing_the_store_waits_until_they_are_durable(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that ends right after a restore leaves nothing that a later start of the system would have to make
    good."""
    monkeypatch.setattr(Workspace, "make_durable", MAKE_DURABLE)
    place.task.restore(place.old)
    place.store.close()
    place.store = place.open()
    assert place.journals() == []


def test_what_was_saved_after_the_restore_counts(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Found by the campaign `forgetful`: files that had gone since came back."""
    place.task.restore(place.old)
    (place.work / "a").unlink()
    (place.work / "b").write_text("later")
    place.task.save({"is": "later"})
    (place.work / "b").write_text("")
    (place.work / "c").unlink()
    _restart(monkeypatch, tmp_path)
    monkeypatch.setattr(restore_files, "_changed_at", lambda root, path: 0)
    task = place.open_again()
    assert place.found() == {"b": "later", "c": "old"}
    assert task.state == {"is": "later"}


def test_of_several_restores_the_last_one_counts(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place.task.restore(place.old)
    place.task.undo()
    assert len(place.journals()) == 2
    (place.work / "a").write_text("")
    for name in "bc":
        (place.work / name).write_text("old")
    (place.work / "d").unlink()
    _restart(monkeypatch, tmp_path)
    stopped, changed_at = _wait_for_clock(tmp_path), restore_files._changed_at

    def find_change(root: Root, path: bytes) -> int:
        """Return 0 for what lay there when the system stopped."""
        found = changed_at(root, path)
        return found if found > stopped else 0

    monkeypatch.setattr(restore_files, "_changed_at", find_change)
    place.open_again()
    assert place.found() == dict.fromkeys("abd", "new")
    assert place.journals() == []


def test_as_long_as_the_system_runs_nothing_is_put_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was killed takes nothing from the system's memory."""
    place.task.restore(place.old)
    (place.work / "a").unlink()
    task = place.open_again()
    assert len(place.journals()) == 1, "it was restored a moment ago: the system has not written it yet"
    assert task.recovery().restores == ()
    monkeypatch.setattr(engine, "SYNC_MICROSECONDS", 0)
    assert place.store.recovery("t").restores == ()
    place.open_again()
    assert place.journals() == []
    assert place.found() == {"b": "old", "c": "old"}


def test_what_is_taken_back_is_durable_before_its_journal_ends(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    catalog = place.store._engine.catalog
    end_journal = catalog.end_journal

    def end(journal_id: str) -> None:
        assert {Path(path).name for path in synced} >= {"a", "b", "work"}
        end_journal(journal_id)

    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(_path_of(descriptor)))
    monkeypatch.setattr(catalog, "end_journal", end)
    monkeypatch.setattr(FilesRestore, "_look_again", lambda *_: _fail())
    with pytest.raises(RuntimeError):
        place.task.restore(place.old)
    assert place.found() == dict.fromkeys("abd", "new")
    assert place.journals() == []


def _fail() -> None:
    raise RuntimeError("in the middle of a restore")


def test_a_sync_that_failed_is_not_tried_again_and_power_loss_is_made_good_all_the_same(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The system takes what it could not write for written: a second sync would succeed."""
    place.store._engine.sync_apart = partial(sync_restored, place.store._engine)
    monkeypatch.setattr(Workspace, "make_durable", MAKE_DURABLE)

    def fail(descriptor: int) -> None:
        if str(place.work) in _path_of(descriptor):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as failing:
        failing.setattr(os, "fsync", fail)
        place.task.restore(place.old)
    assert [journal.doubted for journal in place.journals()] == [True]
    assert place.alerts[-1].code == "restore_incomplete"
    monkeypatch.setattr(engine, "SYNC_MICROSECONDS", 0)
    place.open_again()
    assert len(place.journals()) == 1
    (place.work / "a").write_text("")
    _restart(monkeypatch, tmp_path)
    monkeypatch.setattr(restore_files, "_changed_at", lambda root, path: 0)
    place.open_again()
    assert place.found() == OLD
    assert place.journals() == []


def test_what_no_capture_finds_again_is_durable_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ignored since, so it is in no checkpoint of what was in place."""
    (place.work / ".lastgoodignore").write_text("a\n")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(_path_of(descriptor)))
    place.task.restore(place.old, "files", paths=["a"])
    assert str(place.work / "a") in synced


def test_what_lay_there_before_can_be_purged_meanwhile(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    result = place.task.restore(place.old)
    assert result.before is not None
    assert place.journals()[0].needs() == ()
    monkeypatch.setattr(engine, "SYNC_MICROSECONDS", 0)
    place.open_again()
    assert place.journals() == []


def test_many_files_and_unreadable_ones_are_synced_with_their_file_system(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: list[int] = []
    monkeypatch.setattr(folders, "_sync_all", whole.append)
    place.store._engine.sync_apart = partial(sync_restored, place.store._engine)
    monkeypatch.setattr(Workspace, "make_durable", MAKE_DURABLE)
    place.task.restore(place.old)
    assert not whole
    monkeypatch.setattr(folders, "MANY", 1)
    place.task.undo()
    assert len(whole) == 1
