"""A disk with no room left, from the first byte on (B7, G9). What happens at forty sizes is tried by the campaign."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import lastgood
from lastgood import DiskFullError

pytestmark = pytest.mark.once


def _fill_up(disk: Path, *, but: int = 0) -> None:
    figures = os.statvfs(disk)
    (disk / "ballast").write_bytes(bytes(figures.f_bfree * figures.f_frsize - but // 4096 * 4096))


@pytest.mark.parametrize("room", [0, 40_000, 200_000])
def test_a_store_that_does_not_fit_is_not_begun(disk: Path, room: int) -> None:
    """B7, G9: the error is that of a full disk, and nothing is left behind that takes room."""
    (disk / "store").mkdir()
    _fill_up(disk, but=room)
    with pytest.raises(DiskFullError, match="disk is full"):
        lastgood.open(disk / "store")
    assert [file.name for file in (disk / "store").iterdir() if file.stat().st_size] == []
    (disk / "ballast").unlink()
    with lastgood.open(disk / "store") as store:
        store.task("t").save({"n": 1})


def test_a_store_on_a_full_disk_can_be_read(disk: Path) -> None:
    """G9."""
    with lastgood.open(disk / "store") as store:
        saved = store.task("t").save({"n": 1})
    _fill_up(disk)
    with lastgood.open(disk / "store") as store:
        assert store.get_checkpoint(saved.id).state == {"n": 1}
        with pytest.raises(DiskFullError):
            store.task("t").save({"n": ["x" * 1000 for _ in range(200)]}, on_failure="raise")


def test_a_full_disk_without_room_to_open_a_store_is_called_that(disk: Path) -> None:
    """G9: SQLite needs a file that is not there, and cannot make it."""
    with lastgood.open(disk / "store") as store:
        saved = store.task("t").save({"n": 1})
    (disk / "store" / "catalog.sqlite-shm").unlink()
    _fill_up(disk)
    with pytest.raises(DiskFullError, match="no room to open"):
        lastgood.open(disk / "store")
    (disk / "ballast").unlink()
    with lastgood.open(disk / "store") as store:
        assert store.get_checkpoint(saved.id).state == {"n": 1}
