"""Making restored files durable: what a plan wrote, renamed and removed, and nothing that others have written."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from lastgood.errors import UnavailableError
from lastgood.files.plan import Enter, Leave, PutFile, RestorePlan
from lastgood.local.paths import GONE, FolderWalk, open_file, split
from lastgood.local.process import descriptors
from lastgood.model.tree import File

MANY = 512
"""From so many steps on everything on the file system is synced at once: one file after the other took 1 ms each."""


def sync(root_path: str, plan: RestorePlan, go_on: Callable[[], bool] = lambda: True) -> bool:
    """Make durable what the plan did, whatever has become of it since; False when it was told not to `go_on`.

    UnavailableError when the disk does not confirm it. What it did not write then may be lost, and another try may
    succeed all the same: the system forgets such errors.
    """
    if not plan.steps:
        return True
    try:
        with FolderWalk(root_path) as walk:
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
        if error.errno not in GONE:
            raise


def _sync_all(descriptor: int) -> None:
    """Make everything on this file system durable."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "syncfs"):
        os.sync()
    elif library.syncfs(descriptor) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
