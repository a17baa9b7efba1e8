"""Borrowing the watcher of a root for one capture, from the process that keeps it (watch_server.py).

The kernel's queue itself is handed over, as a descriptor, so that a capture watches and asks as if it were its own. The
other side is a process of the same user, whatever it sends: each side takes exactly what it expects, in bounds, within
`SECONDS`, and everything else is an OSError. Then nothing is known, and everything is looked at.
"""

from __future__ import annotations

import os
import socket
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from lastgood.files.index import Identity, StatIndex
from lastgood.files.roots import Root
from lastgood.files.scan import Changed
from lastgood.files.watch import Knowledge, Watcher
from lastgood.local.channel import Channel, require_same_user

SECONDS = 1.0
"""How long one message may take to be sent, or to arrive."""

MAX_BYTES = 64 << 20
"""Of one message: a million folders."""

_QUEUE = "anon_inode:inotify"


class TakeWatcher(msgspec.Struct, frozen=True, array_like=True, tag="take 1"):
    """A request to the server: a capture begins, with this index."""

    index: Identity | None


class HandedWatcher(msgspec.Struct, frozen=True, array_like=True, tag="handed 1"):
    """An answer of the server, with the queue: what is known since the capture that made this index."""

    known: Knowledge


class ReturnedWatcher(msgspec.Struct, frozen=True, array_like=True, tag="settled 1"):
    """A notice to the server: a capture of everything, or of what had changed, has made this index."""

    index: Identity
    is_full: bool
    known: Knowledge


class FailedWatcher(msgspec.Struct, frozen=True, array_like=True, tag="given up 1"):
    """A notice to the server: there are more folders than can be watched."""


class Noted(msgspec.Struct, frozen=True, array_like=True, tag="noted 1"):
    """An answer of the server to a notice: the next capture will know."""


WatchMessage = TakeWatcher | HandedWatcher | ReturnedWatcher | FailedWatcher | Noted
_MESSAGES: msgspec.msgpack.Decoder[WatchMessage] = msgspec.msgpack.Decoder(WatchMessage)


class BorrowedWatcher:
    """A watcher for one capture, used with the workspace's lock held, and closed in any case. One that was not settled
    leaves the server knowing nothing, and so does a process that is killed meanwhile."""

    def __init__(self, channel: Channel[WatchMessage], watcher: Watcher, index: StatIndex) -> None:
        self.watcher = watcher
        self._channel = channel
        self._index = index

    def take(self) -> Changed | None:
        return self.watcher.take()

    def settle(self, *, is_full: bool) -> None:
        """Save the index, and give the watcher back with it."""
        index = self._index.save()
        self.watcher.settle(self._index.folders.keys())
        shared = self.watcher.share()
        with suppress(OSError):  # the server is gone, or does not answer
            if shared is None:
                self._channel.send(FailedWatcher())
            elif index is not None:
                self._channel.send(ReturnedWatcher(index, is_full, shared[1]))
            else:
                return
            self._channel.receive()  # before the lock is let go, for the next one's sake

    def has_just_failed(self) -> bool:
        """Return False: the server reports it itself."""
        return False

    def close(self) -> None:
        self._channel.close()
        self.watcher.close()


def borrow_watcher(path: Path, root: Root, index: StatIndex) -> BorrowedWatcher | None:
    """Borrow the root's watcher from the server at `path`; None when there is none, or not as it should be."""
    try:
        with closing(WatchAddress(path)) as address:
            channel = address.connect()
    except OSError:
        return None
    try:
        channel.send(TakeWatcher(index.refresh().identity))
        known, queue = receive_queue(channel)
    except BaseException as error:
        channel.close()
        if isinstance(error, OSError):
            return None
        raise
    watcher = Watcher(root.path)
    watcher.resume(known, queue)
    return BorrowedWatcher(channel, watcher, index)


class WatchAddress:
    """An address at which the server of a root listens: a name in a private folder, reached through the folder's
    descriptor, since the path of a socket may have 107 bytes and no more."""

    def __init__(self, path: Path) -> None:
        """OSError when the folder is not there."""
        self._name = path.name
        self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._address = f"/proc/self/fd/{self._folder}/{self._name}"

    def connect(self) -> Channel[WatchMessage]:
        end = socket.socket(socket.AF_UNIX)
        try:
            end.settimeout(SECONDS)
            end.connect(self._address)
            return open_channel(end)
        except BaseException:
            end.close()
            raise

    def listen(self) -> socket.socket:
        """Listen in the place of an earlier server: it must be known that there is none."""
        self.clear()
        end = socket.socket(socket.AF_UNIX)
        try:
            end.bind(self._address)
            os.chmod(self._name, 0o600, dir_fd=self._folder)
            end.listen()
            end.setblocking(False)
        except BaseException:
            end.close()
            raise
        return end

    def clear(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._name, dir_fd=self._folder)

    def close(self) -> None:
        os.close(self._folder)


def open_channel(end: socket.socket) -> Channel[WatchMessage]:
    """Open a channel over a socket; PermissionError when the other end is another user's process."""
    require_same_user(end)
    return Channel(end, _MESSAGES, max_bytes=MAX_BYTES, seconds=SECONDS)


def receive_queue(channel: Channel[WatchMessage]) -> tuple[Knowledge, int]:
    """Receive a watcher that is handed over: what is known, and the kernel's queue, which the caller closes."""
    message, queue = channel.receive_with_descriptor()
    try:
        if not isinstance(message, HandedWatcher) or os.readlink(f"/proc/self/fd/{queue}") != _QUEUE:  # noqa: PTH115
            raise ConnectionError
        os.set_blocking(queue, False)
    except BaseException:
        os.close(queue)
        raise
    return message.known, queue
