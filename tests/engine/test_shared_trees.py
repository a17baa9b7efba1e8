"""A store of a few kilobytes whose folders share their trees leads to more files than any machine holds (S4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lastgood
from lastgood.catalog.values import Blob
from lastgood.compare.trees import compare_trees
from lastgood.engine.blobs import Gathered
from lastgood.engine.commit import Draft
from lastgood.engine.gather import CapturedFiles
from lastgood.engine.save import save_draft
from lastgood.errors import IntegrityError
from lastgood.files.plan import make_plan
from lastgood.model import tree as trees
from lastgood.model.checkpoint import FileRoot
from lastgood.model.identity import digest
from lastgood.model.tree import Entry, File, Folder, encode_tree

pytestmark = pytest.mark.once

NAMES = [b"%d" % number for number in range(10)]


class Bomb:
    """A tree of 10 files, or none, in 10 folders of a tree that is in 10 folders, 12 times."""

    def __init__(self, *, with_files: bool = True) -> None:
        self.blobs: dict[bytes, bytes] = {}
        content = self._put(b"")
        self.top = self._put(encode_tree([File(name, 0o644, 0, content) for name in NAMES if with_files]))
        for _ in range(12):
            below: list[Entry] = [Folder(name, 0o755, self.top) for name in NAMES]
            self.top = self._put(encode_tree(below))

    def _put(self, data: bytes) -> bytes:
        self.blobs[digest(data)] = data
        return digest(data)

    def read(self, key: bytes) -> bytes:
        return self.blobs[key]


def test_a_plan_and_a_comparison_end_at_the_number_of_files_that_the_record_says() -> None:
    bomb = Bomb()
    with pytest.raises(IntegrityError, match="more files than its record says"):
        make_plan(bomb.top, None, bomb.read, files=1000)
    with pytest.raises(IntegrityError, match="more files than its record says"):
        compare_trees(None, bomb.top, bomb.read, files=1000)


@pytest.mark.parametrize("with_files", [True, False])
def test_whatever_a_record_says_they_end_at_a_limit(monkeypatch: pytest.MonkeyPatch, with_files: bool) -> None:
    monkeypatch.setattr(trees, "MAX_ENTRIES", 20_000)
    bomb = Bomb(with_files=with_files)
    with pytest.raises(IntegrityError, match="more than 20,000 entries"):
        make_plan(bomb.top, None, bomb.read, files=10**15)
    with pytest.raises(IntegrityError, match="more than 20,000 entries"):
        compare_trees(bomb.top, None, bomb.read)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[lastgood.Store]:
    with lastgood.open(tmp_path / "store", user="ada", collect="never") as opened:
        yield opened


@pytest.mark.parametrize("said", [4, 10**13])
def test_such_a_store_is_told_by_check_and_refused_by_all_others(
    store: lastgood.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: int
) -> None:
    monkeypatch.setattr(trees, "MAX_ENTRIES", 20_000)
    task = store.task("t", workspace=_folder(tmp_path / "work"))
    empty = task.save({})
    made = _plant(task, said)
    (finding,) = store.check().findings
    assert "10,000,000,000,000" in str(finding)
    with pytest.raises(IntegrityError):
        task.plan(made)
    with pytest.raises(IntegrityError):
        _ = task.diff(empty, made).files.changes
    with pytest.raises(IntegrityError):
        task.copy_files(made, tmp_path / "copy")
    assert not store.verify_checkpoint(made.id)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _plant(task: lastgood.Task, said: int) -> lastgood.Checkpoint:
    """Save it as a capture would that had found it."""
    bomb = Bomb()
    gathered = Gathered([Blob(key, len(data), 0, data) for key, data in bomb.blobs.items()])
    captured = CapturedFiles((FileRoot("", bomb.top, False, said, 0, None, None),), (), gathered, None, {})
    return save_draft(task._handle, Draft(state={}, files=captured), "raise")
