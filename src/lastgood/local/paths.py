"""Paths reached by descriptor, so that nothing swapped in meanwhile leads out of a folder: those that others name (D8),
and those of a walk from folder to folder, which follows no link at all. And what a file looked like, and has besides
content and mode: a user's extended attributes, access control lists, and who owns it.

The kernel never follows a symbolic link. Links of paths that others name are followed here, one at a time, as long as
they stay below the folder.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from operator import attrgetter
from types import TracebackType
from typing import Self, TypeVar

from lastgood.errors import InvalidError
from lastgood.local.process import descriptors
from lastgood.model.tree import MAX_ATTRIBUTES, SPECIAL_BITS, Attributes, Owner, is_attribute

T = TypeVar("T")
Use = Callable[[int, str, os.stat_result, list[str]], T]
"""Called with the directory's descriptor, the name in it, its lstat, and the real names from the folder down."""

Signature = tuple[int, int, int, int, int, int]
"""Which file, and when it was last touched: mode, size, mtime_ns, ctime_ns, inode, device."""
signature = attrgetter("st_mode", "st_size", "st_mtime_ns", "st_ctime_ns", "st_ino", "st_dev")

CATALOG, STORE_ENDINGS = "catalog.sqlite", (".sqlite", ".db")
"""The name of the catalog in the folder of a store, and how one ends that is a file."""
APPLICATION_ID = 0x6C676F64
"""What SQLite's header says of a catalog: that it is one."""

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


def is_catalog_header(header: bytes) -> bool:
    """Return whether a file that begins so is the catalog of a store."""
    return header.startswith(b"SQLite format 3\0") and header[68:72] == APPLICATION_ID.to_bytes(4)


def find_stores(folder: int, names: Collection[bytes]) -> set[bytes]:
    """Return those of the names in a folder that are parts of stores, and what else belongs to these."""
    endings, found = tuple(map(os.fsencode, STORE_ENDINGS)), set[bytes]()
    for name in names:
        if name.endswith(endings) and _is_catalog(folder, name):
            beside = b"" if name == os.fsencode(CATALOG) else name.rpartition(b".")[0] + b"."
            found.update(name + ending for ending in (b"", b"-wal", b"-shm", b"-lock"))
            found.update(beside + part for part in (b"objects", b"quarantine"))
            found.add(beside + b"cache" if beside else b"objects.cache")
    descriptors.close_parked()
    return found


def _is_catalog(folder: int, name: bytes) -> bool:
    with suppress(OSError):
        file = open_file(folder, name)
        found = os.fstat(file)
        try:
            return stat.S_ISREG(found.st_mode) and is_catalog_header(os.pread(file, 100, 0))
        finally:
            descriptors.close(file, found)  # it may be a database that this process has locked
    return False


def open_private(path: str | bytes | os.PathLike[str], flags: int) -> int:
    """Open a file of a store's own; with O_CREAT, make it if it is not there, for its owner alone.

    What is new can be used by its owner whatever the umask, and belongs to whom its folder belongs to: root may be at
    work for them. Only what was made here is given away, never what was there, or is behind a link.
    """
    if not flags & os.O_CREAT or flags & os.O_EXCL:
        return _create(path, flags) if flags & os.O_CREAT else os.open(path, flags | os.O_CLOEXEC)
    existing = flags & ~os.O_CREAT
    try:
        return os.open(path, existing | os.O_CLOEXEC)
    except FileNotFoundError:
        try:
            return _create(path, flags)
        except FileExistsError:  # another process was faster
            return os.open(path, existing | os.O_CLOEXEC)


def make_private_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder for its owner alone, by the same rules. FileExistsError when it is there."""
    above, name = os.path.split(os.path.abspath(path))  # noqa: PTH100
    parent = os.open(above, _DIRECTORY)
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=parent)
        except PermissionError:  # by the umask; never root's
            os.chmod(name, 0o700, dir_fd=parent)
            descriptor = os.open(name, _FOLDER, dir_fd=parent)
        try:
            _give_to_owner(descriptor, parent, 0o700)
        finally:
            os.close(descriptor)
    finally:
        os.close(parent)


def _create(path: str | bytes | os.PathLike[str], flags: int) -> int:
    above, name = os.path.split(os.fspath(path))
    parent = os.open(above or os.curdir, _DIRECTORY)
    try:
        descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=parent)
        _give_to_owner(descriptor, parent, 0o600)
        return descriptor
    finally:
        os.close(parent)


def _give_to_owner(descriptor: int, parent: int, mode: int) -> None:
    if os.fstat(descriptor).st_mode & mode != mode:  # the umask; a file system without rights says that all are there
        os.fchmod(descriptor, mode)
    if os.geteuid() == 0 and (owner := os.fstat(parent)).st_uid != 0:
        with suppress(PermissionError):  # root of this machine is nobody on another's disk
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def read_beginning(path: str | os.PathLike[str], limit: int) -> tuple[bytes, os.stat_result] | None:
    """Read so many bytes of a regular file, which may be behind a link; None when something else is there."""
    descriptor = os.open(path, _FILE)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(limit), found
    finally:
        os.close(descriptor)


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
    """Return whether a write after `began_ns` is sure to give the file another ctime; the mtime can be set to anything.

    Files are stamped with the kernel's coarse clock, which lags by up to one tick, 10 ms at 100 Hz: two of them, then.
    A stamp of whole seconds may come from a file system that knows nothing finer; FAT counts in steps of two.
    """
    return seen[3] < began_ns - _margin(seen[3])


def is_recent(ctime_ns: int, now_ns: int) -> bool:
    """Return whether a write now could leave a file this ctime; one in the future cannot stay either."""
    return abs(now_ns - ctime_ns) <= _margin(ctime_ns)


def _margin(stamp: int) -> int:
    return _CLOCK_NS if stamp % 1_000_000_000 else _CLOCK_NS + _WHOLE_SECONDS_NS


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


HAS_XATTRS = sys.platform == "linux"


def read_attributes(descriptor: int, found: os.stat_result, folder: int) -> Attributes | None:
    """Read what an open file has besides content and mode; None: nothing. What is too much is left out."""
    named: list[tuple[bytes, bytes]] = []
    if HAS_XATTRS:
        with suppress(OSError):  # the file system has none
            if found_names := os.listxattr(descriptor):
                names = sorted(map(os.fsencode, found_names))
                named = [(name, os.getxattr(descriptor, name)) for name in names if is_attribute(name)]
    if named and sum(len(name) + len(value) for name, value in named) > MAX_ATTRIBUTES:
        named = []
    owner = _find_owner(found, folder)
    return Attributes(owner, tuple(named)) if named or owner is not None else None


def _find_owner(found: os.stat_result, folder: int) -> Owner | None:
    """Return the owner where it is another one than that of the folder around, and this process may give files away (it
    is root); and of files that are setuid or setgid, which are that again with this owner alone."""
    is_noted = bool(found.st_mode & SPECIAL_BITS)
    if not is_noted and os.geteuid() == 0:
        around = os.fstat(folder)
        is_noted = (found.st_uid, found.st_gid) != (around.st_uid, around.st_gid)
    return (found.st_uid, found.st_gid) if is_noted else None


NOT_SETUID = "setuid and setgid, because its owner or that of the store is another one"


def give_attributes(
    descriptor: int, attributes: Attributes | None, mode: int, folder: int, *, trusted: bool
) -> str | None:
    """Give a new file its owner (unless that is `trusted`, the one of its folder), attributes and mode; return what it
    could not be given, in words."""
    owner, named = (attributes.owner, attributes.named) if attributes is not None else (None, ())
    missing = []
    if os.geteuid() == 0:
        around, made = os.fstat(folder), os.fstat(descriptor)
        wanted = (owner if trusted else None) or (around.st_uid, around.st_gid)
        try:
            if wanted != (made.st_uid, made.st_gid):
                os.fchown(descriptor, *wanted)
        except OSError:
            missing.append("its owner")
        else:
            missing += ["its owner"] if owner not in (None, wanted) else []
    missing += _give_named(descriptor, dict(named))
    allowed = allow_mode(mode, owner if trusted else None, os.fstat(descriptor))
    if allowed != mode:
        missing.append(NOT_SETUID)
    os.fchmod(descriptor, allowed)
    return f"it is there, but without {', '.join(missing)}" if missing else None


def _give_named(descriptor: int, named: dict[bytes, bytes]) -> list[str]:
    """Give a new file these extended attributes, and no others that its folder has given it; return what failed."""
    failed = []
    for name, value in named.items():
        try:
            os.setxattr(descriptor, name, value)
        except (OSError, AttributeError):
            failed.append(os.fsdecode(name))
    if HAS_XATTRS:
        with suppress(OSError):
            for name in map(os.fsencode, os.listxattr(descriptor)):
                if is_attribute(name) and name not in named:
                    os.removexattr(descriptor, name)
    return failed


def allow_mode(mode: int, owner: Owner | None, found: os.stat_result) -> int:
    """Return the mode without setuid and setgid, unless the file has the owner that it had with these."""
    return mode if owner == (found.st_uid, found.st_gid) else mode & ~SPECIAL_BITS
