"""The spool's own database: opened when there is something to keep, shared by the processes of a user.

One connection for a process, used by one thread at a time. Durable when a call returns, unless it says otherwise.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw

from lastgood.catalog.sqlite.connection import (
    LONG_PAGES,
    open_connection,
    open_memory,
    set_synced,
    translate,
    translated_errors,
)
from lastgood.catalog.sqlite.group import nested_write
from lastgood.errors import CheckpointError, DiskFullError, ReplayBusyError, UnavailableError
from lastgood.local.fork import hold_for_fork, renew_after_fork
from lastgood.spool.entry import damaged
from lastgood.spool.log import Log
from lastgood.spool.place import NAME
from lastgood.spool.schema import SCHEMA, create_spool

T = TypeVar("T")
BUSY_MS = 2_000
FORK_SECONDS = 5.0

_orphans: list[apsw.Connection] = []
"""Of a parent process: closing them here could disturb the file."""


class SpoolDatabase:
    """`folder` None: in memory, gone with the process."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._path = None if folder is None else folder / NAME
        self._connection: apsw.Connection | None = None
        self._log = None if self._path is None else Log(self._path)
        self._log_pages = [0]
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
        """In a child: neither the connection nor the lock of who replays are its own."""
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
        """Before fork(): no thread is inside SQLite, whose own locks would stay held in the child."""
        self._is_held = self._lock.acquire(timeout=FORK_SECONDS)

    def let_go(self) -> None:
        if self._is_held:
            self._is_held = False
            self._lock.release()

    @contextmanager
    def replaying(self, wait: Callable[[], bool]) -> Iterator[None]:
        """One process at a time. BusyError when another one has it and `wait` is tired of waiting."""
        if self.folder is None:
            with self._lock:
                yield
            return
        import fcntl

        try:
            descriptor = os.open(self.folder / "replay.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UnavailableError("the spool cannot be used", hint="look at its folder and the disk") from error
        self._locked.add(descriptor)
        try:
            while not _try_lock(fcntl, descriptor):
                if not wait():
                    raise ReplayBusyError("another process is bringing spooled checkpoints into the store", hint="wait")
            yield
        finally:
            if descriptor in self._locked:  # a child that was forked inside has closed its own
                self._locked.discard(descriptor)
                os.close(descriptor)

    def fact(self, name: str) -> Any:
        sql = "SELECT value FROM meta WHERE name = ?"
        return self.read(lambda connection: connection.execute(sql, (name,)).get, None)

    def note(self, name: str, value: object) -> None:
        self.write(lambda connection: connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value)))

    def reserve(self, size: int) -> None:
        """Take so many bytes of the disk, in the file and in its log, and leave them empty."""

        def fill(connection: apsw.Connection) -> None:
            connection.execute("INSERT INTO room VALUES (zeroblob(?))", (size,))

        self.write(fill)
        with self._lock, self._writing():
            self._connect(create=True).wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        self.write(lambda connection: connection.execute("DELETE FROM room"))

    def make(self) -> None:
        """The file is there; where none can be made, all is kept in memory from now on. A full disk may get room."""
        with self._lock:
            try:
                self._connect(create=True)
            except DiskFullError:
                return
            except UnavailableError:
                if not self._closed:
                    self.folder = self._path = self._log = None

    def leave_behind(self, name: str) -> Path | None:
        """Put the whole spool out of the way, under a name that says what it is; nothing of it is lost."""
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

    def _identify(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

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
                self._connection = open_connection(self._path)
                self._connection.set_busy_timeout(BUSY_MS)
                self._connection.set_wal_hook(partial(_note_pages, self._log_pages))
        return self._connection

    def read(self, work: Callable[[apsw.Connection], T], nothing: T) -> T:
        with self._lock:
            if self._connection is None and (self._path is None or self._closed or not os.path.exists(self._path)):  # noqa: PTH110
                return nothing  # asked with each save, and a Path takes three times as long
            connection = self._connect(create=False)
            with translated_errors():
                try:
                    connection.execute("BEGIN")
                    return work(connection)
                except UnicodeDecodeError as error:
                    raise damaged() from error
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")

    def write(self, work: Callable[[apsw.Connection], T], *, durable: bool = True) -> T:
        with self._lock, self._writing():
            if self._connection is not None and self._identify() != self._identity:
                self._drop()  # it was taken away, and perhaps made anew: what is written to the old one would be gone
            try:
                result = self._transact(work, durable)
            except apsw.FullError:
                self._empty_log(apsw.SQLITE_CHECKPOINT_RESTART)  # what is in the log makes room in it
                result = self._transact(work, durable)
            if self._log is not None and self._log.is_doubted():
                self._trust_log()  # a sync that failed just before may have lost what this one is built on
            if self._log_pages[0] >= LONG_PAGES:
                self._empty_log(apsw.SQLITE_CHECKPOINT_PASSIVE)
        return result

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """SQLite's errors are ours, and after a failed sync no connection goes on as if nothing was."""
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
            if self._log is not None:
                self._log.trust()
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                with suppress(apsw.Error):
                    connection.execute("ROLLBACK")
            raise
        return result

    def _trust_log(self) -> None:
        self._transact(lambda connection: None, durable=True)

    def _doubt_log(self, error: apsw.Error) -> None:
        """After a failed sync nobody knows what is on the disk: the log is written again at once, or by whoever writes
        next."""
        if self._log is not None and isinstance(error, apsw.IOError):
            self._log.doubt()
            self._drop()
            with suppress(CheckpointError, apsw.Error):
                self._trust_log()

    def _empty_log(self, how: int) -> None:
        """Move what is in it to the file, as far as nobody reads it. Else the log is as good as the file."""
        try:
            self._connect(create=True).wal_checkpoint(mode=how)
        except apsw.Error as error:
            self._doubt_log(error)


def _note_pages(noted: list[int], connection: apsw.Connection, name: str, pages: int) -> int:
    noted[0] = pages
    return apsw.SQLITE_OK


def _try_lock(fcntl: Any, descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
