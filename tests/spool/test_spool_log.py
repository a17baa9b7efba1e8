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
from lastgood.spool import database
from lastgood.spool.database import SpoolDatabase
from lastgood.spool.log import Log
from lastgood.spool.place import NAME

pytestmark = pytest.mark.once


@pytest.fixture
def spool(tmp_path: Path) -> SpoolDatabase:
    """With a log that was emptied: what is written next stands in front of what was there before."""
    made = SpoolDatabase(tmp_path / "spool")
    made.reserve(1 << 16)
    return made


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Once, after a part of the log was read to be written again."""

    def pread(*about: Any) -> bytes:
        part = os.pread(*about)
        monkeypatch.setattr(connection, "os", os)
        act()
        return part

    monkeypatch.setattr(connection, "os", SimpleNamespace(pread=pread, pwrite=os.pwrite, fsync=os.fsync))


def fail_to_sync(spool: SpoolDatabase) -> None:
    def work(connection: apsw.Connection) -> None:
        raise apsw.IOError("planted")

    with pytest.raises(UnavailableError):
        spool.write(work)


def break_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log cannot be synced, either, when it is written again."""

    def fsync(descriptor: int) -> None:
        raise OSError(errno.EIO, "planted")

    monkeypatch.setattr(connection, "os", SimpleNamespace(pread=os.pread, pwrite=os.pwrite, fsync=fsync))


def count_rewrites(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each time that the log is synced after it was written again."""
    syncs: list[int] = []

    def fsync(descriptor: int) -> None:
        syncs.append(descriptor)
        os.fsync(descriptor)

    monkeypatch.setattr(connection, "os", SimpleNamespace(pread=os.pread, pwrite=os.pwrite, fsync=fsync))
    return syncs


def test_nobody_writes_to_the_log_while_it_is_written_again(
    spool: SpoolDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_MS", 0)
    assert spool.folder is not None
    other, told = SpoolDatabase(spool.folder), []
    other.note("before", 1)

    def write() -> None:
        try:
            other.note("in between", "z" * 9000)
            told.append("kept")
        except BusyError:
            told.append("busy")

    meanwhile(monkeypatch, write)
    fail_to_sync(spool)
    spool.note("after", 2)
    assert told == ["busy"]
    other.note("later", 3)
    found = SpoolDatabase(spool.folder)
    assert [found.fact(name) for name in ("before", "after", "later")] == [1, 2, 3]


def test_the_log_is_written_again_by_whoever_writes_next_and_only_once(
    spool: SpoolDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spool.folder is not None
    other = SpoolDatabase(spool.folder)
    other.note("before", 1)
    break_disk(monkeypatch)
    fail_to_sync(spool)
    with pytest.raises(UnavailableError, match="fails still"):
        other.note("refused", 2)
    syncs = count_rewrites(monkeypatch)
    assert other.fact("before") == 1
    assert len(syncs) == 0
    other.note("kept", 3)
    other.note("kept, too", 4)
    assert len(syncs) == 1
    assert [other.fact(name) for name in ("refused", "kept", "kept, too")] == [None, 3, 4]


def test_a_sync_that_failed_just_before_is_settled_before_anything_is_acknowledged(
    spool: SpoolDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process had not come to say so when this one began."""
    assert spool.folder is not None
    other = Log(spool.folder / NAME)
    syncs = count_rewrites(monkeypatch)
    spool.write(lambda connection: other.doubt())
    assert len(syncs) == 1
    break_disk(monkeypatch)
    with pytest.raises(UnavailableError, match="fails still"):
        spool.write(lambda connection: other.doubt())


def test_where_no_mark_can_be_made_the_process_itself_remembers(
    spool: SpoolDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spool.folder is not None
    (spool.folder / f"{NAME}-doubted").symlink_to(spool.folder / "no folder" / "mark")
    break_disk(monkeypatch)
    fail_to_sync(spool)
    syncs = count_rewrites(monkeypatch)
    spool.note("kept", 1)
    assert len(syncs) == 1


def test_a_log_that_could_not_be_synced_when_it_was_to_be_emptied_is_written_again(
    spool: SpoolDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        """A connection whose disk fails when the log is emptied."""

        def __init__(self, real: apsw.Connection) -> None:
            self._real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def wal_checkpoint(self, **how: int) -> None:
            raise apsw.IOError("planted")

    monkeypatch.setattr(database, "LONG_PAGES", 1)
    monkeypatch.setattr(spool, "_connection", Failing(spool._connect(create=False)))
    syncs = count_rewrites(monkeypatch)
    spool.note("kept", 1)
    assert len(syncs) == 1
