"""Connections to a catalog file: how they are opened, what is fixed at creation, how their errors read."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from lastgood.catalog.sqlite.log import LONG_PAGES
from lastgood.errors import (
    BusyError,
    CheckpointError,
    ConflictError,
    DiskFullError,
    FormatError,
    IntegrityError,
    UnavailableError,
)

APPLICATION_ID = 0x6C676F64
PAGE_SIZE = 4096
RESERVE_BYTES = 8  # where the checksum VFS keeps each page's checksum
BUSY_MS = 10_000
NORMAL, FULL, INCREMENTAL = 1, 2, 2

_vfs_lock = threading.Lock()
_VFS = "cksmvfs"


def open_connection(path: Path) -> apsw.Connection:
    """A connection to an existing catalog, with durability and page checksums asserted."""
    _load_checksum_vfs()
    _require_files(path)
    with translated_errors():
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=_VFS)
        _configure(connection)
        if connection.pragma("application_id") != APPLICATION_ID:
            raise FormatError(f"{path.name} is not a lastgood store", hint="give another path, or `lastgood init` one")
        _require("journal_mode", connection.pragma("journal_mode"), "wal")
        if connection.reserve_bytes() != RESERVE_BYTES:
            raise IntegrityError(
                "the store's pages have no room for checksums, so it is damaged or was rewritten by another program",
                hint="bring it back from a copy",
            )
    return connection


def create_connection(path: Path) -> apsw.Connection:
    """A connection to a new, empty database file with everything that cannot be changed later."""
    _load_checksum_vfs()
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
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
    """SQLite reads whatever lies there, and would wait for ever for who writes into a fifo."""
    for file in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        with suppress(OSError):
            if not stat.S_ISREG(file.stat().st_mode):
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
        return BusyError("the store is busy", hint="another program holds it; try again")
    if isinstance(error, apsw.FullError):
        return DiskFullError("the disk is full; nothing was saved", hint="free some space and save again")
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
            hint="other checkpoints may be whole: `lastgood verify --all` says which",
        )
    if isinstance(error, apsw.CantOpenError | apsw.PermissionsError | apsw.ReadOnlyError):
        return UnavailableError(
            "the store cannot be opened for writing",
            hint="look at its path and permissions; on a read-only disk it needs its -wal and -shm files, too",
        )
    if isinstance(error, apsw.IOError):
        return UnavailableError("the disk reported an error; nothing was saved", hint="look at the disk and the log")
    return CheckpointError("the store's database refused this", hint="this is a bug; the log says more")
