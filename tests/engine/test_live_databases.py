"""Databases in the workspace that another process writes without a pause, while they are saved and restored (L1)."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import lastgood

pytestmark = pytest.mark.once

WRITER = """
import itertools, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
database.execute(f"PRAGMA journal_mode = {sys.argv[2]}")
database.execute("PRAGMA synchronous = OFF")
database.execute("PRAGMA cache_size = 5")  # what does not fit is written before the commit
for table in ("one", "two", "large"):
    database.execute(f"CREATE TABLE IF NOT EXISTS {table} (n INTEGER PRIMARY KEY, text)")
for number in itertools.count(1):
    database.execute("BEGIN IMMEDIATE")
    database.execute("INSERT INTO one VALUES (?, '')", (number,))
    database.execute("REPLACE INTO large VALUES (1, ?)", (f"{number} " * 4000,))
    database.execute("INSERT INTO two VALUES (?, '')", (number,))
    database.execute("COMMIT")
    print(number, flush=True)
"""
SAVES = 8


class Writer:
    """A process that commits the same number into two tables, again and again, and says each number then."""

    def __init__(self, path: Path, mode: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", WRITER, path, mode], stdout=subprocess.PIPE, text=True)
        self._said = threading.Condition()
        self._last = 0
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        """Read all that it says: it would wait when the pipe is full, and write nothing more."""
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.endswith("\n"):
                    with self._said:
                        self._last = int(line)
                        self._said.notify_all()

    def committed(self) -> int:
        """Wait for the next number that is committed."""
        with self._said:
            before = self._last
            assert self._said.wait_for(lambda: self._last > before, timeout=60)
            return self._last

    def kill(self) -> int:
        """End it in the middle of its work; return the last number that it said."""
        self.process.kill()
        self._thread.join()
        self.process.wait()
        return self._last


@contextmanager
def writing(path: Path, mode: str) -> Iterator[Writer]:
    writer = Writer(path, mode)
    try:
        yield writer
    finally:
        if writer.process.poll() is None:
            writer.kill()


def _last(path: Path) -> int:
    """Return the last number, after a look at the whole of it: all numbers, in both tables, and no other."""
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        one, two = (database.execute(f"SELECT n FROM {table} ORDER BY n").fetchall() for table in ("one", "two"))
    assert one == two == [(number,) for number in range(1, len(one) + 1)]
    return len(one)


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_what_is_saved_is_one_moment_and_what_is_restored_loses_no_commit(tmp_path: Path, mode: str) -> None:
    """L1, H1: a save has a transaction whole or not at all, or says that it has no database; a restore leaves alone
    what is being written, and says so."""
    work = tmp_path / "work"
    work.mkdir()
    path, other = work / "app.db", work / "other"
    with lastgood.open(tmp_path / "store", user="ada", collect="never") as store:
        task = store.task("t", workspace=work)
        saved = []
        with writing(path, mode) as writer:
            for number in range(SAVES):
                least = writer.committed()
                other.write_text(str(number))
                made = task.save({"n": number})
                told = {one.path for one in made.skipped}
                assert told <= {"app.db", "app.db-journal", "."}  # the folder, in which a journal comes and goes
                if "app.db" not in told:
                    copy = tmp_path / str(number)
                    task.copy_files(made, copy)
                    assert _last(copy / "app.db") >= least
                    saved.append((made, _last(copy / "app.db")))
            assert saved, "a database that is written without a pause was never captured"
            for first, _ in saved[:2]:
                done = task.restore(first)
                assert [failed for failed, _ in done.failed] == ["app.db"]
                assert f"process {writer.process.pid} has the database open" in done.failed[0][1]
                least = writer.committed()
            least = max(least, writer.kill())
        assert _last(path) >= least
        chosen, last = saved[0]
        before = _last(path)
        assert task.restore(chosen).failed == ()
        assert _last(path) == last
        assert task.undo().skipped == ()
        assert _last(path) == before
