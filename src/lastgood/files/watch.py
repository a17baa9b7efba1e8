"""Watching a root: in which of its folders something may have changed since they were captured last.

A hint that is complete or not given. The kernel queues an event in the moment of the change, so what is read from the
queue now tells of everything that was done before, and no thread has to keep up with it. Only folders that are captured
are watched: what builds and package managers do in ignored ones costs nothing. The kernel's own interface is used, for
libraries drop the one event that says that others were lost: of 20,001 new files watchfiles 1.3 told of 5,462, and of
no error. Where there is no inotify, nothing is ever known, and captures look at everything.

What the kernel does not tell: writes through a mapping of a file for as long as it stays mapped, writes to a file under
another name that is not captured, what other hosts do on a network file system, and folders mounted over others.
Whoever uses this looks at everything now and then.
"""

from __future__ import annotations

import os
import struct
import sys
import time
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

from lastgood.files.index import StatIndex
from lastgood.files.scan import Changed
from lastgood.local.paths import join
from lastgood.local.process import renew_after_fork
from lastgood.model.tree import is_git

FULL_SECONDS = 60.0
"""How long captures rely on what was watched before one looks at everything again: not every write is told of."""

MAX_EVENTS = 1 << 15
"""More than a queue holds by default: someone writes as fast as they are read, and looking at everything is quicker."""

_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x002, 0x004, 0x008
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x040, 0x080, 0x100, 0x200
_UNMOUNT, _OVERFLOW, _IGNORED, _IS_FOLDER, _ONLY_FOLDERS = 0x2000, 0x4000, 0x8000, 0x40000000, 0x01000000
_COMING_AND_GOING = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
# The end of writing, too: it is all that is told of a file that was written through a mapping.
_EVERYTHING = _MODIFY | _ATTRIB | _CLOSE_WRITE | _COMING_AND_GOING | _ONLY_FOLDERS

_EVENT = struct.Struct("iIII")
_BUFFER = 1 << 16


class Watcher:
    """A watcher of the folders of one root that were added. Used with the workspace's lock held.

    A capture takes what has changed, adds each folder before it is listed, and settles in the end: from then on the
    watcher knows what has changed since the index was made. None means that it does not: everything has to be scanned,
    and added. The index is saved then, and in the end: a crash costs a slower capture.
    """

    def __init__(self, root: str, index: StatIndex) -> None:
        self._root = root
        self._index = index
        self._generation = 0
        self._full_at = -FULL_SECONDS
        self._begin()
        renew_after_fork(self)

    def _begin(self) -> None:
        self._queue = -1
        """The kernel's queue of events; negative while nothing is watched."""
        self._close: Callable[[], Any] = lambda: None
        self.has_failed = False
        """Whether it has given up: there is no inotify, or no more of it (fs.inotify.max_user_watches)."""
        self._knows = False
        self._identity: tuple[int, int] | None = None
        self._paths: dict[int, bytes] = {}
        self._numbers: dict[bytes, int] = {}
        self._added: set[bytes] = set()
        self._folders: dict[bytes, set[bytes] | None] = {}
        self._trees: set[bytes] = set()
        self._is_lost = False

    def renew_locks(self) -> None:
        """Begin anew in a child: events that it read would be missing in the parent."""
        self.close()

    def take(self) -> Changed | None:
        """Return what may have changed since the last call; the next answer is None unless `settle` is called."""
        self._open()
        found = self.look()
        knows = (
            self._knows
            and self._index.generation == self._generation
            and self._identity is not None
            and self._identity == _identify(self._root)
            and time.monotonic() - self._full_at < FULL_SECONDS
        )
        self._knows, self._generation = False, self._index.generation
        self._folders, self._trees, self._added, self._is_lost = {}, set(), set(), False
        return found if knows else None

    def look(self) -> Changed | None:
        """Return what the next `take` will give, as far as it is known now."""
        if self._queue >= 0:
            self._drain()
        return None if self._is_lost or self.has_failed else Changed(dict(self._folders), set(self._trees))

    def add(self, path: bytes, folder: int) -> None:
        """Watch the folder that is open as `folder` and lies at `path`."""
        if self._queue < 0:
            return
        # Through its descriptor: a path could lead elsewhere by now.
        number = _system().inotify_add_watch(self._queue, b"/proc/self/fd/%d/." % folder, _EVERYTHING)
        if number < 0:
            self._fail()
            return
        former = self._paths.get(number)
        if former is not None and former != path:
            self._is_lost |= former in self._added  # mounted in two places: only one of them would be told
            self._numbers.pop(former, None)
        replaced = self._numbers.get(path)
        if replaced is not None and replaced != number:
            self._remove(path)
        self._paths[number], self._numbers[path] = path, number
        self._added.add(path)
        if not path:
            found = os.fstat(folder)
            self._identity = found.st_dev, found.st_ino

    def settle(self, *, is_full: bool) -> None:
        """Know from now on: the folders of the index were captured, each as it was when, or after, it was added; all of
        them in this capture if `is_full`."""
        folders = self._index.folders
        for path in [path for path in self._numbers if path not in folders]:
            self._remove(path)
        self._knows = not self.has_failed and len(self._numbers) == len(folders)
        if is_full:
            self._full_at = time.monotonic()
            self._index.save()

    def close(self) -> None:
        """Stop watching; used again, it knows nothing."""
        self._close()
        self._begin()

    def _open(self) -> None:
        if self._queue >= 0 or self.has_failed:
            return
        queue = _system().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC) if sys.platform == "linux" else -1
        if queue < 0:
            self.has_failed = True
        else:
            self._queue, self._close = queue, weakref.finalize(self, os.close, queue)

    def _fail(self) -> None:
        self.close()
        self.has_failed = True

    def _remove(self, path: bytes) -> None:
        number = self._numbers.pop(path)
        self._paths.pop(number, None)
        _system().inotify_rm_watch(self._queue, number)  # it may be gone with its folder

    def _drain(self) -> None:
        count = 0
        while count < MAX_EVENTS:
            try:
                data = os.read(self._queue, _BUFFER)
            except BlockingIOError:
                return
            except OSError:
                self._fail()
                return
            at = 0
            while at < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + length
                self._note(number, mask, data[at - length : at].rstrip(b"\0"))
                count += 1
        self._is_lost = True

    def _note(self, number: int, mask: int, name: bytes) -> None:
        if mask & (_OVERFLOW | _UNMOUNT):
            self._is_lost = True
        path = self._paths.get(number)
        if path is None or (is_git(name) and not mask & _COMING_AND_GOING):
            return
        if mask & _IGNORED:
            del self._paths[number]
            self._numbers.pop(path, None)
        names = self._folders.setdefault(path, set())
        if not name:
            self._folders[path] = None
        elif names is not None:
            names.add(name)
        if mask & _IS_FOLDER and mask & _COMING_AND_GOING and not is_git(name):
            self._trees.add(join(path, name))


def _identify(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino


@cache
def _system() -> Any:
    import ctypes

    system = ctypes.CDLL(None)
    system.inotify_add_watch.argtypes = ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32
    return system
