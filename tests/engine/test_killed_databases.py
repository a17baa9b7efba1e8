"""Databases in the workspace whose program was killed in the middle of a transaction, with its journal beside them, or
comes and goes while they are copied."""

from __future__ import annotations

import os
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.file_trees import Bench, bench

import lastgood.errors
from lastgood.files.read import without_ctime
from lastgood.local import database as database_module
from lastgood.local.paths import signature

pytestmark = pytest.mark.once

_KILLED = """
import os, signal, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA cache_size = 5")  # what does not fit is written before the commit
for number, other in enumerate(sys.argv[2:]):
    database.execute(f"ATTACH ? AS other{number}", (other,))
    database.execute(f"PRAGMA other{number}.cache_size = 5")
database.execute("BEGIN")
for schema in ["main", *(f"other{number}" for number in range(len(sys.argv) - 2))]:
    database.execute(f"UPDATE {schema}.t SET x = x + 1000, y = 'torn'")
    database.executemany(f"INSERT INTO {schema}.t VALUES (?, ?)", [(-1, "torn " * 500) for _ in range(200)])
os.kill(os.getpid(), signal.SIGKILL)
"""
MAGIC = bytes.fromhex("d9d505f920a163d7")


@pytest.fixture
def place() -> Iterator[Bench]:
    with bench() as made:
        yield made


def _make(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE t (x, y)")
        database.executemany("INSERT INTO t VALUES (?, ?)", [(number, "whole " * 300) for number in range(100)])


def _kill_in_transaction(path: Path, *others: Path) -> None:
    code = subprocess.run([sys.executable, "-c", _KILLED, path, *others], check=False).returncode
    assert code == -signal.SIGKILL
    assert _journal(path).read_bytes().startswith(MAGIC)


def _journal(path: Path) -> Path:
    return path.with_name(path.name + "-journal")


def _rows(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [row[0] for row in database.execute("SELECT x FROM t ORDER BY x")]


def _name_super_journal(path: Path, name: bytes) -> None:
    """Have the journal name a file, as that of a transaction in several databases does."""
    end = struct.pack(">II", len(name), sum(name)) + MAGIC
    with _journal(path).open("ab") as file:
        file.write(b"\0\0\0\0" + name + end)


def _signatures(path: Path) -> list[object]:
    """Return what a write to the database or its journal would change; SQLite gives the latter its owner, as root."""
    return [signature(path.stat()), without_ctime(signature(_journal(path).stat())), _journal(path).read_bytes()]


def test_a_database_is_saved_as_it_was_before_the_transaction_and_left_to_its_program(place: Bench) -> None:
    """L1: it had been skipped, with every save, until its program came back."""
    store, root = place
    task, path = store.task("t", workspace=root), root / "app.db"
    _make(path)
    _kill_in_transaction(path)
    seen = _signatures(path)
    saved = task.save({})
    assert saved.skipped == ()
    assert task.save({}).skipped == ()
    assert _signatures(path) == seen
    task.copy_files(saved, root.parent / "copy")
    assert [each.name for each in (root.parent / "copy").iterdir()] == ["app.db"]
    assert _rows(root.parent / "copy" / "app.db") == list(range(100))
    assert _rows(path) == list(range(100))


_LOGGED = """
import os, signal, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA journal_mode = wal")
database.execute("INSERT INTO t VALUES (-1, 'logged')")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["journal", "log", "size in the log alone"])
def test_a_sparse_database_does_not_fill_the_disk(place: Bench, how: str) -> None:
    """H1: a few kilobytes on disk were copied as gigabytes of data, or read through for minutes."""
    store, root = place
    task, path, size = store.task("t", workspace=root), root / "app.db", 256 << 20
    _make(path)
    if how == "journal":
        _kill_in_transaction(path)
        os.truncate(path, size)
    else:
        with path.open("r+b") as file:
            count = file.read(28)[24:]
            for at, number in {28: struct.pack(">I", size // 4096), 92: count}.items():
                file.seek(at)
                file.write(number)
            file.truncate(size)
        subprocess.run([sys.executable, "-c", _LOGGED, path], check=False)
        if how != "log":
            os.truncate(path, 1 << 20)
    (left,) = task.save({}).skipped
    assert left.path == "app.db"
    assert left.reason.endswith("the database is in use, and far larger than the data in it")


def test_the_copy_of_a_killed_database_ends_at_the_deadline(place: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """H1: a second remains in any case, which is over here as soon as it begins."""
    _, root = place
    path, clock = root / "app.db", iter(range(0, 1 << 20, 2))
    _make(path)
    _kill_in_transaction(path)
    monkeypatch.setattr(database_module, "_wait_for_tick", lambda stamp: True)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    found = path.stat()
    with pytest.raises(lastgood.errors.BusyError, match="took too long"):
        database_module.copy_database(str(path), (found.st_ino, found.st_dev), root.parent / "copy", 0.0)


@pytest.mark.parametrize("goes", [False, True], ids=["replaced", "removed"])
def test_a_journal_is_never_rolled_back_into_a_restored_database(place: Bench, goes: bool) -> None:
    """L1: it goes with the database that it belongs to; undoing that brings back what was committed."""
    store, root = place
    task, path = store.task("t", workspace=root), root / "app.db"
    empty = task.save({})
    _make(path)
    first = task.save({})
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE t SET x = x + 7")
    _kill_in_transaction(path)
    assert task.restore(empty if goes else first).failed == ()
    assert not _journal(path).exists()
    assert path.exists() != goes
    if not goes:
        assert _rows(path) == list(range(100))
    assert task.undo().skipped == ()
    assert _rows(path) == list(range(7, 107))


@pytest.mark.parametrize("committed", [False, True])
def test_a_transaction_in_several_databases_is_in_all_of_them_or_in_none(place: Bench, committed: bool) -> None:
    """L1: it is committed as soon as the file that all of their journals name is gone."""
    store, root = place
    task, path = store.task("t", workspace=root), root / "app.db"
    _make(path)
    _kill_in_transaction(path)
    named = root / "app.db-mj01234567"
    if not committed:
        named.write_bytes(os.fsencode(_journal(path)) + b"\0")
    _name_super_journal(path, os.fsencode(named))
    seen = _signatures(path)
    saved = task.save({})
    assert saved.skipped == ()
    assert _signatures(path) == seen
    task.copy_files(saved, root.parent / "copy")
    with closing(sqlite3.connect(root.parent / "copy" / "app.db")) as database:
        (torn,) = database.execute("SELECT count(*) FROM t WHERE y LIKE 'torn%'").fetchone()
    assert (torn > 0) == committed
    assert named.exists() != committed


@pytest.mark.parametrize("beside", [False, True])
def test_a_journal_can_have_no_file_opened_or_deleted(place: Bench, beside: bool) -> None:
    """L2: SQLite deletes what a journal names as its super-journal, unless another journal does, too."""
    store, root = place
    task, path, victim = store.task("t", workspace=root), root / "app.db", (root if beside else root.parent) / "victim"
    victim.write_text("precious")
    _make(path)
    _kill_in_transaction(path)
    _name_super_journal(path, os.fsencode(victim))
    reason = "unreadable: a transaction in several databases was not finished: open it with its program once"
    assert task.save({}).skipped == (() if beside else (("app.db", reason),))
    assert victim.read_text() == "precious"
    assert _journal(path).exists()


def test_a_journal_cannot_make_a_database_longer_than_both_are(place: Bench) -> None:
    """H3: a few bytes that say so had SQLite make a file of 256 TB."""
    store, root = place
    task, path = store.task("t", workspace=root), root / "app.db"
    _make(path)
    _kill_in_transaction(path)
    with _journal(path).open("r+b") as file:
        file.seek(16)
        file.write(b"\x7f\xff\xff\xff")
    (skipped,) = task.save({}).skipped
    assert skipped == ("app.db", "unreadable: the journal of the database is damaged")


def test_a_program_that_comes_back_meanwhile_is_noticed(place: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """L1: what it commits while the files are copied is in neither of them whole."""
    _, root = place
    path = root / "app.db"
    _make(path)
    _kill_in_transaction(path)
    copy_file = database_module._copy_file

    def come_back(give_up: float, folder: int, name: str, to: Path) -> None:
        copy_file(give_up, folder, name, to)
        if not name.endswith("-journal"):
            assert _rows(path) == list(range(100))
            _kill_in_transaction(path)

    monkeypatch.setattr(database_module, "_copy_file", come_back)
    found = path.stat()
    with pytest.raises(lastgood.errors.BusyError):
        database_module.copy_database(str(path), (found.st_ino, found.st_dev), root.parent / "copy", 0.0)


def test_a_database_that_was_just_written_is_tried_again_until_the_deadline(
    place: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H1: in WAL mode, by programs that open and close it every few milliseconds."""
    _, root = place
    path, copy = root / "app.db", root.parent / "copy"
    _make(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = wal")
    is_settled = [False, False, True]
    monkeypatch.setattr(database_module, "_wait_for_tick", lambda stamp: is_settled.pop(0))
    found = path.stat()
    database_module.copy_database(str(path), (found.st_ino, found.st_dev), copy, time.monotonic() + 60)
    assert _rows(copy) == list(range(100))
    is_settled.append(False)
    with pytest.raises(lastgood.errors.BusyError):
        database_module.copy_database(str(path), (found.st_ino, found.st_dev), copy, 0.0)


def test_a_link_in_the_way_to_it_does_not_bring_in_the_journal_of_another_database(
    place: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L2: pages of it would be in the copy, for whoever may read that and not the other database."""
    _, root = place
    folder, other = root / "deep", root.parent / "other"
    for each in (folder, other):
        each.mkdir()
        _make(each / "app.db")
    with closing(sqlite3.connect(other / "app.db")) as database, database:
        database.execute("UPDATE t SET y = 'private'")
    for each in (folder, other):
        _kill_in_transaction(each / "app.db")
    copy_file = database_module._copy_file

    def copy_behind_link(*about: object) -> None:
        is_journal = str(about[-2]).endswith("-journal")
        if is_journal:
            folder.rename(root / "aside")
            folder.symlink_to(other)
        copy_file(*about)  # type: ignore[arg-type]
        if is_journal:
            folder.unlink()
            (root / "aside").rename(folder)

    monkeypatch.setattr(database_module, "_copy_file", copy_behind_link)
    found, copy = (folder / "app.db").stat(), root.parent / "copy"
    database_module.copy_database(str(folder / "app.db"), (found.st_ino, found.st_dev), copy, 0.0)
    assert b"private" not in copy.read_bytes()
    assert _rows(copy) == list(range(100))
