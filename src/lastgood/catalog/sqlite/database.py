"""The two ways into a catalog: reading in a snapshot, and writing in a transaction. Nothing else opens one.

A connection belongs to one thread of one process. No transaction outlives the call it was opened by.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Concatenate

import apsw

from lastgood.catalog.relational.connection import P, T, counted
from lastgood.catalog.sqlite import connection as connections
from lastgood.catalog.sqlite.connection import (
    SQLiteConnection,
    create_connection,
    ends_within_page,
    open_connection,
    open_memory,
    set_synced,
    told,
    translate,
    translated_errors,
    unwritten,
)
from lastgood.catalog.sqlite.group import Group, SharedTransaction, Write, nested_write
from lastgood.catalog.sqlite.migration import (
    Migration,
    create_catalog,
    create_database,
    describe,
    migrate,
    migrations,
    pending,
    remove,
    remove_unfinished,
)
from lastgood.catalog.sqlite.queue import Queue
from lastgood.catalog.values import DiskUse
from lastgood.errors import (
    BusyError,
    CheckpointError,
    DiskFullError,
    IntegrityError,
    LostCommitsError,
    UnavailableError,
)
from lastgood.local.process import hold_for_fork, renew_after_fork
from lastgood.model.identity import new_id, now

Work = Callable[Concatenate[SQLiteConnection, P], T]

_NEXT_COMMIT = "UPDATE tasks SET last_sequence = last_sequence + 1 WHERE task = 0 RETURNING last_sequence"
_LAST_COMMIT = "SELECT last_sequence FROM tasks WHERE task = 0"
FORK_SECONDS = 5.0
LONG_LIVED_COMMITS = 64  # who wrote this much may spend an fsync or two on tidying the WAL when it closes

_orphans: list[SQLiteConnection] = []
"""Connections of a parent process: closing them here could disturb the file, so they are kept and never used."""


class FileDatabase:
    """A catalog file, shared by the processes of one host."""

    def __init__(self, path: Path, *, known: Sequence[Migration] | None = None, read_only: bool = False) -> None:
        self._clock = now
        self._path = path
        self._read_only = read_only
        self._queue = Queue(path.with_name(path.name + "-lock"), read_only=read_only)
        self._group = Group(self._queue.turn, self._commit)
        self._local = threading.local()
        self._generation = 0
        self._commits = 0
        self._closed = False
        known = migrations() if known is None else known
        if not path.exists():  # who only reads one that is there waits for nobody
            self._create(known)
        with translated_errors():
            is_behind = pending(self._connection().raw, known)
        if is_behind:
            with self._writing() as connection:
                migrate(connection, known)
        hold_for_fork(self)

    def _create(self, known: Sequence[Migration]) -> None:
        with self._queue.turn():
            if not self._path.exists():
                self._refuse_remains()
                remove_unfinished(self._path)
                create_catalog(self._path, known)

    def read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `work` finds in a snapshot. LostCommitsError when that ends before an acknowledged commit."""
        connection = self._connection()
        # The witness first: a snapshot begun after it was read must hold that commit.
        witness = self._queue.witness()
        try:
            connection.execute("BEGIN")
            self._require_whole(connection)
            self._compare(connection.execute(_LAST_COMMIT).get, witness)
            found = work(connection, *args, **kwargs)
            if self._is_outdated():
                raise BusyError("the store was written while it was read", hint="try again")
            return found
        except apsw.Error as error:
            raise translate(error) from error
        finally:
            if connection.raw.in_transaction:
                try:  # noqa: SIM105  # nothing of Python's: there an interrupt would come in between
                    connection.execute("ROLLBACK")
                except apsw.Error:
                    pass

    @contextmanager
    def auditing(self) -> Iterator[tuple[apsw.Connection, int]]:
        """A snapshot, and how many acknowledged commits it has lost. Errors in it are SQLite's own."""
        connection, witness = self._connection().raw, self._queue.witness()
        try:
            with translated_errors():
                connection.execute("BEGIN")
            try:
                last = connection.execute(_LAST_COMMIT).get
            except apsw.Error:
                last = None  # the row is damaged, which whoever reads it will find
            yield connection, max(0, witness - last) if type(last) is int and witness is not None else 0
        finally:
            _end(connection, "COMMIT")

    def writer(self) -> Callable[[Write[T]], T]:
        """Return what sees a write of this thread through, and returns its outcome."""
        self._require_open()
        if self._queue.is_held():  # what this thread has read inside must stay true: nobody else comes along
            if getattr(self._local, "connection", None) and self._local.connection.raw.in_transaction:
                raise nested_write()
            return self._write_alone
        return self._group.write

    def _write_alone(self, write: Write[T]) -> T:
        self._commit(SharedTransaction(write))
        return write.outcome()

    def _commit(self, batch: SharedTransaction) -> None:
        """All writes in one transaction, durable if one of them is; it is settled, or an interrupt raised.

        Only inside a turn.
        """
        durable = any(write.durable for write in batch.writes)
        try:
            self._trust_log()
            connection = self._connection()
            self._sync(connection.raw, durable)
            self._transact(connection, batch, durable)
            if durable and self._local.log_pages[0] >= connections.LONG_PAGES:
                self._empty_log(connection.raw, apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.Error, CheckpointError) as error:
            self._doubt_log(error)
            batch.fail(error)

    @contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        """A turn of its own, for all that is no write of the group. SQLite's errors are ours."""
        with self._queue.turn():
            self._trust_log()
            try:
                yield self._connection().raw
            except apsw.Error as error:
                self._doubt_log(error)
                raise translate(error) from error

    def _trust_log(self) -> None:
        """Before anything is added to the log. Only inside a turn."""
        if self._queue.is_doubted():
            connections.write_again(self._path)
            self._queue.doubt(False)

    def _doubt_log(self, error: Exception) -> None:
        """After a failed sync no connection may go on as if nothing was, and the log is written again at once, or by
        whoever writes next. Raises nothing: what is committed stays so."""
        if isinstance(error, apsw.IOError):
            self._generation += 1
            with suppress(CheckpointError):
                self._queue.doubt(True)
                self._trust_log()

    def _empty_log(self, connection: apsw.Connection, how: int) -> None:
        """Move what is in it to the database, as far as nobody reads it. What goes wrong is no harm to any commit."""
        try:
            connection.wal_checkpoint(mode=how)
        except apsw.Error as error:
            self._doubt_log(error)

    def _sync(self, connection: apsw.Connection, durable: bool) -> None:
        """Commits wait for the disk, or do not: then the next one that does takes them along, the log is in order.

        What is not known to be so, because an interrupt came in between, is set again.
        """
        local = self._local
        if local.is_synced is not durable:
            local.is_synced = None
            set_synced(connection, durable)
            local.is_synced = durable

    def _transact(self, connection: SQLiteConnection, batch: SharedTransaction, durable: bool) -> None:
        """An interrupt may come after any call, and then nothing is called before it is known what became of it."""
        committing = False
        try:
            try:
                number = self._run(connection, batch.writes, durable)
                committing = True
                connection.raw.execute("COMMIT")  # not by the cursor: its hook is Python, where a signal may come in
            except apsw.Error:
                committing = False
                raise
        except BaseException:
            batch.settled = committing and not connection.raw.in_transaction
            if connection.raw.in_transaction:
                try:  # noqa: SIM105  # `suppress` is Python's
                    connection.execute("ROLLBACK")
                except apsw.Error:
                    pass
            raise
        batch.settled = True
        if number is not None:
            self._queue.testify(number)
            self._commits += 1

    def _run(self, connection: SQLiteConnection, writes: Sequence[Write[Any]], durable: bool) -> int | None:
        """Begin a transaction, and do in it what is to be done; its number if it is durable."""
        number = self._begin(connection, durable)
        try:
            for write in writes:
                _run_one(connection, write)
        except Exception as error:
            if len(writes) == 1 or _ends_all(error, connection.raw):
                raise
            connection.execute("ROLLBACK")
            number = self._begin(connection, durable)
            _run_apart(connection, writes)
        return number

    def _begin(self, connection: SQLiteConnection, durable: bool) -> int | None:
        connection.execute("BEGIN IMMEDIATE")
        self._require_whole(connection)
        number = counted(connection.execute(_NEXT_COMMIT).get) if durable else None
        last = connection.execute(_LAST_COMMIT).get if number is None else number - 1
        self._compare(last, self._queue.witness())
        return number

    def require_ready(self) -> None:
        """BusyError when another program holds the database; UnavailableError when it is not there."""
        self._require_open()
        with self._queue.turn(), closing(open_connection(self._path)) as connection, translated_errors():
            connection.set_busy_timeout(0)  # writers of ours are kept out by the turn
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")

    def queue(self) -> AbstractContextManager[object]:
        return self._queue.turn()

    def hold(self) -> None:
        """Before fork(): no other thread of this process is writing, or SQLite's own locks were held in the child."""
        self._queue.hold(FORK_SECONDS)

    def let_go(self) -> None:
        self._queue.let_go()

    def disk_use(self) -> DiskUse:
        files = (self._path, self._path.with_name(self._path.name + "-wal"))
        return self.read(_measure)._replace(size=sum(file.stat().st_size for file in files if file.exists()))

    def shrink(self, limit: int) -> int:
        with self._writing() as connection:
            self._sync(connection, False)
            free = _give_back(connection, limit)
        if not free:
            self._tidy()
        return free

    def accept_loss(self) -> int:
        with self._writing() as connection:
            last = counted(connection.execute(_LAST_COMMIT).get)
            lost = max(0, (self._queue.witness() or 0) - last)
            self._queue.testify(last)
            if (self._queue.witness() or 0) > last:  # writing it is never an error, and here all depends on it
                raise UnavailableError("the disk reported an error; nothing was given up", hint="look at the disk")
        return int(lost)

    def back_up(self, path: Path) -> None:
        """Copy all pages, as they are in one snapshot, into a new database."""

        def copy(connection: SQLiteConnection) -> None:
            def fill(fresh: apsw.Connection) -> None:
                with fresh.backup("main", connection.raw, "main") as pages:
                    pages.step()

            create_database(path, fill, Path.rename)

        self.read(copy)

    def rebuild(self) -> list[str]:
        from lastgood.catalog.sqlite.repair import rebuild

        path = self._path.with_name(f".{self._path.name}.{new_id()}.new")
        try:
            with self._writing() as connection:
                remove_unfinished(self._path)
                with closing(create_connection(path)) as fresh:
                    return rebuild(connection, fresh, self._queue.witness())
        except OSError as error:
            if isinstance(error, CheckpointError):
                raise
            raise _not_rebuilt(error) from error
        finally:
            for end in ("", "-wal", "-shm"):
                remove(path.with_name(path.name + end))

    def close(self) -> None:
        if self._closed:
            return
        if self._commits >= LONG_LIVED_COMMITS:
            self._tidy()
        self._closed = True
        self._generation += 1
        self._local = threading.local()
        self._queue.close()

    def _tidy(self) -> None:
        # When someone is reading, or something is wrong, the log is as good as the file.
        with suppress(CheckpointError), self._writing() as connection:
            self._empty_log(connection, apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _connection(self) -> SQLiteConnection:
        self._require_open()
        local, owner = self._local, (os.getpid(), self._generation)
        old = getattr(local, "connection", None)
        # In a transaction: a signal handler came in between, or an interrupt left it so. It is left to its user.
        if getattr(local, "owner", None) != owner or old is None or old.raw.in_transaction or self._is_outdated():
            if old is not None and local.owner[0] != owner[0]:
                _orphans.append(old)
            local.connection = SQLiteConnection(open_connection(self._path, read_only=self._read_only), self._clock)
            local.is_cut = ends_within_page(self._path)
            local.log_pages = [0]  # not `local` itself, which would keep the connection open
            local.connection.raw.set_wal_hook(partial(_note_pages, local.log_pages))
            local.is_synced = None
            local.unwritten = unwritten(local.connection.raw, self._path)
            local.owner = owner
        connection: SQLiteConnection = local.connection
        return connection

    def _is_outdated(self) -> bool:
        local = self._local
        return bool(local.unwritten) and local.unwritten != unwritten(local.connection.raw, self._path)

    def _require_open(self) -> None:
        if self._closed:
            raise _closed()

    def _refuse_remains(self) -> None:
        """A new database beside what is left of an old one would take its log for its own."""
        left = self._path.with_name(self._path.name + "-wal")
        if self._queue.witness() or (left.exists() and left.stat().st_size > 0):
            raise IntegrityError(
                f"the store's database {self._path.name} is gone, and files that belong to it are still here",
                hint=f"bring it back from a copy; or, to begin anew, remove {self._path.name}-wal, -shm and -lock",
            )

    def _require_whole(self, connection: SQLiteConnection) -> None:
        if not self._local.is_cut:
            return
        self._local.is_cut = ends_within_page(self._path, connection.value("PRAGMA page_count"))
        if self._local.is_cut:  # it may have been repaired meanwhile
            raise IntegrityError(
                "the store's database is cut off in the middle of a page",
                hint="bring it back from a copy, or store.repair() it",
            )

    @staticmethod
    def _compare(last: int, witness: int | None) -> None:
        if counted(last) < (witness or 0):
            raise LostCommitsError(
                f"{(witness or 0) - last} acknowledged commit(s) are gone from the store",
                hint="its write-ahead log is damaged; bring it back from a copy, or store.repair(accept_loss=True)",
                lost=(witness or 0) - last,
            )


class MemoryDatabase:
    """A catalog that lives as long as the process: one connection, one at a time."""

    def __init__(self) -> None:
        self.renew_locks()
        renew_after_fork(self)
        self._connection = open_memory()
        self._closed = False
        migrate(self._connection, migrations())
        describe(self._connection)

    def renew_locks(self) -> None:
        self._lock = threading.RLock()

    def read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self.auditing() as (connection, _):
            return work(SQLiteConnection(connection), *args, **kwargs)

    @contextmanager
    def auditing(self) -> Iterator[tuple[apsw.Connection, int]]:
        with self._lock, translated_errors():
            if self._closed:
                raise _closed()
            yield self._connection, 0

    def writer(self) -> Callable[[Write[T]], T]:
        return self._write

    def _write(self, write: Write[T]) -> T:
        with self.auditing() as (connection, _), connection:
            connection.execute(_NEXT_COMMIT)
            _run_one(SQLiteConnection(connection), write)
        return write.outcome()

    def queue(self) -> AbstractContextManager[object]:
        return self._lock

    def require_ready(self) -> None:
        return

    def disk_use(self) -> DiskUse:
        return self.read(_measure)

    def shrink(self, limit: int) -> int:
        with self.auditing() as (connection, _):
            return _give_back(connection, limit)

    def accept_loss(self) -> int:
        return 0

    def rebuild(self) -> list[str]:
        return []

    def back_up(self, path: Path) -> None:
        raise UnavailableError("a store in memory cannot be copied", hint="open one at a path")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._connection.close()


def _measure(connection: SQLiteConnection) -> DiskUse:
    page, pages, free = (connection.value(f"PRAGMA {name}") for name in ("page_size", "page_count", "freelist_count"))
    return DiskUse(pages * page, (pages - free) * page, free * page)


def _give_back(connection: apsw.Connection, limit: int) -> int:
    """Give free pages back, up to so many bytes; return how many bytes are free afterwards."""
    page: int = connection.pragma("page_size")
    connection.execute(f"PRAGMA incremental_vacuum({max(1, limit // page):d})").fetchall()
    return int(connection.pragma("freelist_count")) * page


def _run_one(connection: SQLiteConnection, write: Write[Any]) -> None:
    write.error = None
    write.value = write.work(connection, *write.args, **write.kwargs)


def _run_apart(connection: SQLiteConnection, writes: Sequence[Write[Any]]) -> None:
    """Each that fails is undone alone. It costs more, so it is done only when one has failed."""
    for write in writes:
        connection.run("SAVEPOINT one")
        try:
            _run_one(connection, write)
        except Exception as error:
            if _ends_all(error, connection.raw):
                raise
            connection.run("ROLLBACK TO one")
            write.error = told(error)
        connection.run("RELEASE one")


def _note_pages(noted: list[int], connection: apsw.Connection, name: str, pages: int) -> int:
    noted[0] = pages
    return apsw.SQLITE_OK


def _ends_all(error: Exception, connection: apsw.Connection) -> bool:
    """A disk that fails fails every write of the transaction."""
    return isinstance(error, apsw.IOError | apsw.FullError) or not connection.in_transaction


def _not_rebuilt(error: OSError) -> UnavailableError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError("the disk is full; the database was not rebuilt", hint="free some space and repair again")
    return UnavailableError("the disk reported an error; the database was not rebuilt", hint="look at the disk")


def _closed() -> UnavailableError:
    return UnavailableError("this store was closed", hint="open it again")


def _end(connection: apsw.Connection, how: str) -> None:
    """End a transaction without masking what ended it: SQLite may have rolled back by itself."""
    for statement in (how, "ROLLBACK"):
        if connection.in_transaction:
            with suppress(apsw.Error):
                connection.execute(statement)
