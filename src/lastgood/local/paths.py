"""Paths reached by descriptor, so that nothing swapped in meanwhile leads out of a folder: those that others name (D8),
and those of a walk from folder to folder, which follows no link at all. And what a file looked like.

The kernel never follows a symbolic link. Links of paths that others name are followed here, one at a time, as long as
they stay below the folder.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from operator import attrgetter
from types import TracebackType
from typing import Self, TypeVar

from lastgood.errors import InvalidError

T = TypeVar("T")
Use = Callable[[int, str, os.stat_result, list[str]], T]
"""Called with the directory's descriptor, the name in it, its lstat, and the real names from the folder down."""

Signature = tuple[int, int, int, int, int, int]
"""Which file, and when it was last touched: mode, size, mtime_ns, ctime_ns, inode, device."""
signature = attrgetter("st_mode", "st_size", "st_mtime_ns", "st_ctime_ns", "st_ino", "st_dev")

MAX_PATH = 4096
MAX_LINKS = 40
_CLOCK_NS = 20_000_000
_WHOLE_SECONDS_NS = 2_000_000_000
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: a fifo that took the place of a file must not make us wait for its writer.
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

MAX_DEPTH = 256
"""Folders nested deeper are not entered: each level holds a descriptor, and a process may have 1024 of them."""
GONE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EMLINK))
"""What opening says when the name is not there, or is no longer (or never was) what it is opened as."""


def require_path(value: object) -> str:
    """Return the path as text that a system call takes; InvalidError when it cannot be one."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        raise InvalidError("the path is missing or is not text")
    if not path:
        raise InvalidError("the path is empty")
    if len(path) > MAX_PATH:
        raise InvalidError("the path is too long")
    if "\0" in path or not is_unicode(path):
        raise InvalidError("the path holds characters that no file name has")
    return str(path)


class BaseFolder:
    """A folder held open for as long as this object lives. Safe for threads; the descriptor survives fork()."""

    fd = -1

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = os.open(path, _DIRECTORY)
        found = os.fstat(self.fd)
        self.id = found.st_dev, found.st_ino

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def is_current(self) -> bool:
        """Tell whether its path still leads to it."""
        try:
            found = os.stat(self.path)  # noqa: PTH116
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.id

    def stat(self, path: str) -> os.stat_result:
        """Return the stat of what the path leads to. OSError as the system says it, InvalidError when it leads out."""
        if "/" not in path and path != "..":  # one system call for the usual case
            found = os.stat(path, dir_fd=self.fd, follow_symlinks=False)
            if not stat.S_ISLNK(found.st_mode):
                return found
        return self._reach(path, lambda fd, name, found, names: found)

    def open(self, path: str, expected: os.stat_result) -> int | None:
        """Open the regular file for reading; None when it no longer is the `expected` one."""
        return self._reach(
            path,
            lambda fd, name, found, names: open_file(fd, name) if is_same(found, expected) else None,
        )

    def locate(self, path: str) -> tuple[str, os.stat_result]:
        """Return the real path, without links below the folder, and its stat."""
        return self._reach(path, lambda fd, name, found, names: ("/".join([self.path.rstrip("/"), *names]), found))

    def _reach(self, path: str, use: Use[T]) -> T:
        todo = path.split("/")[::-1]
        opened: list[int] = []
        names: list[str] = []
        patience = MAX_LINKS
        try:
            while todo:
                name = todo.pop()
                here = opened[-1] if opened else self.fd
                if name in ("", "."):
                    continue
                if name == "..":
                    if not opened:
                        raise _leads_out(path)
                    os.close(opened.pop())
                    names.pop()
                    continue
                if todo and (descriptor := _enter(here, name)) is not None:
                    opened.append(descriptor)
                    names.append(name)
                    continue
                found = os.stat(name, dir_fd=here, follow_symlinks=False)
                if not todo and not stat.S_ISLNK(found.st_mode):
                    return use(here, name, found, [*names, name])
                patience -= 1
                if not patience:
                    raise InvalidError("the path goes through too many symbolic links")
                if stat.S_ISLNK(found.st_mode):
                    target = _read_link(here, name)
                    if target.startswith("/"):
                        target = self._below(target, path)
                        _close_all(opened)
                        names.clear()
                    todo.extend(target.split("/")[::-1])
                elif stat.S_ISDIR(found.st_mode):  # it was something else a moment ago
                    todo.append(name)
                else:
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            here = opened[-1] if opened else self.fd
            return use(here, ".", os.stat(".", dir_fd=here), names)
        finally:
            _close_all(opened)

    def _below(self, target: str, path: str) -> str:
        base = self.path.rstrip("/") + "/"
        if not (target + "/").startswith(base):
            raise _leads_out(path)
        return target[len(base) :]


def open_anywhere(path: str, expected: os.stat_result) -> int | None:
    """As `BaseFolder.open`, for an absolute path: links are followed wherever they lead."""
    return os.open(path, _FILE) if is_same(os.stat(path), expected) else None  # noqa: PTH116


def locate_anywhere(path: str) -> tuple[str, os.stat_result]:
    """As `BaseFolder.locate`, for an absolute path."""
    real = os.path.realpath(path)
    return real, os.stat(real)  # noqa: PTH116


def is_same(one: os.stat_result, other: os.stat_result) -> bool:
    return one.st_ino == other.st_ino and one.st_dev == other.st_dev and stat.S_ISREG(one.st_mode)


def _enter(here: int, name: str) -> int | None:
    """Open the directory of that name; None when it is not a directory, and a link never is."""
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
            return None
        raise


def _read_link(here: int, name: str) -> str:
    try:
        return os.readlink(name, dir_fd=here)
    except OSError as error:
        if error.errno == errno.EINVAL:  # no longer a link: look again
            return name
        raise


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _leads_out(path: str) -> InvalidError:
    return InvalidError(f"{show(path)} leads out of the folder that paths are relative to")


def open_folder(folder: int | None, name: str | bytes) -> int:
    """Open the folder of that name; OSError as the system says it (`GONE`: not a folder). Without a folder to
    find it in it may be a path."""
    return os.open(name, _FOLDER, dir_fd=folder)


def open_file(folder: int | None, name: str | bytes) -> int:
    """Open what has that name for reading; fstat tells what it is. Without a folder it may be a path."""
    return os.open(name, _FILE | os.O_NOFOLLOW, dir_fd=folder)


def join(path: bytes, name: bytes) -> bytes:
    return path + b"/" + name if path else name


def split(path: bytes) -> tuple[bytes, bytes]:
    """Return the folder that it lies in, and its name there."""
    folder, _, name = path.rpartition(b"/")
    return folder, name


class FolderWalk:
    """A walk from folder to folder below a root that keeps the folders on the way open. One thread at a time."""

    def __init__(self, root: str) -> None:
        self._names: list[bytes] = []
        self._opened = [open_folder(None, root)]

    @property
    def root(self) -> int:
        return self._opened[0]

    def folder(self, path: bytes) -> int:
        """Return a descriptor of the folder, good until the next call; OSError when it cannot be reached."""
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


def is_settled(seen: Signature, began_ns: int) -> bool:
    """Return whether a write after `began_ns` is sure to give the file another stamp.

    Files are stamped with the kernel's coarse clock, which lags by up to one tick, 10 ms at 100 Hz: two of them, then.
    A stamp of whole seconds may come from a file system that knows nothing finer; FAT counts in steps of two.
    """
    margin = _CLOCK_NS if seen[3] % 1_000_000_000 else _CLOCK_NS + _WHOLE_SECONDS_NS
    return max(seen[2], seen[3]) < began_ns - margin


def kind_of(found: os.stat_result) -> str:
    """Name the kind of a file, with its article."""
    kinds = {
        stat.S_IFREG: "a file",
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(found.st_mode), "something else")


def show(value: object, limit: int = 200) -> str:
    """Return a value of a claim as text fit for a message: one line, bounded, printable."""
    text = value if isinstance(value, str) else repr(value)
    text = text if len(text) <= limit else text[: limit - 3] + "..."
    return text if text.isprintable() else ascii(text)


def is_unicode(text: str) -> bool:
    """Return whether it can be encoded: it may hold halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
