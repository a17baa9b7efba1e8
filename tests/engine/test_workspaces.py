"""Several folders in one workspace, and lists of files (B1, B5)."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

import lastgood
from lastgood import Store, Task
from lastgood.engine import readers
from lastgood.engine.gather import Batch
from lastgood.files.read import Content, LeftOut, ReadJob
from lastgood.local.paths import signature


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with lastgood.open(tmp_path / "store", user="ada") as store:
        yield store


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    made = {"app": tmp_path / "app", "infra": tmp_path / "infra"}
    for folder in made.values():
        folder.mkdir()
        (folder / "main").write_text(folder.name)
        (folder / "other").write_text("other")
    return made


@pytest.fixture
def task(store: Store, folders: dict[str, Path]) -> Task:
    return store.task("t", workspace=folders)


def test_each_folder_is_captured_under_its_name(store: Store, task: Task) -> None:
    saved = task.save({})
    assert [info.path for info in store.list_files(saved.id)] == ["app", "infra"]
    assert [info.path for info in store.list_files(saved.id, "app:")] == ["app:main", "app:other"]
    assert store.read_file(saved.id, "infra:main") == b"infra"


def test_a_restore_brings_all_folders_back_or_the_paths_that_are_named(task: Task, folders: dict[str, Path]) -> None:
    saved = task.save({})
    for folder in folders.values():
        (folder / "main").write_text("changed")
    result = task.restore(saved, "files", paths=["app:main"])
    assert result.restored == ("app:main",)
    assert [(folder / "main").read_text() for folder in folders.values()] == ["app", "changed"]
    task.undo()
    assert [(folder / "main").read_text() for folder in folders.values()] == ["changed", "changed"]
    assert task.restore(saved).restored == ("app:main", "infra:main")
    assert [(folder / "main").read_text() for folder in folders.values()] == ["app", "infra"]


def test_differences_name_the_folder(store: Store, task: Task, folders: dict[str, Path]) -> None:
    before = task.save({})
    (folders["infra"] / "main").write_text("changed")
    after = task.save({})
    diff = store.compare_files(before.id, after.id)
    assert [change.path for change in diff.changes] == ["infra:main"] == [stat.path for stat in diff.stats]
    assert not store.compare_files(before.id, after.id, paths=["app:main"])
    assert store.compare_files(before.id, after.id, paths=["infra:m*"])


def test_a_list_of_files_is_captured_compared_and_restored_alone(
    store: Store, task: Task, folders: dict[str, Path]
) -> None:
    """B1: the list wins over ignore rules, and nothing is known of anything else."""
    (folders["app"] / ".gitignore").write_text("main\n")
    task.save({})
    listed = task.save({}, files=["app:main"])
    assert [change.path for change in store.compare_files(None, listed.id).changes] == ["app:main"]
    (folders["app"] / "main").write_text("changed")
    (folders["app"] / "other").write_text("changed")
    again = task.save({}, files=["app:main"])
    assert [change.change for change in store.compare_files(listed.id, again.id).changes] == ["modified"]
    task.restore(listed, "files")
    assert (folders["app"] / "main").read_text() == "app"
    assert (folders["app"] / "other").read_text() == "changed"


def test_the_state_alone_can_be_restored_beside_changed_files(task: Task, folders: dict[str, Path]) -> None:
    first = task.save({"n": 1})
    (folders["app"] / "main").write_text("changed")
    task.save({"n": 2})
    assert task.restore(first, "state").state == {"n": 1}
    assert (folders["app"] / "main").read_text() == "changed"
    task.save({"n": 3})


def test_workers_do_not_write_what_is_stored(
    store: Store, task: Task, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B1: content is stored once, whoever reads it."""
    monkeypatch.setattr(readers, "MANY_FILES", 1)
    monkeypatch.setattr(readers, "processors", lambda: 2)
    content = os.urandom(400 << 10)
    (folders["app"] / "one").write_bytes(content)
    task.save({})
    before = _stored_bytes(tmp_path)
    (folders["infra"] / "same").write_bytes(content)
    (folders["infra"] / "new").write_bytes(os.urandom(300 << 10))
    saved = task.save({})
    assert store.read_file(saved.id, "infra:same") == content
    assert 300 << 10 <= _stored_bytes(tmp_path) - before < 350 << 10


def _stored_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in (folder / "store" / "objects").rglob("*") if file.is_file())


def test_workers_answer_as_reading_here_does(
    store: Store, task: Task, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = folders["app"]
    for name, data in {"small": b"text", "empty": b"", "large": os.urandom(600 << 10), "other": b"x" * 999}.items():
        (root / name).write_bytes(data)
    with suppress(OSError):  # a file system without attributes
        os.setxattr(root / "other", "user.note", b"hello")
    with closing(sqlite3.connect(root / "database")) as database:
        database.execute("CREATE TABLE t (a)")
    seen = {name: signature((root / name).lstat()) for name in ("small", "empty", "large", "other", "database")}
    jobs = [ReadJob(os.fsencode(name), each) for name, each in seen.items()]
    jobs += [ReadJob(b"gone", seen["small"]), ReadJob(b"small", seen["large"])]

    def read() -> list[readers.Result]:
        batch = Batch(store._engine.blobs, store._engine.objects)
        reader = readers.CaptureReader(str(root), batch)
        try:
            return list(reader.read(jobs))
        finally:
            reader.close()
            batch.discard()

    here = read()
    assert [type(one) for one in here] == [Content, Content, Content, Content, ReadJob, LeftOut, LeftOut]
    monkeypatch.setattr(readers, "MANY_FILES", 1)
    monkeypatch.setattr(readers, "processors", lambda: 2)
    monkeypatch.delattr(readers.CaptureReader, "_read_here")
    there = read()
    assert there == here
    assert [type(one) for one in there] == [type(one) for one in here]
