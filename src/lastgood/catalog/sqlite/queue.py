"""The lock file of a catalog: where writers queue, and where the witness of the last commit stands."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from io import FileIO
from pathlib import Path
from weakref import ReferenceType, ref
from zlib import crc32

from lastgood.errors import IntegrityError, UnavailableError
from lastgood.local.location import BRING_BACK
from lastgood.local.paths import open_private
from lastgood.local.process import move_off_standard_streams, renew_after_fork

_WITNESS = struct.Struct("<4sQB11xI")
_MAGIC = b"LGW1"
_CLOSED = -1
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_PAUSE_SECONDS = 0.001
_LONGEST_FORK_SECONDS = 10.0


class Queue:
    """Writers of all threads and processes, one at a time. May be entered again by the thread that is inside.

    The kernel's queue is fair: with SQLite's busy timeout alone, 8 processes waited up to 230 ms, here 10 ms. Threads
    shut each other out like processes: each opens the file for itself. Opening it for each turn costs 4.5 us, and then
    an interrupt can keep nobody waiting: leaving the block is one call of C, and a file that is lost is closed.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._doubted = False
        self._is_read_only = read_only
        self._fd = self._open()
        self._forget_turns()
        renew_after_fork(self)

    def turn(self) -> AbstractContextManager[object]:
        """Wait for it; it lasts as long as the block. Enter that at once."""
        if self.is_held():
            return nullcontext()
        while True:
            self._descriptor()
            self._wait_for_forks()
            fork = self._fork
            if (file := self._take_turn(fork)) is not None:
                return file

    def is_held(self) -> bool:
        """Whether this thread is inside a turn."""
        return self._holder() == threading.get_ident()

    def witness(self) -> int | None:
        """The number of the last acknowledged commit; None when there is no (whole) witness."""
        return self._read()[0]

    def testify(self, number: int) -> None:
        """Write the witness; only inside a turn, only after the commit is durable. One that is behind is no harm."""
        self._write(number, doubted=False)

    def is_doubted(self) -> bool:
        """Whether a sync of the log has failed, here or in another process, and nobody has written it again since."""
        return self._doubted or self._read()[1]

    def doubt(self, doubted: bool) -> None:
        """Only inside a turn."""
        self._doubted = doubted
        self._write(self.witness() or 0, doubted=doubted)

    def _read(self) -> tuple[int | None, bool]:
        descriptor = self._descriptor()
        try:
            data = os.pread(descriptor, _WITNESS.size, 0)
        except OSError as error:
            raise _unusable(self._path, error) from error
        if len(data) != _WITNESS.size:
            return None, False
        magic, number, doubted, check = _WITNESS.unpack(data)
        return (number, doubted != 0) if magic == _MAGIC and check == crc32(data[:-4]) else (None, False)

    def _write(self, number: int, *, doubted: bool) -> None:
        body = _WITNESS.pack(_MAGIC, number, doubted, 0)[:-4]
        with suppress(OSError):
            os.pwrite(self._fd, body + crc32(body).to_bytes(4, "little"), 0)

    def close(self) -> None:
        if self._fd != _CLOSED:
            self._wait_for_others(float("inf"))
            descriptor, self._fd = self._fd, _CLOSED
            os.close(descriptor)

    def renew_locks(self) -> None:
        """In a child: a descriptor that is shared with the parent shares its lock, too."""
        if self._turn is not None and (file := self._turn[1]()) is not None:
            file.close()
        self._forget_turns()
        if self._fd != _CLOSED:
            with suppress(OSError):  # the store is away: turns are taken through files of their own anyway
                inherited, self._fd = self._fd, self._open()
                os.close(inherited)

    def hold(self, seconds: float) -> None:
        """Keep the threads of this process from taking a turn, for a fork(); wait so long for one that has it."""
        self._forking[threading.get_ident()] = threading.Event()
        self._fork = object()
        self._wait_for_others(seconds)

    def let_go(self) -> None:
        if (over := self._forking.pop(threading.get_ident(), None)) is not None:
            over.set()

    def _forget_turns(self) -> None:
        self._turn: tuple[int, ReferenceType[FileIO]] | None = None  # the last one: whose, and the locked file
        self._forking: dict[int, threading.Event] = {}
        self._fork = object()  # another one since the last fork() began

    def _take_turn(self, fork: object) -> FileIO | None:
        """None: a fork() came in between, and the child may have a copy of the file, which would keep it locked."""
        if self._is_read_only:  # for good: SQLite's index of the log, which all connections share, is open for reading
            raise only_readable()
        file = None
        try:
            file = _open_again(self._path)
            fcntl.flock(file, fcntl.LOCK_EX)
            self._turn = threading.get_ident(), ref(file)
            if self._fork is fork:
                return file
            fcntl.flock(file, fcntl.LOCK_UN)
            file.close()
        except BaseException as error:
            if file is not None:
                file.close()
            if isinstance(error, OSError):
                raise _unusable(self._path, error) from error
            raise
        return None

    def _holder(self) -> int | None:
        """The thread of this process that has the turn. A file that is closed, or gone, is nobody's."""
        if self._turn is None:
            return None
        thread, found = self._turn
        file = found()
        return None if file is None or file.closed else thread

    def _wait_for_others(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._holder() not in (None, threading.get_ident()) and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)

    def _wait_for_forks(self) -> None:
        for thread, over in list(self._forking.items()):
            if thread != threading.get_ident() and not over.wait(_LONGEST_FORK_SECONDS):
                self._forking.pop(thread, None)  # an interrupt kept it from saying that it is over

    def _open(self) -> int:
        if self._is_read_only:
            return move_off_standard_streams(os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        try:
            descriptor = open_private(self._path, os.O_CREAT | os.O_RDWR)
        except OSError as error:
            if self._path.is_symlink():
                raise _replaced(self._path) from error
            if error.errno not in _READ_ONLY or not self._path.exists():
                raise
            self._is_read_only = True
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return move_off_standard_streams(descriptor)

    def _descriptor(self) -> int:
        if self._fd == _CLOSED:
            raise UnavailableError("this store was closed", hint="open it again")
        return self._fd


def _open_again(path: Path) -> FileIO:
    file = FileIO(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW), "r+")
    if file.fileno() > 2:
        return file
    with file:
        return FileIO(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3), "r+")


def _replaced(path: Path) -> IntegrityError:
    return IntegrityError(f"a link is in the place of {path.name}, a file of the store", hint=f"remove {path}")


def _unusable(path: Path, error: OSError) -> UnavailableError | IntegrityError:
    if path.is_symlink():
        return _replaced(path)
    if error.errno in _READ_ONLY:
        return only_readable()
    if not os.path.exists(path.parent):  # noqa: PTH110  # raises nothing
        return UnavailableError("the store is not there", hint=BRING_BACK)
    told = f"the store's lock file cannot be used: {os.strerror(error.errno or 0).lower()}"
    return UnavailableError(told, hint="look at the disk and the log")


def only_readable() -> UnavailableError:
    """Return the error for a write to a store on a read-only disk, or without the permission."""
    return UnavailableError(
        "the store can only be read here",
        hint="look at its disk and permissions; when it can be written, open it again",
    )
