"""The present as a file system stamps it, found with a file that is written there and never seen."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from secrets import token_hex

PATIENCE_SECONDS = 0.05
"""Longer than any tick of the kernel's clock; file systems that count in whole seconds are not waited for."""
_PAUSE_SECONDS = 0.0002
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def take_stamp(folders: Sequence[str]) -> int:
    """A stamp (ctime) that no change made so far exceeds, and every change made from now on does.

    On the file system of the folders, which are on the same one; the first that can be written to is used. Before
    Linux 6.13 files are stamped in ticks of up to 10 ms: it takes until the next one, so that a change right after it
    does not pass for one before. Where nothing can be written, the clock is asked, and the rest of a tick is in doubt.
    """
    for folder in folders:
        with suppress(OSError), _unseen_file(folder) as descriptor:
            stamp = os.fstat(descriptor).st_ctime_ns
            _wait_beyond(stamp, descriptor)
            return stamp
    return time.time_ns()


def is_on_same(one: str, other: str) -> bool:
    """Whether both folders are there, on the same file system."""
    try:
        return os.stat(one).st_dev == os.stat(other).st_dev  # noqa: PTH116
    except OSError:
        return False


@contextmanager
def _unseen_file(folder: str) -> Iterator[int]:
    descriptor = _open_unseen(folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_unseen(folder: str) -> int:
    """A file without a name, which does not even touch the folder; else one that loses its name at once."""
    if hasattr(os, "O_TMPFILE"):
        with suppress(OSError):  # not every file system has it
            return os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    path = f"{folder}/.lastgood-{token_hex(8)}-0.tmp"  # as captures know it, see `folders.is_temporary`
    descriptor = os.open(path, _NEW, 0o600)
    os.unlink(path)  # noqa: PTH108
    return descriptor


def _wait_beyond(stamp: int, descriptor: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    os.utime(descriptor)
    while os.fstat(descriptor).st_ctime_ns <= stamp and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        os.utime(descriptor)
