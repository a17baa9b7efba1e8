"""What commands leave to a process of its own: they end before it is done."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.cli.conftest import Run

import lastgood
from lastgood.cli import background


@pytest.fixture
def restored(run: Run, folder: Path, started: list[tuple[str, ...]]) -> tuple[str, ...]:
    """A restore; what it left to another process."""
    (folder / "file").write_text("good")
    run("init", "--here")
    (folder / "file").write_text("bad")
    run("restore", "HEAD")
    assert (folder / "file").read_text() == "good"
    (what,) = started
    return what


def _journals(folder: Path) -> int:
    with lastgood.open(folder / ".lastgood", collect="never") as store:
        return len(store._engine.catalog.journals())


def test_restored_files_are_made_durable_by_another_process(restored: tuple[str, ...], folder: Path) -> None:
    assert _journals(folder) == 1
    function, *arguments = restored
    getattr(background, function)(*arguments)
    assert _journals(folder) == 0


def test_that_process_does_nothing_twice(restored: tuple[str, ...], folder: Path) -> None:
    for _ in range(2):
        background.sync_files(*restored[1:])
    assert (folder / "file").read_text() == "good"
    assert _journals(folder) == 0


def test_a_disk_that_did_not_confirm_them_is_told_by_status(
    restored: tuple[str, ...], run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I4: nobody hears what that process says. What has changed since is still compared."""

    def fail(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink() == folder / "file":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as failing:
        failing.setattr(os, "fsync", fail)
        background.sync_files(*restored[1:])
    assert _journals(folder) == 1
    (folder / "file").write_text("changed")
    shown = " ".join(run("status").stdout.split())
    assert f"the disk did not confirm the files that were restored in {folder}: look at the disk; what is lost" in shown
    assert "changed ~ file" in shown
    with lastgood.open(folder / ".lastgood", collect="never") as store:
        assert [journal.doubted for journal in store.recovery("work").restores] == [True]
        assert not store.recovery("work").clean


def test_what_is_started_runs_by_itself(tmp_path: Path) -> None:
    """The process begins with nothing but its arguments, whatever folder it is in."""
    with lastgood.open(tmp_path / "store", user="ada") as store:
        store.task("t").save({})
        number = background._start("collect_apart", str(store._engine.location.catalog), "ada", "")
    assert number is not None
    assert os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) == 0
