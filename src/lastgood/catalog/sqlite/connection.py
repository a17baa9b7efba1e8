"""Connections to a catalog file: how they are opened, what is fixed at creation, how their errors read; and its log."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from lastgood.catalog.relational.collection import SQL as COLLECTION
from lastgood.catalog.relational.connection import Row, Values
from lastgood.catalog.relational.records import SQL as RECORDS
from lastgood.catalog.sqlite.queue import only_readable
from lastgood.catalog.values import FILES
from lastgood.errors import (
    BusyError,
    CheckpointError,
    ConflictError,
    DiskFullError,
    FormatError,
    IntegrityError,
    UnavailableError,
)
from lastgood.local.paths import APPLICATION_ID, open_private
from lastgood.model.identity import now

PAGE_SIZE = 4096
_LOG_HEAD, _FRAME_HEAD = 32, 24
RESERVE_BYTES = 8  # where the checksum VFS keeps each page's checksum
BUSY_MS = 10_000
NORMAL, FULL, INCREMENTAL = 1, 2, 2
LONG_PAGES = 1000
"""A write-ahead log with so many is moved to the database."""
_LOG_PART = 1 << 20

_vfs_lock = threading.Lock()
_VFS = "cksmvfs"


class SQLiteConnection:
    """A connection as transactions expect it (relational/connection.py), over one of apsw's.

    All statements are run by one cursor: a new one for each takes as long as a small statement. So each of them ends
    the one before, also one that an interrupt has left in the middle.
    """

    __slots__ = ("execute", "executemany", "now", "raw")

    def __init__(self, raw: apsw.Connection, clock: Callable[[], int] = now) -> None:
        cursor = raw.cursor()
        self.raw = raw
        self.now = clock
        self.execute = cursor.execute
        self.executemany = cursor.executemany

    def all(self, sql: str, /, **values: Any) -> list[Row]:
        return self.execute(sql, values).fetchall()

    def one(self, sql: str, /, **values: Any) -> Row | None:
        found = self.execute(sql, values).fetchall()
        return found[0] if found else None

    def value(self, sql: str, /, **values: Any) -> Any:
        return self.execute(sql, values).get

    def all_of(self, reads: Mapping[str, tuple[str, Values]], /) -> dict[str, list[Row]]:
        execute = self.execute
        return {name: execute(sql, values).fetchall() for name, (sql, values) in reads.items()}

    def all_many(self, sql: str, many: Iterable[Values], /) -> list[Row]:
        return self.executemany(sql, many).fetchall()

    def run(self, sql: str, /, **values: Any) -> None:
        self.execute(sql, values)

    def count(self, sql: str, /, **values: Any) -> int:
        self.execute(sql, values)
        return self.raw.changes()

    def run_many(self, sql: str, many: Iterable[Values], /) -> int:
        before = self.raw.total_changes()
        self.executemany(sql, many)
        return self.raw.total_changes() - before

    def lock_task(self, owner: str, id: str) -> None:
        """Do nothing: writers are one at a time."""

    def guard_blobs(self, digests: Sequence[bytes]) -> set[bytes]:
        # Two statements: one would write the row of every blob, condemned or not.
        values = [{"partition": FILES, "digest": digest} for digest in digests]
        found = {digest for (digest,) in self.all_many(RECORDS.has_blob, values)}
        self.run_many(COLLECTION.acquit, (each for each in values if each["digest"] in found))
        return found


def open_connection(path: Path, *, read_only: bool = False) -> apsw.Connection:
    """A connection to an existing catalog, with durability and page checksums asserted. One that is `read_only` writes
    nothing and waits for nobody."""
    _load_checksum_vfs()
    _require_files(path)
    with translated_errors():
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
        connection = apsw.Connection(str(path), flags=flags, vfs=_VFS)
        try:
            _configure(connection)
        except (apsw.ReadOnlyError, apsw.CantOpenError) as error:
            connection = _open_unwritable(path, error)
        if read_only:
            connection.set_busy_timeout(0)
        if connection.pragma("application_id") != APPLICATION_ID:
            raise FormatError(f"{path.name} is not a lastgood store", hint="give another path")
        _require("journal_mode", connection.pragma("journal_mode"), "delete" if unwritten(connection, path) else "wal")
        if connection.reserve_bytes() != RESERVE_BYTES:
            raise IntegrityError(
                "the store's pages have no room for checksums, so it is damaged or was rewritten by another program",
                hint="bring it back from a copy",
            )
    return connection


def _open_unwritable(path: Path, error: apsw.Error) -> apsw.Connection:
    """Open a catalog in a folder that cannot be written, where SQLite cannot begin a log: without one, if it is empty.
    SQLite takes no lock then: `unwritten` says whether others have written meanwhile."""
    log = path.with_name(path.name + "-wal")
    if not path.exists():
        raise error
    if not log.exists() or log.stat().st_size:
        raise UnavailableError(
            "where a store can only be read it needs its -wal and -shm files",
            hint="look at its permissions, or copy it to where it can be written",
        ) from error
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"{path.absolute().as_uri()}?immutable=1", flags=flags, vfs=_VFS)
    _configure(connection)
    return connection


def unwritten(connection: apsw.Connection, path: Path) -> tuple[int, ...]:
    """Return what changes when somebody writes to a catalog; empty where SQLite finds that out by itself."""
    if not connection.open_flags & apsw.SQLITE_OPEN_URI:
        return ()
    with suppress(OSError):
        files = [file.stat() for file in (path, path.with_name(path.name + "-wal"))]
        return tuple(value for found in files for value in (found.st_mtime_ns, found.st_size, found.st_ino))
    return (0,)


def ends_within_page(path: Path, pages: int | None = None) -> bool:
    """Return whether the file is cut off in a page that is not in the log either: its rest would be read as zeros.

    A short page has no checksum that SQLite could compare. One that was being written when its process ended is in
    the log, and is read from there. `pages`: how many the database has, if that is known; what is beyond is not read.
    """
    try:
        whole, rest = divmod(path.stat().st_size, PAGE_SIZE)
    except OSError:  # it went away since it was opened, which the next read reports
        return False
    if not rest or (pages is not None and whole >= pages):
        return False
    return whole + 1 not in _logged_pages(path.with_name(path.name + "-wal"))


def _logged_pages(log: Path) -> set[int]:
    try:
        data = log.read_bytes()
    except FileNotFoundError:
        return set()
    salts, frames = data[16:24], range(_LOG_HEAD, len(data), _FRAME_HEAD + PAGE_SIZE)
    heads = (data[start : start + _FRAME_HEAD] for start in frames)
    return {int.from_bytes(head[:4], "big") for head in heads if head[8:16] == salts}


def create_connection(path: Path) -> apsw.Connection:
    """A connection to a new, empty database file with everything that cannot be changed later."""
    _load_checksum_vfs()
    os.close(open_private(path, os.O_CREAT | os.O_EXCL | os.O_RDWR))
    with translated_errors():
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=_VFS)
        connection.reserve_bytes(reserve=RESERVE_BYTES)
        connection.pragma("page_size", PAGE_SIZE)
        connection.pragma("auto_vacuum", INCREMENTAL)
        _require("journal_mode", connection.pragma("journal_mode", "wal"), "wal")
        _configure(connection)
        connection.pragma("application_id", APPLICATION_ID)
        _require("auto_vacuum", connection.pragma("auto_vacuum"), INCREMENTAL)
    return connection


def open_memory() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    _plan_once(connection)
    return connection


def _plan_once(connection: apsw.Connection) -> None:
    # Without this SQLite plans a cached statement anew whenever its bindings change: 24 us for a lookup, not 3.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _configure(connection: apsw.Connection) -> None:
    _plan_once(connection)
    connection.set_busy_timeout(BUSY_MS)
    connection.pragma("synchronous", FULL)
    _require("synchronous", connection.pragma("synchronous"), FULL)
    connection.wal_autocheckpoint(0)  # SQLite would keep to itself what goes wrong with it
    connection.pragma("journal_size_limit", LONG_PAGES * PAGE_SIZE)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)


def _require_files(path: Path) -> None:
    """SQLite reads whatever lies there, and would wait for ever for who writes into a fifo. It obeys a journal, which a
    database with a log never has: one of 4.6 KB made a catalog 8 TiB long."""
    real = os.path.realpath(path)  # beside that is where SQLite looks
    for file in (Path(real + end) for end in ("", "-wal", "-shm", "-journal")):
        with suppress(OSError):
            found = file.lstat()
            is_regular = stat.S_ISREG(found.st_mode)
            if file.name.endswith("-journal") and (found.st_size or not is_regular):
                raise IntegrityError(
                    f"{file.name} is there, and a store has no journal: another program or somebody put it there",
                    hint=f"remove {file}; nothing was read from it",
                )
            if not is_regular:
                raise IntegrityError(
                    f"something else is in the place of {file.name}, a file of the store",
                    hint="was it put there by hand? "
                    + ("Remove it" if file.name.endswith("-shm") else "Bring the store back from a copy"),
                )


def _require(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise UnavailableError(
            f"the database would not take {what}={wanted} (it has {got}), so nothing can be promised",
            hint="is the store on a network file system, or was it written by another program?",
        )


def _load_checksum_vfs() -> None:
    """Once per process. The VFS is used by name; other users of apsw keep the default they had."""
    with _vfs_lock:
        if _VFS in apsw.vfs_names():
            return
        default = apsw.vfs_names()[0]
        carrier = apsw.Connection(":memory:")
        carrier.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1)
        carrier.load_extension(_checksum_vfs_file())
        carrier.close()
        apsw.set_default_vfs(default)


def _checksum_vfs_file() -> str:
    suffix = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
    guess = Path(apsw.__file__).with_name("sqlite_extra_binaries") / f"cksumvfs{suffix}"
    if guess.exists():
        return str(guess)
    import apsw.sqlite_extra as extra  # 20 ms of imports, so only where the file has moved

    return str(extra.path("cksumvfs"))


def set_synced(connection: apsw.Connection, synced: bool) -> None:
    """Whether commits wait for the disk."""
    connection.execute(f"PRAGMA synchronous = {FULL if synced else NORMAL}")


def write_again(catalog: Path) -> None:
    """Make everything in the write-ahead log durable, whatever was tried before. Nobody may write to it meanwhile.

    After a failed fsync Linux takes the pages for written, and the next fsync succeeds without writing them. Commits
    that did not wait for the disk may be among them: each frame's checksum continues that of the one before, so that a
    hole in the log would take every later commit with it. So all of it is written again before anything is added.
    """
    try:
        with open(f"{catalog}-wal", "r+b", buffering=0, opener=open_private) as file:
            position = 0
            while part := os.pread(file.fileno(), _LOG_PART, position):
                position += os.pwrite(file.fileno(), part, position)
            os.fsync(file.fileno())
    except FileNotFoundError:
        return
    except OSError as error:
        raise UnavailableError(
            "the disk has failed to keep what was written, and fails still", hint="look at the disk and the log"
        ) from error


@contextmanager
def translated_errors() -> Iterator[None]:
    """The one place where SQLite's errors become ours."""
    try:
        yield
    except apsw.Error as error:
        raise translate(error) from error


def told(error: Exception) -> Exception:
    """As it is raised to the engine: SQLite's in our words, any other as it is."""
    if not isinstance(error, apsw.Error):
        return error
    translated = translate(error)
    translated.__cause__ = error
    return translated


def translate(error: apsw.Error) -> CheckpointError:
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return BusyError("the store is locked by another program", hint="try again when that has ended")
    if isinstance(error, apsw.FullError):
        return DiskFullError("the disk is full", hint="nothing was saved: free some space and save again")
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:
        return DiskFullError(
            "there is no room to open the store, or its disk fails",
            hint="free some space (64 KiB do), or look at the disk",
        )
    if isinstance(error, apsw.ConstraintError):
        return ConflictError("an id or a name is taken by something else", hint="give another one")
    if isinstance(error, apsw.NotADBError):
        return FormatError("this file is not a lastgood store", hint="give another path")
    if isinstance(error, apsw.CorruptError) or getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA:
        return IntegrityError(
            "the store's database is damaged here; what it says cannot be trusted",
            hint="other checkpoints may be whole: store.check(read_data=True) says which",
        )
    if isinstance(error, apsw.ReadOnlyError):
        return only_readable()
    if isinstance(error, apsw.CantOpenError | apsw.PermissionsError):
        return UnavailableError("the store cannot be opened", hint="look at its path, its disk and its permissions")
    if isinstance(error, apsw.IOError):
        return UnavailableError("the disk reported an error", hint="nothing was saved: look at the disk and the log")
    return CheckpointError("the store's database refused this", hint="this is a bug; the log says more")
