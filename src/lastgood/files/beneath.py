"""Reaching names below a root by descriptor, so that nothing swapped in meanwhile can lead out of it.

No symbolic link is followed, in no component. Names are relative to an open folder and are single components.
"""

from __future__ import annotations

import errno
import os
import re
from types import TracebackType
from typing import Self

MAX_DEPTH = 256
"""Folders nested deeper are not entered: each level holds a descriptor, and a process may have 1024 of them."""

GONE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EMLINK))
"""What opening says when the name is not there, or is no longer (or never was) what it is opened as."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a fifo that took the place of a file must not make us wait for its writer.
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


_TEMPORARY = re.compile(rb"\.lastgood-[0-9a-f]{16}-[0-9a-f]+\.tmp")


def is_temporary(name: bytes) -> bool:
    """Whether a restore calls its temporary files so; these are never captured."""
    return _TEMPORARY.fullmatch(name) is not None


def open_folder(folder: int, name: bytes) -> int:
    """A descriptor of the folder of that name; OSError as the system says it (`GONE`: not a folder)."""
    return os.open(name, _FOLDER, dir_fd=folder)


def open_file(folder: int, name: bytes) -> int:
    """A descriptor for reading. What it is of, only fstat tells."""
    return os.open(name, _FILE, dir_fd=folder)


def join(path: bytes, name: bytes) -> bytes:
    return path + b"/" + name if path else name


def split(path: bytes) -> tuple[bytes, bytes]:
    """The folder that it lies in, and its name there."""
    folder, _, name = path.rpartition(b"/")
    return folder, name


class Walk:
    """Goes from folder to folder below a root and keeps the folders on the way open. One thread at a time."""

    def __init__(self, root: str) -> None:
        self._names: list[bytes] = []
        self._opened = [os.open(root, _FOLDER)]

    @property
    def root(self) -> int:
        return self._opened[0]

    def folder(self, path: bytes) -> int:
        """A descriptor of the folder, good until the next call; OSError when it cannot be reached."""
        names = path.split(b"/") if path else []
        shared = 0
        for ours, wanted in zip(self._names, names, strict=False):
            if ours != wanted:
                break
            shared += 1
        self._go_back(shared)
        for name in names[shared:]:
            self._opened.append(open_folder(self._opened[-1], name))
            self._names.append(name)
        return self._opened[-1]

    def _go_back(self, depth: int) -> None:
        while len(self._names) > depth:
            self._names.pop()
            os.close(self._opened.pop())

    def close(self) -> None:
        self._go_back(0)
        while self._opened:
            os.close(self._opened.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
