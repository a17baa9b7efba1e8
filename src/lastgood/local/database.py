"""SQLite databases of others, which are not trusted, read without leaving a trace. For helper processes alone.

SQLite's own read-only mode is not enough: of a database in WAL mode it may make a -wal and a -shm file. So it is
opened by what is there:
- rollback journal: read-only; locks are honoured and nothing is made. If a transaction was never finished, only a copy
  can be read: of both files, and rolled back.
- WAL mode, no log or an empty one: everything is in the database, which is read as immutable; whether it stayed so
  is looked at afterwards.
- WAL mode with a log: read-only with a read-only -shm. Where no reader ever registered, that is not possible; then
  the -shm of the live writer is used like any reader uses it.
"""

from __future__ import annotations

import errno
import math
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from lastgood.errors import BusyError, CheckpointError, DiskFullError, InvalidError, NotFoundError, UnavailableError
from lastgood.local.paths import Signature, is_recent, kind_of, open_file, open_folder, open_private, show, signature
from lastgood.local.process import write_all

T = TypeVar("T")
Columns = dict[str, Any]
"""Column to value: None, a number, text or bytes."""

Locate = Callable[[], tuple[str, os.stat_result] | None]

_BUSY_SECONDS = 0.2
_ROUNDS = 3
_MAX_VALUE_BYTES = 64 << 20
_SPARE, _TIMES = 64 << 20, 16  # a copy may be as large as that and so many times the data that is there
_STEPS = 10_000  # of SQLite's machine between two looks at the clock: about 1 ms
_WAL_MODE = 2
_WRITE_ERRORS = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_TRUNCATE, sqlite3.SQLITE_IOERR_FSYNC)
_JOURNAL = bytes.fromhex("d9d505f920a163d7")  # ends one that names a super-journal, of several databases
_PRAGMAS = ("table_xinfo", "schema_version", "page_count", "page_size")
_LOG_MODES = ("mode=ro&readonly_shm=1", "mode=ro")


def find_row(locate: Locate, table: str, where: Columns, values: Columns, deadline: float) -> str | None:
    """Return None when a row of the table has all of `where` and `values`, else how it differs.

    NotFoundError when there is no such file, BusyError when it is locked, InvalidError when it cannot be read.
    """
    for _ in range(_ROUNDS):
        if (place := locate()) is None:
            raise NotFoundError("the database does not exist")
        path, file = place
        try:
            return _find_in(path, _look_around(path, file), table, where, values, deadline)
        except (_Moved, FileNotFoundError):
            continue
        except CheckpointError:  # some of which are an OSError, too
            raise
        except OSError as error:
            raise InvalidError(f"the database cannot be read: {(error.strerror or '').lower()}") from error
    raise BusyError("the database is being written")


def find_at_rest(path: str) -> Signature | None:
    """Return the signature of a database all of which lies in its own file, with no log or journal beside it; None if
    it does not. Any write gives the file another one: if the last was a moment ago, that is waited for, for 20 ms."""
    try:
        if any(_size_of_regular(path + ending) for ending in ("-wal", "-journal")):
            return None
        found = os.lstat(path)
        return signature(found) if _wait_for_tick(found.st_ctime_ns) else None
    except (OSError, InvalidError):
        return None


def _wait_for_tick(stamp: int, seconds: float = 0.03) -> bool:
    """Wait until a write gives a file another stamp than this one; False if that takes longer.

    Several transactions fit into one tick of the kernel's clock: a file that was read meanwhile is a mixture of them,
    with the stamps that it had before.
    """
    end = time.monotonic() + seconds
    while is_recent(stamp, time.time_ns()):
        if time.monotonic() >= end:
            return False
        time.sleep(0.002)
    return True


def copy_database(path: str, identity: tuple[int, ...], to: Path, deadline: float) -> None:
    """Make a consistent copy of a database that others may be writing, without leaving a trace beside it.

    `identity` is its inode and device. BusyError when it is locked until the deadline, InvalidError when it cannot be
    read; DiskFullError and UnavailableError are about the copy.
    """
    while True:
        file = os.lstat(path)
        if not stat.S_ISREG(file.st_mode) or (file.st_ino, file.st_dev) != tuple(identity):
            raise NotFoundError("the database was replaced")
        try:
            return _copy_once(path, _look_around(path, file), to, deadline)
        except _Moved as error:  # writers that come and go leave a moment, or come while it is looked at
            if time.monotonic() > deadline:
                raise BusyError("the database is being written") from error


def _copy_once(path: str, scene: _Scene, to: Path, deadline: float) -> None:
    most = _SPARE + _TIMES * sum(_count_data(path + ending) for ending in ("", "-wal", "-journal"))

    def back_up(mode: str) -> None:
        with closing(_Reading(path, mode, scene.file)) as reading, closing(_create(to)) as copy:
            reading.copy(copy, deadline, most, blocks_writers=scene.modes == ("mode=ro",))

    try:
        _read(path, scene, back_up)
    except BusyError as error:
        if scene.log_size or getattr(error.__cause__, "sqlite_errorcode", 0) != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise
        _copy_rolled_back(path, scene, to, max(deadline, time.monotonic() + 1), most)


def _count_data(path: str) -> int:
    """Return how many bytes of a file are not in holes; none if it is not there."""
    try:
        file = open_file(None, path)
    except FileNotFoundError:
        return 0
    data = end = 0
    try:
        while True:
            start = os.lseek(file, end, os.SEEK_DATA)
            end = os.lseek(file, start, os.SEEK_HOLE)
            data += end - start
    except OSError as error:
        if error.errno != errno.ENXIO:  # no data from there on
            raise
        return data
    finally:
        os.close(file)


def _require_size(size: int, most: int) -> None:
    """Refuse what would fill the disk, or take minutes, though there is next to nothing in it."""
    if size > most:
        raise InvalidError("the database is in use, and far larger than the data in it", hint="close its program")


def remove_copy(path: Path) -> None:
    """Remove a copy and what lies beside it: the next one of that name would be taken for its database."""
    for ending in ("", "-journal", "-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)


def _copy_rolled_back(path: str, scene: _Scene, to: Path, give_up: float, most: int) -> None:
    """Copy a database and the journal of a transaction that was never finished, and roll it back in the copy. The two
    files stay as they are, for the program that they belong to."""
    where, name = os.path.split(path)
    names = name, f"{name}-journal"
    folder = open_folder(None, where)  # a link on the way to it cannot lead to another one's journal
    try:
        seen = [signature(os.stat(each, dir_fd=folder, follow_symlinks=False)) for each in names]
        if seen[0] != scene.file or not all(_wait_for_tick(each[3]) for each in seen):
            raise _Moved
        _require_size(sum(each[1] for each in seen), most)
        remove_copy(to)
        for each, copied in zip(names, (to, journal := Path(f"{to}-journal")), strict=True):
            _copy_file(give_up, folder, each, copied)
        if seen != [signature(os.stat(each, dir_fd=folder, follow_symlinks=False)) for each in names]:
            raise _Moved
        if _is_to_be_applied(journal, os.path.realpath(where), seen[0][1]):
            with closing(sqlite3.connect(to, isolation_level=None)) as copy:
                copy.execute("PRAGMA schema_version").fetchone()
    except FileNotFoundError as error:
        raise _Moved from error
    except CheckpointError:  # some of which are an OSError, too
        raise
    except (OSError, sqlite3.Error) as error:
        is_its_own = _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        raise _translate(error) if is_its_own else _not_copied(error) from error
    finally:
        os.close(folder)


def _is_to_be_applied(journal: Path, folder: str, size: int) -> bool:
    """Return whether the transaction of a copied journal is to be rolled back, and make that safe.

    Whoever wrote the journal is not trusted. SQLite would open, and delete, what it names as its super-journal: that is
    wiped out. A transaction whose super-journal is gone was committed; one that is said to lie elsewhere is not looked
    for. SQLite would also make the database as long as the journal says.
    """
    with journal.open("r+b") as file:
        data = file.read(28)
        pages, page_size = int.from_bytes(data[16:20]), int.from_bytes(data[24:28])
        end = file.seek(0, os.SEEK_END)
        if pages * (page_size or 65536) > size + end:
            raise InvalidError("the journal of the database is damaged")
        file.seek(max(end - 16, 0))
        if not (tail := file.read(16)).endswith(_JOURNAL):
            return True
        length = min(int.from_bytes(tail[:4]), end - 16, 4096)
        file.seek(end - 16 - length)
        where, name = os.path.split(os.fsdecode(file.read(length)))
        file.seek(end - 8)
        file.write(bytes(8))
    if where != folder:
        raise InvalidError("a transaction in several databases was not finished: open it with its program once")
    return os.path.lexists(os.path.join(folder, name))  # noqa: PTH118


def _copy_file(give_up: float, folder: int, name: str, to: Path) -> None:
    """Copy a file into a private one, with holes for zeros."""
    with os.fdopen(open_private(to, os.O_CREAT | os.O_EXCL | os.O_WRONLY), "wb", 0) as copy:
        for part in _read_parts(folder, name):
            _look_at_clock(give_up)
            if part.count(0) == len(part):
                copy.truncate(copy.seek(len(part), os.SEEK_CUR))
            else:
                write_all(copy.fileno(), part)


def _look_at_clock(give_up: float) -> None:
    if time.monotonic() > give_up:
        raise BusyError("the database took too long to copy")


def _read_parts(folder: int, name: str) -> Iterator[bytes]:
    """Read a file; an error is the file's own, and none of the disk that it is copied to."""
    try:
        with os.fdopen(open_file(folder, name), "rb") as file:
            yield from iter(lambda: file.read(1 << 20), b"")
    except OSError as error:
        raise InvalidError(f"the database cannot be read: {(error.strerror or '').lower()}") from error


def _create(path: Path) -> sqlite3.Connection:
    """Make a database that nobody else uses, and that nobody needs after a crash."""
    try:
        remove_copy(path)
        database = sqlite3.connect(path, isolation_level=None)
    except (OSError, sqlite3.Error) as error:
        raise _not_copied(error) from error
    for pragma in ("journal_mode = OFF", "synchronous = OFF"):
        database.execute(f"PRAGMA {pragma}")
    return database


def _not_copied(error: Exception) -> UnavailableError | DiskFullError:
    if _code(error) == sqlite3.SQLITE_FULL or getattr(error, "errno", 0) in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError("the disk is full", hint="free some space and try again")
    return UnavailableError("the disk reported an error", hint="look at the disk and the log")


def _read(path: str, scene: _Scene, use: Callable[[str], T]) -> T:
    """Call `use` with a mode to open the database in, and with the next one where that is refused."""
    for mode in scene.modes:
        if mode == "immutable=1" and not _wait_for_tick(scene.file[3]):
            raise _Moved
        try:
            result = use(mode)
        except sqlite3.Error as error:
            if mode != scene.modes[-1] and _code(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                continue
            _require_unchanged(path, mode, scene)
            raise _translate(error) from error
        _require_unchanged(path, mode, scene)
        return result
    raise AssertionError("a scene has a mode")


class _Moved(Exception):  # noqa: N818
    """A sign that what was read is not what was found before."""


class _Scene(NamedTuple):
    """A database file and those that SQLite keeps beside it; a size of None: not there."""

    file: Signature
    in_wal_mode: bool
    log_size: int | None
    journal_size: int | None
    has_index: bool

    @property
    def modes(self) -> tuple[str, ...]:
        if self.log_size:
            return _LOG_MODES
        return ("immutable=1",) if self.in_wal_mode else ("mode=ro",)


def _look_around(path: str, file: os.stat_result) -> _Scene:
    if not stat.S_ISREG(file.st_mode):
        raise InvalidError(f"the database is {kind_of(file)}, not a file")
    sizes = [_size_of_regular(path + ending) for ending in ("-wal", "-journal", "-shm")]
    return _Scene(signature(file), _is_in_wal_mode(path), sizes[0], sizes[1], sizes[2] is not None)


def _size_of_regular(path: str) -> int | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise InvalidError("a file that belongs to the database is not a regular file")
    return found.st_size


def _is_in_wal_mode(path: str) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, 2, 18) == bytes([_WAL_MODE, _WAL_MODE])
    finally:
        os.close(descriptor)


def _find_in(path: str, scene: _Scene, table: str, where: Columns, values: Columns, deadline: float) -> str | None:
    if scene.file[1] == 0 and not scene.log_size:
        return _no_table(table)
    if scene.log_size and not scene.has_index:
        raise InvalidError(
            "the database has changes in a log that cannot be read without writing",
            hint="open and close it once with the program that it belongs to",
        )
    return _read(path, scene, lambda mode: _query(path, mode, scene, table, where, values, deadline))


def _require_unchanged(path: str, mode: str, scene: _Scene) -> None:
    if mode == "immutable=1" and _look_around(path, os.lstat(path)) != scene:
        raise _Moved


def _query(
    path: str, mode: str, scene: _Scene, table: str, where: Columns, values: Columns, deadline: float
) -> str | None:
    reading = _kept.pop() if _kept else None
    if reading is not None and not reading.serves(path, mode, scene.file):
        reading.close()
        reading = None
    if reading is None:
        reading = _Reading(path, mode, scene.file)
    try:
        mismatch = reading.find(table, where, values, deadline)
    except BaseException:
        reading.close()
        raise
    if mode == "mode=ro" and not scene.log_size:
        _kept.append(reading)
    else:
        reading.close()
    return mismatch


_kept: list[_Reading] = []
"""The database that was read last, if it has a rollback journal: opening it again would take twice as long as asking.

An idle connection to one holds no lock and makes no file. One to a database in WAL mode would keep its writers from
tidying up when they close, so that is never kept.
"""


def close_kept() -> None:
    """Close what is kept for the next request."""
    while _kept:
        _kept.pop().close()


class _Reading:
    """A connection that can do nothing but look for rows."""

    def __init__(self, path: str, mode: str, file: Signature) -> None:
        self._place = path, mode, file[4:]
        self._deadline = 0.0
        self._readable: set[str] = set()
        self._asked: tuple[object, ...] = ()
        """The version of the schema, and the table and columns that were asked for last: `_search` is for these."""
        uri = f"file://{quote(os.fsencode(path))}?{mode}"
        self._connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            _require_opened(file)
            self._restrain()
        except BaseException:
            self.close()
            raise

    def serves(self, path: str, mode: str, file: Signature) -> bool:
        """Tell whether it is open on that very file: its number cannot be another's as long as it is."""
        return self._place == (path, mode, file[4:])

    def close(self) -> None:
        self._connection.close()

    def copy(self, to: sqlite3.Connection, deadline: float, most: int, *, blocks_writers: bool) -> None:
        """Copy it in one read transaction: without, each commit of others would make the copy begin anew. While writers
        have to wait for that, it is given up at the deadline; it has a second in any case."""
        self._begin(deadline)
        pages, size = (self._connection.execute(f"PRAGMA page_{what}").fetchone()[0] for what in ("count", "size"))
        _require_size(pages * size, most)
        give_up = max(deadline, time.monotonic() + 1) if blocks_writers else math.inf
        self._connection.backup(to, pages=10_000, progress=lambda *_: _look_at_clock(give_up))

    def _begin(self, deadline: float) -> None:
        """Begin a read transaction, as soon as writers let it."""
        connection, self._deadline, self._readable = self._connection, deadline, {"sqlite_master"}
        connection.execute("BEGIN")
        while True:
            try:
                connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
            except sqlite3.Error as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            else:
                return

    def find(self, table: str, where: Columns, values: Columns, deadline: float) -> str | None:
        connection, self._deadline = self._connection, deadline
        connection.execute("BEGIN")
        try:
            (schema,) = connection.execute("PRAGMA schema_version").fetchone()
            asked = schema, table, tuple(where), tuple(values)
            if asked != self._asked:
                self._asked, self._readable = (), {"sqlite_master"}
                if (impossible := self._prepare(table, where, values)) is not None:
                    return impossible
                self._asked = asked
            return self._compare(table, where, values)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _prepare(self, table: str, where: Columns, values: Columns) -> str | None:
        """Make `_search`: a search for a row with all of it, and one that tells what it differs in; or say why there
        is no such row."""
        if (name := self._find_table(table)) is None:
            return _no_table(table)
        columns = self._connection.execute(f"PRAGMA main.table_xinfo({_quote(name)})").fetchall()
        names = {_fold(column): column for _, column, *_ in columns}
        for claimed in (*where, *values):
            if _fold(claimed) not in names:
                return f"the table {show(name)} has no column {show(claimed)}"

        def tests(columns: Columns) -> list[str]:
            return [f"{_quote(name)}.{_quote(names[_fold(claimed)])} IS ?" for claimed in columns]

        def search(results: list[str], conditions: list[str]) -> str:
            return f"SELECT {', '.join(results)} FROM main.{_quote(name)} WHERE {' AND '.join(conditions)} LIMIT 1"

        both = [*tests(where), *tests(values)]
        self._search = search(["1"], both), search(["1", *tests(values)], tests(where))
        return None

    def _find_table(self, table: str) -> str | None:
        """Return the name of the table as the schema has it, and let it be read."""
        found = self._connection.execute(
            "SELECT name, rootpage, sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE",
            (table,),
        ).fetchone()
        if found is None:
            return None
        name, root, sql = found
        # Views and virtual tables run what the database says; their pages are none, their text begins otherwise.
        if not root or not isinstance(sql, str) or not sql.upper().startswith("CREATE TABLE"):
            raise InvalidError(f"{show(table)} is not an ordinary table")
        self._readable.add(name)
        return str(name)

    def _compare(self, table: str, where: Columns, values: Columns) -> str | None:
        has_all, differs = self._search
        if self._connection.execute(has_all, (*where.values(), *values.values())).fetchone():
            return None
        first = self._connection.execute(differs, (*values.values(), *where.values())).fetchone()
        if first is None:
            return f"no row of {show(table)} is where the claim says"
        others = [show(claimed) for claimed, is_equal in zip(values, first[1:], strict=True) if not is_equal]
        return f"the row of {show(table)} has another {', '.join(others)}"

    def _restrain(self) -> None:
        """Let it read the schema and the tables that are named readable; nothing else."""
        connection = self._connection
        for pragma in ("query_only = ON", "trusted_schema = OFF", "temp_store = MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
        connection.text_factory = lambda data: data.decode(errors="surrogateescape")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.set_progress_handler(lambda: time.monotonic() > self._deadline, _STEPS)
        connection.set_authorizer(self._decide)

    def _decide(
        self, action: int, first: str | None, second: str | None, database: str | None, source: str | None
    ) -> int:
        allowed = source is None and (
            action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_TRANSACTION)
            or (action == sqlite3.SQLITE_READ and first in self._readable)
            or (action == sqlite3.SQLITE_PRAGMA and first in _PRAGMAS)
        )
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _require_opened(file: Signature) -> None:
    """Raise _Moved unless the file that SQLite opened by its path is the one that the walk found."""
    for name in os.listdir("/dev/fd"):  # noqa: PTH208
        try:
            found = os.fstat(int(name))
        except OSError:
            continue
        if (found.st_ino, found.st_dev) == file[4:]:
            return
    raise _Moved


def _fold(name: str) -> bytes:
    """Fold a name as SQLite compares names: without regard to the case of ASCII letters, and of no others."""
    return name.encode(errors="surrogateescape").lower()


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _no_table(table: str) -> str:
    return f"the database has no table {show(table)}"


def _translate(error: Exception) -> CheckpointError:
    code = _code(error)
    if code == sqlite3.SQLITE_FULL or getattr(error, "sqlite_errorcode", 0) in _WRITE_ERRORS:  # of a copy, not a reader
        return _not_copied(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PROTOCOL):
        return BusyError("the database is locked by a writer, or by one that did not finish")
    sentences = {
        sqlite3.SQLITE_NOTADB: "the file is not an SQLite database, or it is encrypted",
        sqlite3.SQLITE_CORRUPT: "the database is damaged",
        sqlite3.SQLITE_AUTH: "the table cannot be read without running what the database says",
        sqlite3.SQLITE_TOOBIG: "the table holds a value that is too large to compare",
        sqlite3.SQLITE_INTERRUPT: "reading the database took too long",
        sqlite3.SQLITE_CANTOPEN: "the database cannot be opened",
    }
    return InvalidError(sentences.get(code, "the database cannot be read"))


def _code(error: Exception) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
