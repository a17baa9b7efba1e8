"""The watcher of a root, borrowed for one capture from the process that keeps it (lookout.py)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from lastgood.engine.handover import GivenUp, Line, Place, Settled, Take
from lastgood.engine.workspace import Index
from lastgood.files.roots import Root
from lastgood.files.watch import Changed, Watcher


class Borrowed:
    """Used with the workspace's lock held, and closed in any case. One that was not settled leaves the keeper knowing
    nothing, and so does a process that is killed meanwhile."""

    def __init__(self, line: Line, watcher: Watcher, index: Index) -> None:
        self.watcher = watcher
        self._line = line
        self._index = index

    def take(self) -> Changed | None:
        return self.watcher.take()

    def settle(self, *, is_full: bool) -> None:
        """The index is saved, and the watcher given back with it."""
        index = self._index.save()
        self.watcher.settle(self._index.get().folders.keys())
        shared = self.watcher.share()
        with suppress(OSError):  # the keeper is gone, or does not answer
            if shared is None:
                self._line.send(GivenUp())
            elif index is not None:
                self._line.send(Settled(index, is_full, shared[1]))
            else:
                return
            self._line.receive()  # before the lock is let go, for the next one's sake

    def has_just_failed(self) -> bool:
        """The keeper tells."""
        return False

    def close(self) -> None:
        self._line.close()
        self.watcher.close()


def borrow(place: Path, root: Root, index: Index) -> Borrowed | None:
    """The root's watcher from whoever listens at `place`; None when nobody does, or not as one should."""
    try:
        there = Place(place)
    except OSError:
        return None
    try:
        line = there.connect()
    except OSError:
        return None
    finally:
        there.close()
    try:
        index.get()
        line.send(Take(index.identity()))
        handed, queue = line.receive_queue()
    except BaseException as error:
        line.close()
        if isinstance(error, OSError):
            return None
        raise
    watcher = Watcher(root.path)
    watcher.resume(handed.known, queue)
    return Borrowed(line, watcher, index)
