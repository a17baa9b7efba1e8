"""Folders held open to restore in them, so that nothing swapped in meanwhile can lead out of a root. What is done there
is made durable here, too.

No symbolic link is followed, in no component. Names are relative to an open folder and are single components.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from hashlib import sha256

from lastgood.errors import UnavailableError
from lastgood.files.plan import Enter, Leave, PutFile, RestorePlan
from lastgood.local.paths import GONE, FolderWalk, join, open_file, open_folder, signature, split
from lastgood.local.process import descriptors
from lastgood.model.tree import File, is_git, is_temporary

CHANGED = "it changed after it was captured"


class Refused(Exception):  # noqa: N818
    """An error of a step that would destroy something, or be led elsewhere."""


class OpenFolder:
    """A folder that is held open; writable for as long, whatever its mode says."""

    def __init__(self, fd: int, *, fresh: bool = False, mode: int | None = None) -> None:
        self.fd = fd
        self.fresh = fresh
        """Made a moment ago: there is nothing to look at."""
        found = os.fstat(fd)
        self.id = found.st_dev, found.st_ino
        self.owner = found.st_uid, found.st_gid
        self._now = stat.S_IMODE(found.st_mode)
        self._mode = self._now if mode is None else mode
        if self._now & 0o300 != 0o300:
            with suppress(OSError):
                self._change_mode(self._now | 0o700)

    def settle(self, mode: int | None = None) -> None:
        """Give it this mode, or the one that it had."""
        self._mode = self._mode if mode is None else mode
        self._change_mode(self._mode)

    def close(self) -> None:
        try:
            with suppress(OSError):
                self.settle()
        finally:
            os.close(self.fd)

    def look(self, name: bytes) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open(self, name: bytes) -> OpenFolder:
        """Open a folder in this one; one that may not be read is made readable."""
        try:
            return OpenFolder(open_folder(self.fd, name))
        except PermissionError:
            if (found := self.look(name)) is None:
                raise
            mode = stat.S_IMODE(found.st_mode)
            set_mode(self.fd, name, mode | 0o700, stat.S_IFDIR)
            return OpenFolder(open_folder(self.fd, name), mode=mode)

    def make(self, name: bytes) -> OpenFolder:
        """Make a folder in this one, with the same owner as far as that is possible."""
        os.mkdir(name, 0o700, dir_fd=self.fd)
        made = OpenFolder(open_folder(self.fd, name), fresh=True)
        if made.owner != self.owner and os.geteuid() == 0:
            with suppress(OSError):
                os.fchown(made.fd, *self.owner)
        return made

    def _change_mode(self, mode: int) -> None:
        if self._now != mode:
            os.fchmod(self.fd, mode)
            self._now = mode


def hash_file(name: bytes, found: os.stat_result, folder: OpenFolder) -> bytes | None:
    """Return the SHA-256 of what was found; None when it changes meanwhile."""
    descriptor = open_file(folder.fd, name)
    try:
        if signature(os.fstat(descriptor)) != signature(found):
            return None
        hasher = sha256()
        while part := os.read(descriptor, 1 << 20):
            hasher.update(part)
        return hasher.digest() if signature(os.fstat(descriptor)) == signature(found) else None
    finally:
        descriptors.close(descriptor, found)  # it may be a database that this process has locked


def set_mode(folder: int, name: bytes, mode: int, kind: int) -> None:
    """Change the mode of a file or folder, but of nothing that a link there leads to."""
    if os.chmod in os.supports_follow_symlinks:
        os.chmod(name, mode, dir_fd=folder, follow_symlinks=False)
        return
    # Linux has no such call before 6.6. O_PATH opens a file that may not be read, and closing it drops no locks.
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if stat.S_IFMT(os.fstat(descriptor).st_mode) != kind:
            raise Refused(CHANGED)
        os.chmod(f"/proc/self/fd/{descriptor}", mode)  # noqa: PTH101
    finally:
        os.close(descriptor)


def rename_exclusively(folder: OpenFolder, old: bytes, new: bytes) -> None:
    """Rename unless there is something (FileExistsError); checked just before where no single call does both."""
    rename, exclusive, _ = _find_rename()
    if rename is not None and _call(rename, folder, old, new, exclusive):
        return
    if folder.look(new) is not None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    os.rename(old, new, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)


def exchange(folder: OpenFolder, one: bytes, other: bytes) -> bool:
    """Let two names change places at once; False where the system or the file system cannot do that."""
    rename, _, swap = _find_rename()
    return rename is not None and _call(rename, folder, one, other, swap)


Rename = Callable[[int, bytes, int, bytes, int], int]


def _call(rename: Rename, folder: OpenFolder, old: bytes, new: bytes, flag: int) -> bool:
    """Rename in a folder; False where it cannot be done in this way."""
    import ctypes

    if rename(folder.fd, old, folder.fd, new, flag) == 0:
        return True
    code = ctypes.get_errno()
    if code not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        raise OSError(code, os.strerror(code))
    return False


@cache
def _find_rename() -> tuple[Rename | None, int, int]:
    """Return the call, its flag for a name that must be free, and that for names that change places."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if hasattr(library, "renameat2"):  # Linux: RENAME_NOREPLACE, RENAME_EXCHANGE
        return library.renameat2, 1, 2
    return getattr(library, "renameatx_np", None), 4, 2  # macOS: RENAME_EXCL, RENAME_SWAP


def remove_temporary(root_path: str) -> list[bytes]:
    """Remove the temporary files that a killed restore left behind, while none is under way; return their paths."""
    removed: list[bytes] = []
    todo = [b""]
    with FolderWalk(root_path) as walk:
        while todo:
            path = todo.pop()
            with nullcontext() if not path else suppress(OSError):
                folder = walk.folder(path)
                with os.scandir(folder) as entries:
                    found = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
                todo += [join(path, name) for name, is_folder in found if is_folder and not is_git(name)]
                for name in (name for name, is_folder in found if not is_folder and is_temporary(name)):
                    os.unlink(name, dir_fd=folder)
                    removed.append(join(path, name))
    return removed


# --- making it durable ----------------------------------------------------------------------------------------------

MANY = 512
"""From so many steps on everything on the file system is synced at once: one file after the other took 1 ms each."""


def sync(root_path: str, plan: RestorePlan, go_on: Callable[[], bool] = lambda: True) -> bool:
    """Make durable what the plan did, whatever has become of it since; False when it was told not to `go_on`, or the
    folder is gone.

    UnavailableError when the disk does not confirm it. What it did not write then may be lost, and another try may
    succeed all the same: the system forgets such errors.
    """
    if not plan.steps:
        return True
    try:
        try:
            opened = FolderWalk(root_path)
        except OSError as error:
            if error.errno not in GONE:
                raise
            return False
        with opened as walk:
            if len(plan.steps) < MANY:
                with suppress(PermissionError):  # to open what may not be read
                    return _sync_each(walk, plan, go_on)
            for folder in _find_devices(walk, plan).values():
                _sync_all(walk.folder(folder))
            return True
    except OSError as error:
        raise UnavailableError(
            f"the disk did not confirm what was restored: {(error.strerror or 'input/output error').lower()}",
            hint="look after the disk, then restore again",
        ) from error


def _sync_each(walk: FolderWalk, plan: RestorePlan, go_on: Callable[[], bool]) -> bool:
    """Sync the files, then the folders that name them."""
    for path in [step.path for step in plan.steps if isinstance(step, PutFile) and isinstance(step.new, File)]:
        if not go_on():
            return False
        folder, name = split(path)
        with _passing_over_gone():
            descriptor = open_file(walk.folder(folder), name)
            descriptors.adopt(descriptor)  # a capture meanwhile need not read the file in another process
            found = os.fstat(descriptor)
            try:
                if stat.S_ISREG(found.st_mode):
                    os.fsync(descriptor)
            finally:
                descriptors.close(descriptor, found)
    descriptors.close_parked()
    for path in _name_folders(plan):
        if not go_on():
            return False
        with _passing_over_gone():
            os.fsync(walk.folder(path))
    return True


def _name_folders(plan: RestorePlan) -> list[bytes]:
    """Return the folders of the plan, those below before those above."""
    named = {split(step.path)[0] for step in plan.steps} | {
        step.path for step in plan.steps if isinstance(step, Enter | Leave)
    }
    return sorted(named, reverse=True)


def _find_devices(walk: FolderWalk, plan: RestorePlan) -> dict[int, bytes]:
    """Return a folder of each file system that the plan was carried out on."""
    found = {os.fstat(walk.root).st_dev: b""}
    for path in _name_folders(plan):
        with _passing_over_gone(), suppress(PermissionError):
            found.setdefault(os.fstat(walk.folder(path)).st_dev, path)
    return found


@contextmanager
def _passing_over_gone() -> Iterator[None]:
    """Pass over what is gone, or was replaced, since it was restored."""
    try:
        yield
    except OSError as error:
        if error.errno not in GONE and error.errno != errno.ENXIO:  # a socket
            raise


def _sync_all(descriptor: int) -> None:
    """Make everything on this file system durable."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "syncfs"):
        os.sync()
    elif library.syncfs(descriptor) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
