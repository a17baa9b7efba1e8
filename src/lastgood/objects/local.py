"""Objects as files of a directory: a name is a path, and what is not finished lies in `.drafts`."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lastgood.errors import (
    CheckpointError,
    DiskFullError,
    IntegrityError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from lastgood.local.paths import make_private_folder, open_private
from lastgood.local.process import move_off_standard_streams, write_all
from lastgood.model.identity import new_id
from lastgood.objects.contract import DAY, Listed, ObjectStore, check_name, check_prefix, check_range, is_name

_DRAFTS = ".drafts"
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LINK = (errno.ELOOP, errno.EMLINK)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What a file system without hard links says: FAT, many that are mounted by programs."""


class LocalObjects(ObjectStore):
    """A folder of objects. It holds no descriptor or lock between calls: it works on both sides of a fork()."""

    durable = True
    shared = False

    def __init__(self, folder: Path) -> None:
        """Note the folder, which is made with the first object; its parent must be there."""
        self._folder = folder
        self.address = str(folder)
        self._anchored: set[Path] = set()
        self._failed = False

    def put(self, name: str, chunks: Iterable[bytes]) -> bool:
        place = self._place(name)
        if self._is_taken(place):
            return False
        draft = self.draft()
        try:
            _write(draft, chunks)
            with _translated_errors():
                return self._publish(draft, place)
        finally:
            _discard(draft)

    def draft(self) -> Path:
        with _translated_errors():
            for folder in (self._folder, self._folder / _DRAFTS):
                _make_folder(folder)
        return self._folder / _DRAFTS / new_id()

    def adopt(self, name: str, path: Path) -> bool:
        place = self._place(name)
        try:
            if self._is_taken(place):
                return False
            with _translated_errors():
                _seal_file(path)
                return self._publish(path, place)
        finally:
            _discard(path)

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        place = self._place(name)
        check_range(start, length)
        with _translated_errors(name), _opened(place, os.O_RDONLY) as descriptor:
            there = _check_file(os.fstat(descriptor), name).st_size
            wanted = there - start if length is None else length
            if wanted < 0 or start + wanted > there:
                raise _cut_short(name)
            return _read_exactly(descriptor, start, wanted, name)

    def size(self, name: str) -> int:
        place = self._place(name)
        with _translated_errors(name):
            return _check_file(place.lstat(), name).st_size

    def delete(self, name: str) -> None:
        place = self._place(name)
        self._refuse_links(place.parent)
        with _translated_errors(name), suppress(FileNotFoundError, NotADirectoryError):
            if not stat.S_ISDIR(place.lstat().st_mode):
                place.unlink()

    def list(self, prefix: str = "") -> Iterator[Listed]:
        inside, slash, _ = check_prefix(prefix).rpartition("/")
        self._refuse_links(self._folder / inside)
        return _walk(self._folder / inside, inside + slash, prefix)

    def sweep(self, seconds: float = DAY) -> int:
        freed, limit = 0, time.time() - seconds
        self._refuse_links(self._folder / _DRAFTS)
        with _translated_errors(), suppress(FileNotFoundError), os.scandir(self._folder / _DRAFTS) as drafts:
            for draft in drafts:
                with suppress(FileNotFoundError):  # published meanwhile, or swept by someone else
                    found = draft.stat(follow_symlinks=False)
                    if found.st_mtime <= limit:
                        Path(draft).unlink()
                        freed += found.st_size
        return freed

    def close(self) -> None:
        pass

    def _place(self, name: str) -> Path:
        return self._folder / check_name(name)

    def _refuse_links(self, folder: Path) -> None:
        """Refuse to list or to delete behind a link, where other people's files may be."""
        while folder != self._folder.parent:
            _refuse_link(folder)
            folder = folder.parent

    def _is_taken(self, place: Path) -> bool:
        """Say whether the object is there; then it is durable, even if its writer has not come so far yet."""
        if self._failed:
            raise UnavailableError("an earlier object could not be made durable", hint="open the store again")
        with _translated_errors():
            try:
                found = place.lstat()
            except (FileNotFoundError, NotADirectoryError):  # making the folders says which of them is none
                return False
            if stat.S_ISDIR(found.st_mode):
                raise _continues_another()
            self._anchor(place.parent)
            self._sync(place.parent)
            return True

    def _publish(self, draft: Path, place: Path) -> bool:
        """Give a finished draft its name, unless that is taken."""
        try:
            self._anchor(place.parent)
        except NotADirectoryError as error:
            raise _continues_another() from error
        try:
            os.link(draft, place, follow_symlinks=False)
            fresh = True
        except FileExistsError:
            fresh = False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            fresh = self._rename(draft, place)
        self._sync(place.parent)
        return fresh

    def _rename(self, draft: Path, place: Path) -> bool:
        """Give a draft its name where there are no links: one at a time, as a rename would replace what is there."""
        with _opened(self._folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.lexists(place):
                return False
            draft.rename(place)
            return True

    def _anchor(self, folder: Path) -> None:
        """Make the way to a folder, durably; what is there may have been made by someone who has not synced it yet."""
        chain = [folder, *folder.parents]
        for step in reversed(chain[: chain.index(self._folder) + 1]):
            if step not in self._anchored:
                _make_folder(step)
                self._sync(step.parent)
                self._anchored.add(step)

    def _sync(self, folder: Path) -> None:
        with _opened(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY) as descriptor:
            try:
                _flush(descriptor)
            except OSError:
                self._failed = True  # a second fsync would succeed: the first has dropped what it could not write
                raise


def _write(draft: Path, chunks: Iterable[bytes]) -> None:
    """Write a sealed file of these chunks, whose own errors are passed on as they are."""
    with _translated_errors():
        descriptor = _open(draft, _CREATE)
    try:
        for chunk in chunks:
            with _translated_errors():
                write_all(descriptor, chunk)
        with _translated_errors():
            _seal(descriptor)
    finally:
        os.close(descriptor)


def _seal_file(path: Path) -> None:
    with _opened(path, os.O_RDONLY) as descriptor:
        _check_file(os.fstat(descriptor))
        _seal(descriptor)


def _seal(descriptor: int) -> None:
    if os.fstat(descriptor).st_mode & 0o777 != 0o600:
        with suppress(PermissionError):  # a file system without rights
            os.fchmod(descriptor, 0o600)
    _flush(descriptor)


def _flush(descriptor: int) -> None:
    if sys.platform == "darwin":  # where fsync leaves it to the drive when it writes
        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def _make_folder(folder: Path) -> None:
    try:
        make_private_folder(folder)
    except FileExistsError:
        _refuse_link(folder)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None


def _refuse_link(folder: Path) -> None:
    if folder.is_symlink():
        raise UnavailableError(f"a link is in the place of a folder of the store: {folder}", hint="put a folder there")


def _discard(path: Path) -> None:
    with suppress(OSError):  # must not hide what went wrong; it is swept one day
        path.unlink(missing_ok=True)


def _read_exactly(descriptor: int, start: int, length: int, name: str) -> bytes:
    parts: list[bytes] = []
    while length:
        part = os.pread(descriptor, length, start)
        if not part:
            raise _cut_short(name)
        parts.append(part)
        start, length = start + len(part), length - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _walk(folder: Path, base: str, prefix: str) -> Iterator[Listed]:
    with _translated_errors():
        try:
            with os.scandir(folder) as found:
                entries = [(entry, entry.is_dir(follow_symlinks=False)) for entry in found]
        except (FileNotFoundError, NotADirectoryError):
            return
    for entry, is_folder in sorted(entries, key=lambda pair: pair[0].name + "/" * pair[1]):
        name = base + entry.name
        if not is_name(name) or not name.startswith(prefix):
            continue
        if is_folder:
            yield from _walk(folder / entry.name, f"{name}/", prefix)
        elif entry.is_file(follow_symlinks=False):
            with suppress(FileNotFoundError):  # deleted meanwhile
                yield Listed(name, entry.stat(follow_symlinks=False).st_size)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = _open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open(path: Path, flags: int) -> int:
    is_folder = flags & os.O_DIRECTORY  # that of the whole store may be a link
    return move_off_standard_streams(os.open(path, flags) if is_folder else open_private(path, flags))


def _check_file(found: os.stat_result, name: str | None = None) -> os.stat_result:
    if stat.S_ISREG(found.st_mode):
        return found
    if name is not None and stat.S_ISDIR(found.st_mode):
        raise _missing(name)
    raise _replaced()


@contextmanager
def _translated_errors(name: str | None = None) -> Iterator[None]:
    """Translate an error of the system. With a name: of that object, which was to be read."""
    try:
        yield
    except CheckpointError:  # some of which are an OSError, too
        raise
    except OSError as error:
        raise _translate(error, name) from error


def _translate(error: OSError, name: str | None) -> CheckpointError:
    if name is not None and error.errno in (errno.ENOENT, errno.ENOTDIR):
        return _missing(name)
    if error.errno in _FULL:
        return DiskFullError("the disk is full", hint="nothing was saved: free some space and save again")
    if error.errno in _LINK:
        return _replaced()
    return UnavailableError(
        f"the store's objects cannot be used: {error.strerror}", hint="look at the disk and at the store's permissions"
    )


def _missing(name: str) -> NotFoundError:
    return NotFoundError("an object of the store is not there", hint="was it deleted by hand?", object=name)


def _cut_short(name: str) -> IntegrityError:
    return IntegrityError("an object of the store is shorter than what was to be read of it", object=name)


def _replaced() -> IntegrityError:
    return IntegrityError("something else is in the place of an object of the store", hint="was it put there by hand?")


def _continues_another() -> InvalidError:
    return InvalidError("an object's name continues that of another one", hint="choose another name")
