"""What a checkpoint left out, and a restore can therefore not bring back."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood import ForbiddenError, InvalidError, Store, Task


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with lastgood.open(tmp_path / "store", user="ada") as store:
        yield store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    for path in ("vendor/lib/.git", "build", "conf"):
        (folder / path).mkdir(parents=True)
    for path in ("a.txt", ".env", "conf/server.key", "build/out", "vendor/lib/code.py", "vendor/lib/.git/HEAD"):
        (folder / path).write_text(path)
    (folder / ".gitignore").write_text("build/\n")
    return folder


@pytest.fixture(params=[False, True], ids=["scanned", "watched"])
def task(request: pytest.FixtureRequest, store: Store, folder: Path) -> Task:
    return store.task("t", workspace=folder, watch=request.param)


def ruin(folder: Path) -> None:
    (folder / ".env").unlink()
    for name in ("conf", "build", "vendor/lib/.git"):
        shutil.rmtree(folder / name)


GONE = (
    (".env", "secret"),
    ("conf/server.key", "secret"),
    ("vendor/lib/.git", "repository"),
    ("build", "ignored"),
)


def test_a_restore_lists_what_was_left_out_and_is_gone(task: Task, folder: Path) -> None:
    saved = task.save({})
    ruin(folder)
    assert task.plan(saved).missing() == GONE
    assert task.restore(saved).missing == GONE
    assert task.restore(saved, "files").missing == GONE
    assert task.restore(saved, "files", paths=["conf"]).missing == (("conf/server.key", "secret"),)


def test_what_is_still_there_is_not_listed(task: Task, folder: Path) -> None:
    saved = task.save({})
    (folder / "a.txt").write_text("changed")
    assert task.restore(saved).missing == ()
    (folder / ".lastgoodignore").write_text("!.env\n")  # it is captured now
    task.save({})
    assert task.restore(saved).missing == ()
    assert (folder / ".env").exists()


def test_the_folder_of_a_repository_is_neither_captured_nor_touched(store: Store, task: Task, folder: Path) -> None:
    first = task.save({})
    assert [(info.path, info.why) for info in store.list_files(first.id, "vendor/lib") if info.why] == [
        ("vendor/lib/.git", "repository")
    ]
    shutil.rmtree(folder / "vendor/lib/.git")
    second = task.save({})
    assert [info.path for info in store.list_files(second.id, "vendor/lib")] == ["vendor/lib/code.py"]
    (folder / "vendor/lib/.git").mkdir()
    (folder / "vendor/lib/.git/HEAD").write_text("other")
    (folder / "vendor/lib/code.py").unlink()
    assert task.restore(second).missing == ()
    assert (folder / "vendor/lib/.git/HEAD").read_text() == "other"


@pytest.mark.parametrize("place", ["runs/agent-store", "runs/work.sqlite", "work.db"])
def test_another_store_in_the_folder_is_neither_captured_nor_touched(task: Task, folder: Path, place: str) -> None:
    """A restore put its catalog back without what lay beside it, and it could not be opened any more."""
    before = task.save({})
    (folder / "a.txt").write_text("other")
    with lastgood.open(folder / place, user="ada") as other:
        other.task("theirs").save({"large": "x" * 100_000})
        saved = task.save({})
        other.task("theirs").save({"round": 2})
    for chosen in (saved, before):
        task.restore(chosen)
        with lastgood.open(folder / place, user="ada") as other:
            assert other.task("theirs").state == {"round": 2}
            assert other.check(read_data=True).ok


def test_what_was_captured_of_a_store_is_not_put_over_it(task: Task, folder: Path) -> None:
    """As checkpoints hold it that are older than this rule."""
    place = folder / "agent-store"
    with lastgood.open(place, user="ada") as other:
        other.task("theirs").save({"round": 1})
    lock = place / "catalog.sqlite-lock"
    lock.rename(folder.parent / "lock")  # so it looks like any database
    saved = task.save({})
    (folder.parent / "lock").rename(lock)
    with lastgood.open(place, user="ada") as other:
        other.task("theirs").save({"round": 2})
    assert task.restore(saved).failed == ()
    with lastgood.open(place, user="ada") as other:
        assert other.task("theirs").state == {"round": 2}


def test_a_database_of_another_program_is_a_file(task: Task, folder: Path) -> None:
    with closing(sqlite3.connect(folder / "catalog.sqlite")) as database:
        database.execute("CREATE TABLE t (a)")
    saved = task.save({})
    (folder / "catalog.sqlite").unlink()
    task.restore(saved)
    assert (folder / "catalog.sqlite").exists()


def test_undoing_warns_of_it_too(tmp_path: Path, folder: Path) -> None:
    alerts: list[Any] = []
    with lastgood.open(tmp_path / "store", user="ada", on_alert=alerts.append) as store:
        task = store.task("t", workspace=folder)
        first = task.save({})
        task.save({"n": 2})
        task.restore(first)
        assert alerts == []
        ruin(folder)
        task.undo()
        assert [alert.code for alert in alerts] == ["left_out_missing"]
        assert ".env" in alerts[0].message


def test_a_private_store_can_capture_secrets(tmp_path: Path, folder: Path) -> None:
    with lastgood.open(tmp_path / "store", secret_files="leave") as store:  # the default
        assert len(store.task("t", workspace=folder).save({}).skipped) == 2
    with lastgood.open(tmp_path / "store", secret_files="capture") as store:
        task = store.task("t", workspace=folder)
        saved = task.save({})
        assert saved.skipped == ()
        ruin(folder)
        assert [one.path for one in task.restore(saved).missing] == ["vendor/lib/.git", "build"]
        assert (folder / ".env").read_text() == ".env"
        (folder / ".lastgoodignore").write_text(".env")
        assert [info.why for info in store.list_files(task.save({}).id) if info.path == ".env"] == ["ignored"]


def test_a_store_that_others_can_read_is_not_given_secrets(tmp_path: Path, folder: Path) -> None:
    lastgood.open(tmp_path / "store").close()
    (tmp_path / "store").chmod(0o750)
    lastgood.open(tmp_path / "store", secret_files="capture").close()  # its files are private
    (tmp_path / "store/catalog.sqlite").chmod(0o640)
    with pytest.raises(ForbiddenError, match="others can read") as error:
        lastgood.open(tmp_path / "store", secret_files="capture")
    assert str(tmp_path / "store") in str(error.value.hint)
    (tmp_path / "store").chmod(0o700)
    lastgood.open(tmp_path / "store", secret_files="capture").close()
    with pytest.raises(InvalidError, match="secret_files"):
        lastgood.open(tmp_path / "store", secret_files="yes")  # type: ignore[arg-type]
