"""The spool's file: where it lies, its tables, and a connection that the threads of a process use one at a time.

It is made when there is something to keep, and shared by the processes of a user. A write is durable when the call
returns, unless it says otherwise.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import apsw
import msgspec

from lastgood.catalog.sqlite.connection import (
    LONG_PAGES,
    open_connection,
    open_memory,
    set_synced,
    translate,
    translated_errors,
    write_again,
)
from lastgood.catalog.sqlite.group import nested_write
from lastgood.catalog.sqlite.migration import create_database
from lastgood.engine.options import Options
from lastgood.errors import (
    CheckpointError,
    DiskFullError,
    FormatError,
    FormatVersionError,
    IntegrityError,
    InvalidError,
    NotFoundError,
    ReplayBusyError,
    UnavailableError,
)
from lastgood.local.location import make_private, objects_beside, state_folder
from lastgood.local.paths import CATALOG, open_private
from lastgood.local.process import hold_for_fork, renew_after_fork
from lastgood.model.identity import digest

T = TypeVar("T")
NAME = "spool.sqlite"
VERSION = 1
"""Of the file (docs/reference/format.md): another one is refused."""
BUSY_MS = 2_000
FORK_SECONDS = 5.0

SCHEMA = """
  CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
  CREATE TABLE tasks (task INTEGER PRIMARY KEY, owner TEXT NOT NULL, id TEXT NOT NULL, UNIQUE (owner, id));
  CREATE TABLE entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT, task INTEGER NOT NULL, branch TEXT NOT NULL, owner TEXT NOT NULL,
    id TEXT NOT NULL, parent TEXT, checksum BLOB NOT NULL, key TEXT, follows INTEGER NOT NULL, at INTEGER NOT NULL,
    size INTEGER NOT NULL, UNIQUE (owner, id));
  CREATE INDEX entries_line ON entries (task, branch, number);
  CREATE INDEX entries_parent ON entries (task, parent);
  CREATE TABLE bodies (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
  CREATE TABLE blobs (
    blob INTEGER PRIMARY KEY, task INTEGER NOT NULL, digest BLOB NOT NULL, size INTEGER NOT NULL,
    encoding INTEGER NOT NULL, data BLOB NOT NULL, UNIQUE (task, digest));
  CREATE TABLE aside (number INTEGER PRIMARY KEY, reason TEXT NOT NULL, at INTEGER NOT NULL);
  CREATE TABLE steps (
    owner TEXT NOT NULL, id TEXT NOT NULL, task_id TEXT NOT NULL, step BLOB NOT NULL, size INTEGER, encoding INTEGER,
    snapshot BLOB, PRIMARY KEY (owner, id));
  CREATE TABLE room (data BLOB);
"""

PENDING = "NOT EXISTS (SELECT 1 FROM aside a WHERE a.number = e.number)"
"""Of an entry `e`: it was not set aside."""

_orphans: list[apsw.Connection] = []
"""Connections of a parent process: closing them here could disturb the file."""


# --- the folder ----------------------------------------------------------------------------------------------------


def spool_folder(catalog: Path, options: Options) -> Path | None:
    """Return the folder of a store's spool; None: in memory. It follows from the store's path alone, because the id of
    a store that is away is not known."""
    if options.spool is None:
        return None
    target = os.path.realpath(catalog)
    if isinstance(options.spool, msgspec.UnsetType):
        try:
            above = state_folder() / "spool"
        except NotFoundError:  # a user without a home
            return None
    else:
        above = Path(os.path.abspath(os.path.expanduser(os.fspath(options.spool))))  # noqa: PTH100, PTH111
        _require_outside(Path(os.path.realpath(above)), Path(target))
    folder = above / digest(os.fsencode(target)).hex()[:32]
    if os.path.islink(folder):  # noqa: PTH114  # asked with each opening
        raise InvalidError(f"the spool's folder is a link: {folder}", hint="remove it", field="spool")
    return folder


def _require_outside(folder: Path, catalog: Path) -> None:
    inside = [objects_beside(catalog), *([catalog.parent] if catalog.name == CATALOG else [])]
    if any(folder == each or each in folder.parents for each in inside):
        raise InvalidError(
            "the spool would lie inside the store that it stands in for", hint="give another folder", field="spool"
        )


def free_bytes(folder: Path) -> int | None:
    """Return how much room there is where `folder` is, or would be; None when that cannot be found out."""
    try:
        found = os.statvfs(next(each for each in (folder, *folder.parents) if each.exists()))
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def find_moved(folder: Path | None, why: Literal["other-store", "damaged"] | None = None) -> list[Path]:
    """List the folders that the spool in `folder` was moved to, because another store lay there, or it was damaged."""
    if folder is None:
        return []
    beginnings = tuple(f"{folder.name}.{name}." for name in (("other-store", "damaged") if why is None else (why,)))
    try:
        names = os.listdir(folder.parent)  # noqa: PTH208  # asked when a store is opened: 9 us, with Path.glob 210
    except OSError:
        return []
    return sorted(folder.parent / name for name in names if name.startswith(beginnings))


def create_spool(path: Path) -> None:
    """Make a new file; one that another process has just made is kept."""
    try:
        make_private(path.parent)
        create_database(path, _fill, _link)
    except OSError as error:
        if isinstance(error, CheckpointError):
            raise
        from lastgood.engine.gather import disk_error

        raise disk_error(error) from error


def _fill(connection: apsw.Connection) -> None:
    connection.execute(SCHEMA)
    connection.pragma("user_version", VERSION)


def _link(fresh: Path, path: Path) -> None:
    try:
        os.link(fresh, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        fresh.rename(path)


# --- the database --------------------------------------------------------------------------------------------------


class SpoolFile:
    """The database of a spool. `folder` None: in memory, gone with the process.

    When the index of what waits is damaged, it is not known what there is: the whole folder is moved away, and
    `damaged` is called with the reason and its new place. A damaged entry is refused alone.
    """

    damaged: Callable[[CheckpointError, Path | None], None] = staticmethod(lambda error, kept: None)

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._path = None if folder is None else folder / NAME
        self._connection: apsw.Connection | None = None
        self._log_pages = [0]
        self._is_doubted = False
        self._is_held = False
        self._locked: set[int] = set()
        self._identity: tuple[int, int] | None = None
        self._closed = False
        self._owner = os.getpid()
        self.renew_locks()
        renew_after_fork(self)
        hold_for_fork(self)

    @property
    def durable(self) -> bool:
        return self._path is not None

    def renew_locks(self) -> None:
        """In a child: give up the parent's connection, and its lock for replaying."""
        self._lock = threading.RLock()
        if self._owner != os.getpid():
            if self._connection is not None and self._path is not None:
                _orphans.append(self._connection)
                self._connection = None
            for descriptor in self._locked:
                with suppress(OSError):
                    os.close(descriptor)
            self._locked.clear()
        self._owner = os.getpid()

    def hold(self) -> None:
        """Before fork(): wait until no thread is inside SQLite, whose own locks would stay held in the child."""
        self._is_held = self._lock.acquire(timeout=FORK_SECONDS)

    def let_go(self) -> None:
        """After fork()."""
        if self._is_held:
            self._is_held = False
            self._lock.release()

    @contextmanager
    def replaying(self, wait: Callable[[], bool]) -> Iterator[None]:
        """Lock out other processes that replay. ReplayBusyError when one does and `wait` returns False."""
        if self.folder is None:
            with self._lock:
                yield
            return
        import fcntl

        try:
            descriptor = open_private(self.folder / "replay.lock", os.O_CREAT | os.O_RDWR)
        except OSError as error:
            raise UnavailableError("the spool cannot be used", hint="look at its folder and the disk") from error
        self._locked.add(descriptor)
        try:
            while True:
                with suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if not wait():
                    raise ReplayBusyError("another process is bringing spooled checkpoints into the store", hint="wait")
            yield
        finally:
            if descriptor in self._locked:  # a child that was forked inside has closed its own
                self._locked.discard(descriptor)
                os.close(descriptor)

    def find_work(self) -> tuple[bool, bool]:
        """Return whether a checkpoint waits for the store, and whether a step is open that was begun without it."""
        sql = f"SELECT EXISTS (SELECT 1 FROM entries e WHERE {PENDING}), EXISTS (SELECT 1 FROM steps)"
        nothing: Any = (0, 0)
        has_pending, has_steps = self.read_index(lambda connection: connection.execute(sql).fetchone(), nothing)
        return bool(has_pending), bool(has_steps)

    def get_meta(self, name: str) -> Any:
        sql = "SELECT value FROM meta WHERE name = ?"
        return self.read(lambda connection: connection.execute(sql, (name,)).get, None)

    def set_meta(self, name: str, value: object) -> None:
        self.write(lambda connection: connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value)))

    def reserve(self, size: int) -> None:
        """Allocate so many bytes of the disk, in the file and in its log, and leave them empty."""

        def fill(connection: apsw.Connection) -> None:
            connection.execute("INSERT INTO room VALUES (zeroblob(?))", (size,))

        self.write(fill)
        with self._lock, self._writing():
            self._connect(create=True).wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        self.write(lambda connection: connection.execute("DELETE FROM room"))

    def create(self) -> None:
        """Make the file; where none can be made, keep all in memory from now on. A full disk may get room."""
        with self._lock:
            try:
                self._connect(create=True)
            except DiskFullError:
                return
            except UnavailableError:
                if not self._closed:
                    self.folder = self._path = None

    def move_folder(self, name: str) -> Path | None:
        """Rename the whole folder, with `name` in its new name, so that a new spool begins. Nothing of it is lost."""
        with self._lock:
            self._drop()
            if self.folder is None:
                return None
            for number in range(1, 1000):
                with suppress(OSError):
                    return self.folder.rename(self.folder.with_name(f"{self.folder.name}.{name}.{number}"))
        return None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._drop()

    # --- transactions ----------------------------------------------------------------------------------------------

    def read(self, work: Callable[[apsw.Connection], T], nothing: T) -> T:
        """Return what `work` finds in a snapshot; `nothing` where there is no file."""
        with self._lock:
            if not self._is_there():
                return nothing
            connection = self._connect(create=False)
            with translated_errors():
                try:
                    connection.execute("BEGIN")
                    return work(connection)
                except UnicodeDecodeError as error:
                    raise damaged_entry() from error
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")

    def read_index(self, work: Callable[[apsw.Connection], T], nothing: T) -> T:
        """As `read`, of the index of what waits. If that is damaged, move the folder away and return `nothing`."""
        try:
            return self.read(work, nothing)
        except FormatVersionError:
            raise
        except (IntegrityError, FormatError) as error:
            self.damaged(error, self.move_folder("damaged"))
            return nothing

    def write(self, work: Callable[[apsw.Connection], T], *, durable: bool = True) -> T:
        """Return what `work` gives, after all that it did is committed."""
        with self._lock, self._writing():
            if self._connection is not None and self._identify() != self._identity:
                self._drop()  # it was taken away, and perhaps made anew: what is written to the old one would be gone
            try:
                result = self._transact(work, durable)
            except apsw.FullError:
                self._empty_log(apsw.SQLITE_CHECKPOINT_RESTART)  # what is in the log makes room in it
                result = self._transact(work, durable)
            if self._is_log_doubted():
                self._trust_log()  # a sync that failed just before may have lost what this one is built on
            if self._log_pages[0] >= LONG_PAGES:
                self._empty_log(apsw.SQLITE_CHECKPOINT_PASSIVE)
        return result

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Translate SQLite's errors; after a failed sync no connection goes on as if nothing was."""
        try:
            yield
        except apsw.Error as error:
            self._doubt_log(error)
            raise translate(error) from error

    def _transact(self, work: Callable[[apsw.Connection], T], durable: bool) -> T:
        connection = self._connect(create=True)
        if self._path is not None:
            set_synced(connection, durable)
        try:
            connection.execute("BEGIN IMMEDIATE")
            if self._path is not None and self._is_log_doubted():
                write_again(self._path)
                self._is_doubted = False
                with suppress(OSError):
                    os.unlink(self._mark)  # noqa: PTH108
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                with suppress(apsw.Error):
                    connection.execute("ROLLBACK")
            raise
        return result

    @property
    def _mark(self) -> str:
        """A file that says to every process that a sync of the log has failed. It need not survive power loss: what was
        not synced is gone then, too, and SQLite goes on from what is there."""
        return f"{self._path}-doubted"

    def _is_log_doubted(self) -> bool:
        """Return whether a sync has failed, in any process, and the log was not written again since."""
        if self._path is None:
            return False
        return self._is_doubted or os.path.exists(self._mark)  # noqa: PTH110  # asked twice with each write

    def _trust_log(self) -> None:
        self._transact(lambda connection: None, durable=True)

    def _doubt_log(self, error: apsw.Error) -> None:
        """After a failed sync it is not known what is on the disk: the log is written again at once, or with the next
        write of any process."""
        if self._path is not None and isinstance(error, apsw.IOError):
            self._is_doubted = True  # where the mark cannot be made, either, this process knows
            with suppress(OSError):
                os.close(open_private(self._mark, os.O_CREAT | os.O_WRONLY))
            self._drop()
            with suppress(CheckpointError, apsw.Error):
                self._trust_log()

    def _empty_log(self, how: int) -> None:
        """Move what is in it to the file, as far as no reader needs it. Else the log is as good as the file."""
        try:
            self._connect(create=True).wal_checkpoint(mode=how)
        except apsw.Error as error:
            self._doubt_log(error)

    # --- the connection --------------------------------------------------------------------------------------------

    def _connect(self, *, create: bool) -> apsw.Connection:
        if self._closed:
            raise UnavailableError("this store was closed", hint="open it again")
        if self._connection is not None and self._connection.in_transaction:  # a signal handler came in between
            raise nested_write()
        if self._connection is None:
            if self._path is None:
                self._connection = open_memory()
                self._connection.execute(SCHEMA)
            else:
                if create and not self._path.exists():
                    create_spool(self._path)
                self._identity = self._identify()
                self._connection = _open(self._path)
                self._connection.set_busy_timeout(BUSY_MS)
                self._connection.set_wal_hook(partial(_note_pages, self._log_pages))
        return self._connection

    def _is_there(self) -> bool:
        if self._connection is not None and (self._path is None or self._connection.in_transaction):
            return True
        if self._connection is not None and self._identify() != self._identity:
            self._drop()  # another process has moved it: what is read there does not wait any more
        # Asked with each save, and a Path takes three times as long.
        return self._path is not None and not self._closed and os.path.exists(self._path)  # noqa: PTH110

    def _identify(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)  # noqa: PTH116
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def damaged_entry() -> IntegrityError:
    return IntegrityError("a spooled checkpoint is damaged", hint="look at the disk that the spool lies on")


def _open(path: Path) -> apsw.Connection:
    """Open a file of this version. FormatVersionError for another one, which is left as it is."""
    connection = open_connection(path)
    with translated_errors():
        version = connection.pragma("user_version")
    if version != VERSION:
        connection.close()
        raise FormatVersionError(
            f"the spool of this store has format {version}, and this version of lastgood reads {VERSION}",
            hint=f"open the store with the version of lastgood that spooled, or give another spool; it is {path}",
            format=str(version),
        )
    return connection


def _note_pages(noted: list[int], connection: apsw.Connection, name: str, pages: int) -> int:
    noted[0] = pages
    return apsw.SQLITE_OK
