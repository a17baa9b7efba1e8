"""Keeping watch over folders between the captures of other processes, which then look only at what changed.

Each root has a watcher. A capture borrows it (watch_client.py) and gives it back with the index that it has made; what
it reports from then on is what has changed since that index. One that does not come back, or comes back with doubts, is
replaced by a new one that knows nothing: the next capture looks at everything. Nothing is decided or captured here.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from lastgood.errors import BusyError, UnavailableError
from lastgood.files.index import Identity
from lastgood.files.roots import Root
from lastgood.files.watch import FULL_SECONDS, Watcher
from lastgood.files.watch_client import (
    FailedWatcher,
    HandedWatcher,
    Noted,
    ReturnedWatcher,
    TakeWatcher,
    WatchAddress,
    WatchMessage,
    open_channel,
)
from lastgood.local.channel import Channel
from lastgood.local.location import make_private

PAUSE = 0.25
"""Seconds between two reads of a queue: it holds 16,384 events, and a program that writes all the time must not keep
this process busy as well."""

MAX_CHANGES = 1 << 14
"""More folders than that are not remembered as changed, however long there is no capture."""


class WatchServer:
    """A keeper of the watchers of some roots, in a thread of its own, until it is closed or none is left.

    `places` says where each root's captures ask. `on_failure` is called, once for a root, when it cannot be watched any
    more; captures of it look at everything then.
    """

    def __init__(self, places: Sequence[tuple[Root, Path]], *, on_failure: Callable[[Root], None]) -> None:
        """BusyError when one of them is watched already, UnavailableError when one cannot be."""
        self._on_failure = on_failure
        self._waker, self._sleeper = socket.socketpair()
        with ExitStack() as opened:
            opened.callback(self._waker.close)
            opened.callback(self._sleeper.close)
            self._roots = [_WatchedRoot(root, path, opened) for root, path in places]
            self._opened = opened.pop_all()
        self._thread = threading.Thread(target=self._keep, name="lastgood watch", daemon=True)
        self._thread.start()

    def counts(self) -> dict[Root, int]:
        """Return the roots that are not given up, and how many folders of each are watched: none before a capture."""
        return {watched.root: watched.count for watched in self._roots if not watched.has_failed}

    def join(self) -> None:
        """Wait until there is nothing left to watch."""
        self._thread.join()

    def close(self) -> None:
        with suppress(OSError):
            self._waker.send(b"\0")
        self._thread.join()
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _keep(self) -> None:
        roots = list(self._roots)
        while roots:
            now = time.monotonic()
            poll = select.poll()
            for descriptor in [
                self._sleeper.fileno(),
                *(each for watched in roots for each in watched.descriptors(now)),
            ]:
                poll.register(descriptor, select.POLLIN)
            is_resting = any(watched.is_resting(now) for watched in roots)
            ready = {descriptor for descriptor, _ in poll.poll(PAUSE * 1000 if is_resting else None)}
            if self._sleeper.fileno() in ready:
                return
            for watched in list(roots):
                watched.attend(ready)
                if watched.has_failed:
                    roots.remove(watched)
                    self._on_failure(watched.root)


class _WatchedRoot:
    """A root and its watcher. Used by the server's thread alone."""

    def __init__(self, root: Root, path: Path, opened: ExitStack) -> None:
        self.root = root
        self.has_failed = False
        self._watcher = Watcher(root.path)
        if self._watcher.share() is None:
            raise UnavailableError(
                "folders cannot be watched here", hint="it takes Linux, and enough of fs.inotify.max_user_instances"
            )
        opened.callback(self._watcher.close)
        try:
            make_private(path.parent)
            opened.callback(os.close, _lock(root, path.with_name(f"{path.name}.lock")))
            self._address = WatchAddress(path)
            opened.callback(self._address.close)
            self._listener = self._address.listen()
        except BusyError:
            raise
        except OSError as error:
            raise UnavailableError(
                "nobody could ask what is watched: there is no socket to be had beside the store",
                hint="look at the disk and at the rights in the store's folder",
            ) from error
        opened.callback(self._listener.close)
        opened.callback(self._leave)
        opened.callback(self._hang_up)
        self._channel: Channel[WatchMessage] | None = None
        self._is_lent = False
        self._asked_at = 0.0
        self._index: Identity | None = None
        """That of the capture which gave the watcher back."""
        self._full_at = 0.0
        self._rests_until = 0.0
        self.count = 0

    def descriptors(self, now: float) -> list[int]:
        """Return what there is to wait for."""
        waiting = [self._listener.fileno()]
        if self._channel is not None:
            waiting.append(self._channel.fileno())
        if not self._is_lent and self._watcher.queue >= 0 and not self.is_resting(now):
            waiting.append(self._watcher.queue)
        return waiting

    def is_resting(self, now: float) -> bool:
        return now < self._rests_until

    def attend(self, ready: set[int]) -> None:
        if self._channel is not None and self._channel.fileno() in ready:
            self._hear(self._channel)
        if self._listener.fileno() in ready:
            self._accept()
        if not self._is_lent and self._watcher.queue in ready:
            self._look()
            self._rests_until = time.monotonic() + PAUSE

    def _look(self) -> None:
        changed = self._watcher.look()
        if changed is None or len(changed.folders) + len(changed.trees) > MAX_CHANGES:
            self._forget()  # everything will be looked at: until then there is nothing to watch for

    def _accept(self) -> None:
        """Accept a capture, which has the workspace's lock; an earlier one has released it, or is no capture."""
        self._hang_up()
        try:
            end = self._listener.accept()[0]
        except OSError:
            return
        try:
            self._channel = open_channel(end)
        except OSError:
            end.close()

    def _hear(self, channel: Channel[WatchMessage]) -> None:
        try:
            match channel.receive():
                case TakeWatcher(index) if not self._is_lent:
                    self._lend(channel, index)
                case ReturnedWatcher() as returned if self._is_lent:
                    self._take_back(returned)
                    channel.send(Noted())
                case FailedWatcher() if self._is_lent:
                    self._give_up()
                    channel.send(Noted())
                case _:
                    raise ConnectionError
        except OSError:
            self._hang_up()

    def _lend(self, channel: Channel[WatchMessage], index: Identity | None) -> None:
        self._asked_at = time.monotonic()
        if index is None or index != self._index or self._asked_at - self._full_at >= FULL_SECONDS:
            self._watcher.doubt()
        shared = self._watcher.share()
        if shared is None:
            self._give_up()
            raise ConnectionError
        self._is_lent = True
        channel.send(HandedWatcher(shared[1]), descriptor=shared[0])

    def _take_back(self, returned: ReturnedWatcher) -> None:
        self._watcher.resume(returned.known)
        self._is_lent = False
        self._index = returned.index
        self.count = len(self._watcher)
        if returned.is_full:
            self._full_at = self._asked_at

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._is_lent:
            self._is_lent = False
            self._forget()

    def _forget(self) -> None:
        self._watcher.close()
        self._index = None
        self.count = 0

    def _give_up(self) -> None:
        self.has_failed = True
        self._leave()

    def _leave(self) -> None:
        """Remove the address: no capture is to ask here any more."""
        with suppress(OSError):
            self._address.clear()


def _lock(root: Root, path: Path) -> int:
    """Lock a file; the descriptor holds the lock for as long as this process has it open, and no longer."""
    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(file)
        raise BusyError(
            f"{root.path} is being watched already", hint="one `lastgood watch` of a folder is enough"
        ) from error
    return file
