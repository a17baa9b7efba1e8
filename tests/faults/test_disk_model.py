"""The model of a disk that loses its power: what must be there, what may be, and what must not be invented."""

from __future__ import annotations

import itertools
import random
import stat
from pathlib import Path

import pytest
from tests.faults.disk_model import (
    Disk,
    Survives,
    all_kept,
    all_lost,
    by_chance,
    content_first,
    lay_out,
    look_at,
    names_first,
    surviving,
)
from tests.faults.trace import Call, Op

ROOT = "/disk"


class Made:
    """A disk with `old` and the folders `a` and `b` on it, all durable, and calls one after the other."""

    def __init__(self, beginning: Path) -> None:
        (beginning / "old").write_bytes(b"old bytes")
        for name in ("a", "b"):
            (beginning / name).mkdir()
        self.disk = Disk(Path(ROOT), beginning)
        self._numbers = itertools.count(1)

    def call(self, op: Op, path: str, other: str = "", **more: int | bytes) -> None:
        number = next(self._numbers)
        other = f"{ROOT}/{other}" if other else ""
        self.disk.follow(Call(number, op, f"{ROOT}/{path}" if path else ROOT, other, **more))  # type: ignore[arg-type]

    def write(self, path: str, data: bytes, offset: int = 0, inode: int = 0) -> None:
        self.call(Op.WRITE, path, offset=offset, amount=len(data), data=data, inode=inode)

    def files(self, survives: Survives) -> dict[str, bytes]:
        return {name: one.content for name, one in surviving(self.disk, survives).items() if one.kind == stat.S_IFREG}


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def test_what_was_not_synced_may_be_lost_and_may_be_there(made: Made) -> None:
    made.call(Op.CREATE, "new", inode=7)
    made.write("new", b"bytes")
    assert made.files(all_lost) == {"old": b"old bytes"}
    assert made.files(names_first) == {"old": b"old bytes", "new": b""}
    assert made.files(content_first) == {"old": b"old bytes"}
    assert made.files(all_kept) == {"old": b"old bytes", "new": b"bytes"}


def test_a_synced_file_is_nowhere_until_its_folder_is_synced(made: Made) -> None:
    made.call(Op.CREATE, "a/new")
    made.write("a/new", b"bytes")
    made.call(Op.SYNC, "a/new")
    assert "a/new" not in made.files(all_lost)
    made.call(Op.SYNC, "")
    assert "a/new" not in made.files(all_lost)
    made.call(Op.SYNC, "a")
    assert made.files(all_lost)["a/new"] == b"bytes"


def test_what_was_written_after_a_sync_is_not_durable(made: Made) -> None:
    made.write("old", b"NEW")
    made.call(Op.DATASYNC, "old")
    made.write("old", b"er", offset=3)
    assert made.files(all_lost)["old"] == b"NEW bytes"
    assert made.files(all_kept)["old"] == b"NEWerytes"


def test_a_file_in_a_folder_that_was_not_synced_into_its_parent_is_gone_with_it(made: Made) -> None:
    made.call(Op.MKDIR, "c", amount=0o700)
    made.call(Op.CREATE, "c/new")
    made.call(Op.SYNC, "c/new")
    made.call(Op.SYNC, "c")
    assert "c/new" not in made.files(all_lost)
    made.call(Op.DATASYNC, "")
    assert "c/new" in made.files(all_lost)


def test_a_rename_is_there_whole_or_not_at_all(made: Made) -> None:
    made.call(Op.CREATE, "temporary")
    made.write("temporary", b"newer")
    made.call(Op.SYNC, "temporary")
    made.call(Op.SYNC, "")
    made.call(Op.RENAME, "temporary", "old")
    assert made.files(all_lost) == {"old": b"old bytes", "temporary": b"newer"}
    assert made.files(all_kept) == {"old": b"newer"}
    for seed in range(50):
        assert made.files(by_chance(random.Random(seed))) in (made.files(all_lost), made.files(all_kept))


@pytest.mark.parametrize("synced", ["a", "b"])
def test_a_rename_from_one_folder_to_another_is_durable_with_either(made: Made, synced: str) -> None:
    made.call(Op.CREATE, "a/x")
    made.call(Op.SYNC, "a")
    made.call(Op.RENAME, "a/x", "b/y")
    for seed in range(20):
        assert len(made.files(by_chance(random.Random(seed))).keys() & {"a/x", "b/y"}) == 1
    assert "a/x" in made.files(all_lost)
    made.call(Op.SYNC, synced)
    assert "b/y" in made.files(all_lost)
    assert "a/x" not in made.files(all_lost)


def test_both_names_of_a_file_lead_to_the_same_bytes(made: Made) -> None:
    """As a draft that is linked under its name, and then loses the first."""
    made.call(Op.CREATE, "a/draft", inode=5)
    made.write("a/draft", b"unsynced")
    made.call(Op.LINK, "a/draft", "b/pack")
    made.call(Op.SYNC, "b")
    made.call(Op.UNLINK, "a/draft")
    for seed in range(50):
        found = made.files(by_chance(random.Random(seed)))
        assert found.get("a/draft", found["b/pack"]) == found["b/pack"]
    made.call(Op.SYNC, "a/draft (deleted)", inode=5)
    assert made.files(all_lost)["b/pack"] == b"unsynced"


def test_a_number_that_is_used_again_is_another_file(made: Made) -> None:
    made.call(Op.CREATE, "a/x", inode=5)
    made.call(Op.UNLINK, "a/x")
    made.call(Op.CREATE, "b/y", inode=5)
    made.write("b/y", b"y", inode=5)
    made.call(Op.SYNC, "b/y", inode=5)
    made.call(Op.SYNC, "b")
    assert made.files(all_lost) == {"old": b"old bytes", "b/y": b"y"}


def test_removing_is_not_durable_before_the_folder_is_synced(made: Made) -> None:
    made.call(Op.UNLINK, "old")
    assert made.files(all_lost) == {"old": b"old bytes"}
    assert made.files(names_first) == {}
    made.call(Op.SYNC, "")
    assert made.files(all_lost) == {}


def test_a_mode_needs_more_than_the_data_synced(made: Made) -> None:
    made.call(Op.CHMOD, "old", amount=0o600)
    before = surviving(made.disk, all_lost)["old"].mode
    made.call(Op.DATASYNC, "old")
    assert surviving(made.disk, all_lost)["old"].mode == before
    made.call(Op.SYNC, "old")
    assert surviving(made.disk, all_lost)["old"].mode == 0o600


def test_cutting_a_file_off_is_not_durable_either(made: Made) -> None:
    made.call(Op.TRUNCATE, "old", amount=3)
    assert made.files(all_lost)["old"] == b"old bytes"
    assert made.files(all_kept)["old"] == b"old"


def test_a_call_that_failed_has_done_nothing(made: Made) -> None:
    made.call(Op.UNLINK, "old", error=5)
    made.call(Op.MKDIR, "a", error=17)
    assert made.files(all_kept) == {"old": b"old bytes"}


def test_syncing_the_file_system_makes_all_durable(made: Made) -> None:
    made.call(Op.CREATE, "a/x")
    made.write("a/x", b"x")
    made.call(Op.SYNCALL, "")
    assert made.files(all_lost)["a/x"] == b"x"


def test_writes_are_torn_at_sectors_and_only_what_is_not_durable_is(made: Made) -> None:
    made.call(Op.CREATE, "a/x")
    made.call(Op.SYNC, "a")
    made.write("a/x", b"1" * 700)
    made.call(Op.SYNC, "a/x")
    made.write("a/x", b"2" * 1300, offset=100)
    seen = set()
    for seed in range(300):
        found = made.files(by_chance(random.Random(seed)))["a/x"]
        assert found[:100] == b"1" * 100
        assert len(found) >= 700
        for start, stop in ((100, 512), (512, 700), (700, 1024), (1024, 1400)):
            assert len(set(found[start:stop])) <= 1
        seen.add(bytes(found[at] if at < len(found) else 46 for at in (100, 512, 700, 1024)))
    assert {b"11..", b"2222", b"11\0\0"} <= seen
    assert len(seen) > 8


def test_what_remains_can_be_laid_out_as_it_is(made: Made, tmp_path: Path) -> None:
    made.call(Op.SYMLINK, "a/link", "elsewhere")
    made.call(Op.MKDIR, "c", amount=0o700)
    made.call(Op.CREATE, "c/x", amount=0o600)
    made.write("c/x", b"x", offset=3)
    place = tmp_path / "place"
    place.mkdir()
    found = surviving(made.disk, all_kept)
    lay_out(found, place)
    found.pop("")
    looked = look_at(place)
    looked.pop("")
    assert looked == found
    assert looked["c/x"].content == b"\0\0\0x"
