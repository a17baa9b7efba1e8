"""Damage: what is recorded of it, what counts as good in spite of it, and what can still be restored."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood.catalog.values import FILES
from lastgood.errors import IntegrityError
from lastgood.model.tree import Folder

LARGE = 300_000
"""A file of so many bytes lies in a pack."""


class Work:
    """A folder that is saved with evidence, and a store whose packs can be damaged."""

    def __init__(self, folder: Path) -> None:
        self.store_folder, self.folder = folder / "store", folder / "work"
        self.folder.mkdir()
        self.store = lastgood.open(self.store_folder, user="tester")
        self.task = self.store.task("work", workspace=self.folder)

    def write(self, seed: int, *names: str) -> None:
        for name in names:
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(random.Random(f"{seed} {name}").randbytes(LARGE))

    def save(self, number: int, *, verified: bool = True) -> lastgood.Checkpoint:
        if not verified:
            return self.task.save({"number": number})
        with self.task.step(f"step {number}") as step:
            step.state = {"number": number}
            step.run(["true"])
        assert step.checkpoint is not None
        assert step.checkpoint.verified
        return step.checkpoint

    def packs(self) -> set[Path]:
        return {path for path in (self.store_folder / "objects").rglob("*") if path.is_file()}

    def reopen(self) -> None:
        """Forget all that this process remembers of the store."""
        self.store.close()
        self.store = lastgood.open(self.store_folder, user="tester")
        self.task = self.store.task("work", workspace=self.folder)


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    made = Work(tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def first(work: Work) -> lastgood.Checkpoint:
    work.write(1, "a", "src/b")
    (work.folder / "small").write_text("first")
    return work.save(1)


@pytest.fixture
def second(work: Work, first: lastgood.Checkpoint) -> tuple[lastgood.Checkpoint, Path]:
    """A checkpoint whose file `a` is new, and the pack that it alone lies in."""
    before = work.packs()
    work.write(2, "a")
    (work.folder / "small").write_text("second")
    made = work.save(2)
    (pack,) = work.packs() - before
    return made, pack


def lose(work: Work, checkpoint: lastgood.Checkpoint, name: str) -> None:
    """Remove the content of a file, or the list of a folder, from the index."""
    (root,) = checkpoint.record.files or ()
    entry: Any = next(each for each in work.store._engine.blobs.read_tree(root.tree) if each.name == name.encode())
    key = entry.tree if isinstance(entry, Folder) else entry.blob
    work.store._engine.catalog.condemn(FILES, [key], 1)
    assert work.store._engine.catalog.remove_blobs(FILES, [key], 2) == 1
    work.reopen()


def flip(pack: Path) -> None:
    """Change a byte of a file's content, and nothing else."""
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.chmod(0o600)
    pack.write_bytes(data)


def test_one_whose_content_is_missing_is_not_good(
    work: Work, first: lastgood.Checkpoint, second: tuple[lastgood.Checkpoint, Path]
) -> None:
    """First use 2: its evidence holds, and what it captured is gone."""
    made, _ = second
    lose(work, made, "a")
    good = work.task.last_good()
    assert good is not None
    assert good.id == first.id
    (problem,) = work.store.find_checkpoint(made.id).damage
    assert problem.startswith("a: ")
    recovery = work.store.recovery("work")
    assert (recovery.last_good and recovery.last_good.id, recovery.clean) == (first.id, False)


def test_one_whose_pack_is_missing_or_cut_off_is_not_good(
    work: Work, first: lastgood.Checkpoint, second: tuple[lastgood.Checkpoint, Path]
) -> None:
    """First use 2"""
    made, pack = second
    pack.chmod(0o600)
    os.truncate(pack, 100_000)
    work.reopen()
    for _ in range(2):
        good = work.store.last_good("work")
        assert good is not None
        assert good.id == first.id
        pack.unlink(missing_ok=True)
        work.reopen()
    assert work.store.find_checkpoint(made.id).damage != []


def test_evidence_does_not_override_recorded_damage(
    work: Work, first: lastgood.Checkpoint, second: tuple[lastgood.Checkpoint, Path]
) -> None:
    """First use 2: a flipped byte is met by `verify`, which reads all; evidence alone never clears what it found."""
    made, pack = second
    whole = pack.read_bytes()
    flip(pack)
    work.reopen()
    assert not work.store.verify_checkpoint(made.id)
    for _ in range(2):
        good = work.task.last_good()
        assert good is not None
        assert good.id == first.id
        assert not work.store.find_checkpoint(made.id).verified
        assert work.store.find_checkpoint(made.id).damage != []
    pack.write_bytes(whole)
    assert work.store.verify_checkpoint(made.id), "every byte was read, and is what it was"
    assert work.store.find_checkpoint(made.id).damage == []
    good = work.task.last_good()
    assert good is not None
    assert good.id == made.id


def test_damage_is_recorded_where_there_is_no_evidence_and_cleared_by_reading_all(
    work: Work, first: lastgood.Checkpoint
) -> None:
    """First use 2"""
    before = work.packs()
    work.write(3, "a")
    plain = work.save(3, verified=False)
    (pack,) = work.packs() - before
    whole = pack.read_bytes()
    flip(pack)
    work.reopen()
    work.store.check_checkpoint(plain.id)
    assert work.store.find_checkpoint(plain.id).damage != []
    pack.write_bytes(whole)
    work.store.check_checkpoint(plain.id)
    assert work.store.find_checkpoint(plain.id).damage == []


def test_restoring_a_damaged_one_names_checkpoint_and_file_and_changes_nothing(
    work: Work, first: lastgood.Checkpoint, second: tuple[lastgood.Checkpoint, Path]
) -> None:
    """First use 2"""
    made, pack = second
    flip(pack)
    work.write(3, "a")
    work.save(3)
    work.reopen()
    before = {path: path.read_bytes() for path in work.folder.rglob("*") if path.is_file()}
    with pytest.raises(IntegrityError) as refused:
        work.task.restore(made)
    assert made.id in str(refused.value)
    assert "a: " in str(refused.value)
    assert "skip_damaged" in (refused.value.hint or "")
    assert {path: path.read_bytes() for path in work.folder.rglob("*") if path.is_file()} == before
    assert work.store.find_checkpoint(made.id).damage != [], "so that last_good passes it over from now on"


@pytest.mark.parametrize("what", ["both", "files"])
def test_the_rest_of_a_damaged_one_can_be_restored(
    work: Work, first: lastgood.Checkpoint, second: tuple[lastgood.Checkpoint, Path], what: str
) -> None:
    """First use 2"""
    made, _ = second
    work.write(3, "a", "src/b")
    (work.folder / "small").write_text("third")
    work.save(3)
    lose(work, made, "a")
    left = (work.folder / "a").read_bytes()
    result = work.task.restore(made, what, skip_damaged=True)  # type: ignore[arg-type]
    assert [path for path, _ in result.failed] == ["a"]
    assert set(result.restored) == {"small", "src/b"}
    assert (work.folder / "small").read_text() == "second"
    assert (work.folder / "src/b").read_bytes() == random.Random("1 src/b").randbytes(LARGE)
    assert (work.folder / "a").read_bytes() == left
    assert work.task.state == {"number": 2 if what == "both" else 3}


def test_a_folder_whose_list_is_damaged_is_skipped_whole(work: Work, first: lastgood.Checkpoint) -> None:
    """First use 2"""
    work.write(3, "a", "src/b")
    (work.folder / "small").write_text("third")
    work.save(3)
    left = (work.folder / "src/b").read_bytes()
    lose(work, first, "src")
    with pytest.raises(IntegrityError, match="src/"):
        work.task.restore(first)
    result = work.task.restore(first, skip_damaged=True)
    assert [path for path, _ in result.failed] == ["src/"]
    assert set(result.restored) == {"a", "small"}
    assert (work.folder / "src/b").read_bytes() == left


def test_a_damaged_state_cannot_be_skipped_but_its_files_can_be_had(work: Work, first: lastgood.Checkpoint) -> None:
    """First use 2"""
    (work.folder / "small").write_text("second")
    work.save(2)
    work.store._engine.catalog._write(  # type: ignore[attr-defined]
        lambda connection: connection.raw.execute("UPDATE checkpoints SET root = x'00' WHERE id = ?", [first.id])
    )
    work.reopen()
    with pytest.raises(IntegrityError):
        work.task.restore(first, skip_damaged=True)
    result = work.task.restore(first, "files", skip_damaged=True)
    assert result.failed == ()
    assert (work.folder / "small").read_text() == "first"


def test_reading_a_damaged_file_names_checkpoint_and_file(work: Work, second: tuple[lastgood.Checkpoint, Path]) -> None:
    """First use 2"""
    made, pack = second
    lose(work, made, "a")
    for name in ("a", "small"):
        with pytest.raises(IntegrityError) as refused:
            work.store.read_file(made.id, name)
        assert made.id in str(refused.value)
        assert f"{name}: " in str(refused.value)
        pack.unlink(missing_ok=True)
        work.reopen()


def test_copying_and_planning_name_checkpoint_and_file(
    work: Work, second: tuple[lastgood.Checkpoint, Path], tmp_path: Path
) -> None:
    """First use 2"""
    made, pack = second
    work.write(3, "a")
    work.save(3)
    lose(work, made, "a")
    with pytest.raises(IntegrityError, match=f"{made.id} cannot be restored: a: "):
        work.task.copy_files(made, tmp_path / "copy")
    pack.unlink()
    work.reopen()
    with pytest.raises(IntegrityError, match=f"{made.id} cannot be restored: ./: "):
        work.task.plan(made)


def test_a_fork_of_a_damaged_one_is_refused(work: Work, second: tuple[lastgood.Checkpoint, Path]) -> None:
    """First use 2: once damage is recorded, everything is read before anything continues from there."""
    made, pack = second
    flip(pack)
    work.reopen()
    work.store.verify_checkpoint(made.id)
    with pytest.raises(IntegrityError, match="a: "):
        work.task.fork(made)
