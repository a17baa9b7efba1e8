"""The schema of a catalog file: made in a new one, and brought up to date in an older one, by numbered migrations."""

from __future__ import annotations

import errno
import functools
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import apsw

from lastgood.catalog.relational.connection import misplaced
from lastgood.catalog.sqlite.connection import create_connection, translated_errors
from lastgood.errors import CheckpointError, DiskFullError, FormatVersionError, UnavailableError
from lastgood.local.paths import open_private
from lastgood.model.identity import ALGORITHM, new_id, now

MAJOR = 2


class Migration(NamedTuple):
    number: int
    name: str
    format: str
    sql: str


_FOLDER = Path(__file__).with_name("migrations")


@functools.cache
def migrations() -> tuple[Migration, ...]:
    found = []
    for file in sorted(_FOLDER.glob("[0-9]*.sql")):
        sql = file.read_text()
        declared = re.match(r"-- format: (\d+\.\d+)\n", sql)
        assert declared, f"{file.name} does not begin with its format"
        found.append(Migration(int(file.name[:4]), file.stem, declared[1], sql))
    return tuple(found)


def pending(connection: apsw.Connection, known: Sequence[Migration]) -> Sequence[Migration]:
    """The migrations still to be applied. Raises FormatVersionError for a store that this version must not touch."""
    applied = connection.pragma("user_version")
    if applied == 0:
        return known
    newest = connection.execute("SELECT format FROM migrations ORDER BY number DESC LIMIT 1").get
    if type(newest) is not str or re.fullmatch(r"\d+\.\d+", newest) is None:
        raise misplaced()
    major = int(newest.partition(".")[0])
    if major != MAJOR:
        raise FormatVersionError(
            f"this store has format {newest}, and this version of lastgood reads {MAJOR}.x",
            hint=f"{'upgrade lastgood' if major > MAJOR else 'open it with the version that wrote it'}; "
            "nothing was changed",
            format=newest,
        )
    named = None
    with suppress(apsw.Error):  # a damaged page is reported where it is read: a repair has to open the store
        named = connection.execute("SELECT value FROM meta WHERE key = 'blob_id'").get
    if named not in (ALGORITHM, None):
        raise FormatVersionError(
            f"this store names its content by {str(named)[:40]!r}, and this version of lastgood knows {ALGORITHM}",
            hint="upgrade lastgood; nothing was changed",
        )
    return [migration for migration in known if migration.number > applied]


def migrate(connection: apsw.Connection, known: Sequence[Migration]) -> Sequence[Migration]:
    """Apply what is pending, one transaction each; what was applied. The caller holds the writers' queue."""
    todo = pending(connection, known)
    for migration in todo:
        with connection:
            connection.execute(migration.sql)
            connection.execute(
                "INSERT INTO migrations VALUES (?, ?, ?, ?)",
                (migration.number, migration.name, migration.format, now()),
            )
            connection.pragma("user_version", migration.number)
    return todo


# --- a new file -----------------------------------------------------------------------------------------------------


def create_catalog(path: Path, known: Sequence[Migration]) -> None:
    """Make a new catalog, whole or not at all."""

    def fill(connection: apsw.Connection) -> None:
        migrate(connection, known)
        describe(connection)

    try:
        create_database(path, fill, Path.rename)
    except OSError as error:
        if isinstance(error, CheckpointError):
            raise
        raise _not_created(error) from error


def create_database(
    path: Path, fill: Callable[[apsw.Connection], None], give_name: Callable[[Path, Path], object]
) -> None:
    """Make a new database file, durable and filled before `give_name` moves it to `path`, or not at all."""
    fresh = path.with_name(f".{path.name}.{new_id()}.new")
    try:
        connection = create_connection(fresh)
        with translated_errors():
            fill(connection)
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            connection.close()
        for leftover in ("-wal", "-shm"):
            fresh.with_name(fresh.name + leftover).unlink(missing_ok=True)
        _sync(fresh)
        _sync_way_to(path.parent)
        # SQLite makes the log with the first commit, and does not say if its name could not be made durable.
        os.close(open_private(path.with_name(path.name + "-wal"), os.O_CREAT | os.O_WRONLY))
        give_name(fresh, path)
        _sync(path.parent)
    finally:
        for end in ("", "-wal", "-shm"):
            remove(fresh.with_name(fresh.name + end))


def remove(scratch: Path) -> None:
    with suppress(OSError):  # must not hide what went wrong
        scratch.unlink(missing_ok=True)


def remove_unfinished(path: Path) -> None:
    """What was left by somebody who was killed while creating or rebuilding. Inside a turn: nobody else is at it."""
    mine = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f-]{{36}}\.new(-wal|-shm|-journal)?")
    for left in path.parent.iterdir():
        if mine.fullmatch(left.name):
            remove(left)


def describe(connection: apsw.Connection) -> None:
    facts = {"store_id": new_id(), "created_at": now(), "blob_id": ALGORITHM}
    with connection:
        connection.executemany("INSERT INTO meta VALUES (?, ?)", facts.items())
        connection.execute("INSERT INTO tasks VALUES (0, '', '', ?, 0, 0, 0, 0)", (facts["created_at"],))


def _sync_way_to(folder: Path) -> None:
    """The folder may have been made a moment ago, by whomever: power loss must not take it away with all that is in it.

    Before the catalog gets its name, so that who finds one need not do this again.
    """
    device = folder.stat().st_dev
    for parent in folder.absolute().parents:
        if parent.stat().st_dev != device:
            return
        with suppress(PermissionError):  # it may be entered and not read, so it was not made for this store
            _sync(parent)


def _not_created(error: OSError) -> UnavailableError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError("the disk is full; there is no room for a store", hint="free some space")
    return UnavailableError("a store cannot be created here", hint="look at the path and its permissions")


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
