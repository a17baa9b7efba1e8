"""The log of the spool after a failed sync: two that write in one process stand for two processes (C10, G3).

What is lost when the power fails is tried by the scenarios of tests/faults.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from lastgood import BusyError, UnavailableError
from lastgood.catalog.sqlite import connection
from lastgood.spool import file as spool_file
from lastgood.spool.file import NAME, SpoolFile

pytestmark = pytest.mark.once


@pytest.fixture
def spool(tmp_path: Path) -> SpoolFile:
    """With a log that was emptied: what is written next stands in front of what was there before."""
    made = SpoolFile(tmp_path / "spool")
    made.reserve(1 << 16)
    return made


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Once, after a part of the log was read to be written again."""

    def pread(*about: Any) -> bytes:
        part = os.pread(*about)
        monkeypatch.setattr(connection, "os", os)
        act()
        return part

    monkeypatch.setattr(connection, "os", SimpleNamespace(path=os.path, pread=pread, pwrite=os.pwrite, fsync=os.fsync))


def fail_to_sync(spool: SpoolFile) -> None:
    def work(connection: apsw.Connection) -> None:
        raise apsw.IOError("planted")

    with pytest.raises(UnavailableError):
        spool.write(work)


def break_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log cannot be synced, either, when it is written again."""

    def fsync(descriptor: int) -> None:
        raise OSError(errno.EIO, "planted")

    monkeypatch.setattr(connection, "os", SimpleNamespace(path=os.path, pread=os.pread, pwrite=os.pwrite, fsync=fsync))


def count_rewrites(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each time that the log is synced after it was written again."""
    syncs: list[int] = []

    def fsync(descriptor: int) -> None:
        syncs.append(descriptor)
        os.fsync(descriptor)

    monkeypatch.setattr(connection, "os", SimpleNamespace(path=os.path, pread=os.pread, pwrite=os.pwrite, fsync=fsync))
    return syncs


def test_nobody_writes_to_the_log_while_it_is_written_again(spool: SpoolFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_file, "BUSY_MS", 0)
    assert spool.folder is not None
    other, told = SpoolFile(spool.folder), []
    other.set_meta("before", 1)

    def write() -> None:
        try:
            other.set_meta("in between", "z" * 9000)
            told.append("kept")
        except BusyError:
            told.append("busy")

    meanwhile(monkeypatch, write)
    fail_to_sync(spool)
    spool.set_meta("after", 2)
    assert told == ["busy"]
    other.set_meta("later", 3)
    found = SpoolFile(spool.folder)
    assert [found.get_meta(name) for name in ("before", "after", "later")] == [1, 2, 3]


def test_the_log_is_written_again_by_whoever_writes_next_and_only_once(
    spool: SpoolFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spool.folder is not None
    other = SpoolFile(spool.folder)
    other.set_meta("before", 1)
    break_disk(monkeypatch)
    fail_to_sync(spool)
    with pytest.raises(UnavailableError, match="fails still"):
        other.set_meta("refused", 2)
    syncs = count_rewrites(monkeypatch)
    assert other.get_meta("before") == 1
    assert len(syncs) == 0
    other.set_meta("kept", 3)
    other.set_meta("kept, too", 4)
    assert len(syncs) == 1
    assert [other.get_meta(name) for name in ("refused", "kept", "kept, too")] == [None, 3, 4]


def test_a_sync_that_failed_just_before_is_settled_before_anything_is_acknowledged(
    spool: SpoolFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process had not come to say so when this one began."""
    assert spool.folder is not None
    mark = spool.folder / f"{NAME}-doubted"
    syncs = count_rewrites(monkeypatch)
    spool.write(lambda connection: mark.touch())
    assert len(syncs) == 1
    break_disk(monkeypatch)
    with pytest.raises(UnavailableError, match="fails still"):
        spool.write(lambda connection: mark.touch())


def test_where_no_mark_can_be_made_the_process_itself_remembers(
    spool: SpoolFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spool.folder is not None
    (spool.folder / f"{NAME}-doubted").symlink_to(spool.folder / "no folder" / "mark")
    break_disk(monkeypatch)
    fail_to_sync(spool)
    syncs = count_rewrites(monkeypatch)
    spool.set_meta("kept", 1)
    assert len(syncs) == 1


def test_a_log_that_could_not_be_synced_when_it_was_to_be_emptied_is_written_again(
    spool: SpoolFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        """A connection whose disk fails when the log is emptied."""

        def __init__(self, real: apsw.Connection) -> None:
            self._real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def wal_checkpoint(self, **how: int) -> None:
            raise apsw.IOError("planted")

    monkeypatch.setattr(spool_file, "LONG_PAGES", 1)
    monkeypatch.setattr(spool, "_connection", Failing(spool._connect(create=False)))
    syncs = count_rewrites(monkeypatch)
    spool.set_meta("kept", 1)
    assert len(syncs) == 1
