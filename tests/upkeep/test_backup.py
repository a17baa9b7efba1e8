"""Backups: whole, of one moment, verified, beside writers and collectors."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest
from tests.support.damage import flip
from tests.support.outages import gone, open_store

import lastgood
from lastgood import ConflictError, IntegrityError, InvalidError, Store, UnavailableError
from lastgood.upkeep import backup
from lastgood.upkeep.collect import Collected, collect


@pytest.fixture
def store(tmp_path: Path) -> Store:
    work = tmp_path / "work"
    work.mkdir()
    (work / "large").write_bytes(os.urandom(3 << 20))
    (work / "small").write_text("text")
    made = lastgood.open(tmp_path / "store", user="ada")
    made.task("files", workspace=work).save({"n": 1})
    made.task("state").save({"messages": [f"message {number} " * 20 for number in range(300)]})
    return made


def test_a_backup_is_a_store_with_everything(store: Store, tmp_path: Path) -> None:
    made = store.backup(tmp_path / "copy")
    assert made.path == tmp_path / "copy"
    assert made.checkpoints == 2
    with lastgood.open(tmp_path / "copy", user="ada") as copy:
        assert copy.check(read_data=True).ok
        assert copy.info().id == store.info().id
        for task in ("files", "state"):
            assert [one.checksum for one in copy.list_checkpoints(task)] == [
                one.checksum for one in store.list_checkpoints(task)
            ]
        head = copy.task("files").head
        assert head is not None
        assert copy.read_file(head.id, "large") == (tmp_path / "work" / "large").read_bytes()
        copy.task("state").save({"goes": "on"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "store", "work"]
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700


def test_a_backup_in_the_place_of_its_store_is_no_change_to_git(store: Store, tmp_path: Path) -> None:
    """It had lacked the file that says so, and was shown as new files."""
    project = tmp_path / "project"
    subprocess.run(["git", "init", "-q", project], check=True)
    store.backup(project / ".lastgood")
    shown = subprocess.run(["git", "status", "--porcelain"], cwd=project, check=True, capture_output=True)
    assert shown.stdout == b""


def test_a_backup_replaces_nothing(store: Store, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    with pytest.raises(ConflictError, match="exists"):
        store.backup(tmp_path / "copy")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConflictError, match="exists"):
        store.backup(tmp_path / "link")


@pytest.mark.parametrize("place", ["store", "store/objects", "store/objects/new", "work", "work/new/deep"])
@pytest.mark.parametrize("through_link", [False, True])
def test_a_backup_lies_neither_in_its_store_nor_among_files_that_it_has(
    store: Store, tmp_path: Path, place: str, through_link: bool
) -> None:
    """I1: the next save would take it along, and a restore remove it."""
    before = sorted(tmp_path.rglob("*"))
    to = tmp_path / place / "copy"
    if through_link:
        (tmp_path / "link").symlink_to(tmp_path / Path(place).parts[0])
        to = tmp_path / "link" / to.relative_to(tmp_path / Path(place).parts[0])
    with pytest.raises(InvalidError, match="store that it is of" if place.startswith("store") else "removed by a rest"):
        store.backup(to)
    (tmp_path / "link").unlink(missing_ok=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_backup_may_lie_where_a_folder_was_whose_files_it_has(store: Store, tmp_path: Path) -> None:
    (tmp_path / "work").rename(tmp_path / "elsewhere")
    (tmp_path / "work").mkdir()
    assert store.backup(tmp_path / "work" / "copy").checkpoints == 2


@pytest.mark.parametrize("name", ["copy", "*"])
def test_a_backup_leaves_another_one_under_way_alone(store: Store, tmp_path: Path, name: str) -> None:
    other = tmp_path / ".copy.01a1ed41-2602-7693-b0a5-b3e6a402c7b8.partial"
    other.mkdir()
    store.backup(tmp_path / name)
    assert other.is_dir()


def test_what_cannot_be_backed_up_leaves_nothing_behind(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="no backup can be made"):
        store.backup(tmp_path / "file" / "copy")
    (tmp_path / "file").unlink()
    (pack,) = (file for file in (tmp_path / "store" / "objects" / "packs").rglob("*") if file.is_file())
    flip(pack, 2 << 20)
    with pytest.raises(IntegrityError, match="damaged"):
        store.backup(tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "work"]
    with pytest.raises(InvalidError, match="in memory"):
        lastgood.open(":memory:").backup(tmp_path / "copy")


def test_a_backup_goes_on_while_others_save_and_collect(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack that its catalog names is rewritten before it is copied: the catalog is copied again."""
    work, copy_pack = tmp_path / "work", backup._copy_pack
    began: list[bool] = []

    def save_and_collect_first(*about: object) -> None:
        if not began:
            began.append(True)
            (work / "large").write_bytes(os.urandom(2 << 20))
            task = store.task("files", workspace=work)
            first = task.head
            task.save({"n": 2})
            assert first is not None
            store.purge_checkpoint(first.id)
            assert store.collect(grace=0).freed
        copy_pack(*about)  # type: ignore[arg-type]

    monkeypatch.setattr(backup, "_copy_pack", save_and_collect_first)
    store.backup(tmp_path / "copy")
    with lastgood.open(tmp_path / "copy", user="ada") as copy:
        assert copy.check(read_data=True).ok
        assert copy.task("files").state == {"n": 2}


def test_a_backup_comes_to_an_end_beside_one_who_collects_all_the_time(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B6: found by the fault harness on a busy machine, where every pack was rewritten before it was copied."""
    work, copy_pack = tmp_path / "work", backup._copy_pack
    task = store.task("files", workspace=work)
    collected: list[Collected] = []

    def save_and_collect_first(*about: object) -> None:
        (work / "large").write_bytes(os.urandom(2 << 20))
        before = task.head
        task.save({"n": len(collected)})
        assert before is not None
        store.purge_checkpoint(before.id)
        collected.append(collect(store._engine, "ada", grace=0, wait=False))
        copy_pack(*about)  # type: ignore[arg-type]

    monkeypatch.setattr(backup, "_copy_pack", save_and_collect_first)
    store.backup(tmp_path / "copy")
    assert not collected[0].was_busy
    assert collected[-1].was_busy
    with lastgood.open(tmp_path / "copy", user="ada") as copy:
        assert copy.check(read_data=True).ok
        assert copy.collect(grace=0).was_busy is False


def test_a_backup_of_a_store_without_a_pack_says_so(store: Store, tmp_path: Path) -> None:
    (pack,) = (file for file in (tmp_path / "store" / "objects" / "packs").rglob("*") if file.is_file())
    pack.unlink()
    with pytest.raises(IntegrityError, match="a pack is missing"):
        store.backup(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_every_backup_beside_writers_is_of_one_moment(store: Store, tmp_path: Path) -> None:
    """What was acknowledged before is in it, and nothing half."""
    stop, saved = threading.Event(), [0]

    def write() -> None:
        task = store.task("busy")
        while not stop.is_set():
            task.save({"n": saved[0] + 1})
            saved[0] += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            before = saved[0]
            store.backup(tmp_path / f"copy {number}")
            with lastgood.open(tmp_path / f"copy {number}", user="ada", collect="never") as copy:
                found = copy.list_checkpoints("busy", limit=100_000) if before else []
                assert len(found) >= before
                assert [one.sequence for one in found] == list(range(len(found), 0, -1))
    finally:
        stop.set()
        writer.join()


def test_what_is_spooled_is_in_the_backup(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        task = store.task("t")
        task.save({"n": 1})
        with gone(tmp_path / "store"):
            assert task.save({"n": 2}).status == "spooled"
        store.backup(tmp_path / "copy")
    with open_store(tmp_path / "copy") as copy:
        assert copy.task("t").state == {"n": 2}
