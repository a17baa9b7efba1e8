"""How a watcher goes from the process that keeps it to the one that captures, and back: what is said, and over what.

The kernel's queue itself is handed over, as a descriptor, so that a capture watches and asks as if it were its own. Who
speaks is a process of the same user, whatever it says: each side takes exactly what it expects, in bounds, within
`SECONDS`, and everything else is an OSError. Then nothing is known, and everything is looked at.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from lastgood.files.index import Identity
from lastgood.files.watch import Knowledge

SECONDS = 1.0
"""How long one message may take to be sent, or to arrive."""

MAX_BYTES = 64 << 20
"""Of one message: a million folders."""

_LENGTH = struct.Struct(">I")
_DESCRIPTOR = struct.Struct("i")
_CREDENTIALS = struct.Struct("3i")
_QUEUE = "anon_inode:inotify"


class Take(msgspec.Struct, frozen=True, array_like=True, tag="take 1"):
    """To the keeper: I capture. The index that I have is this one."""

    index: Identity | None


class Handed(msgspec.Struct, frozen=True, array_like=True, tag="handed 1"):
    """From the keeper, with the queue: what is known since the capture that made this index."""

    known: Knowledge


class Settled(msgspec.Struct, frozen=True, array_like=True, tag="settled 1"):
    """To the keeper: I have captured, everything or what had changed. That made this index; keep the watcher again."""

    index: Identity
    is_full: bool
    known: Knowledge


class GivenUp(msgspec.Struct, frozen=True, array_like=True, tag="given up 1"):
    """To the keeper: there are more folders than can be watched."""


class Noted(msgspec.Struct, frozen=True, array_like=True, tag="noted 1"):
    """From the keeper: the next who takes it will know."""


Message = Take | Handed | Settled | GivenUp | Noted

_messages = msgspec.msgpack.Decoder(Message)
_encode = msgspec.msgpack.Encoder().encode


class Place:
    """Where the keeper of one root listens: a name in a private folder, reached through the folder's descriptor, since
    the path of a socket may have 107 bytes and no more."""

    def __init__(self, path: Path) -> None:
        """OSError when the folder is not there."""
        self._name = path.name
        self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._address = f"/proc/self/fd/{self._folder}/{self._name}"

    def connect(self) -> Line:
        end = socket.socket(socket.AF_UNIX)
        try:
            end.settimeout(SECONDS)
            end.connect(self._address)
            return Line(end)
        except BaseException:
            end.close()
            raise

    def listen(self) -> socket.socket:
        """In the place of whoever listened there before: it must be known that nobody does."""
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


class Line:
    """One end of a connection to a process of the same user."""

    def __init__(self, end: socket.socket) -> None:
        """PermissionError when it is someone else's."""
        given = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(given)[1] != os.geteuid():
            raise PermissionError
        self._end = end

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, message: Message, descriptor: int | None = None) -> None:
        data = _encode(message)
        head = _LENGTH.pack(len(data))
        self._end.settimeout(SECONDS)
        if descriptor is not None:
            beside = (socket.SOL_SOCKET, socket.SCM_RIGHTS, _DESCRIPTOR.pack(descriptor))
            self._end.sendmsg([head], [beside], socket.MSG_NOSIGNAL)
            head = b""
        self._end.sendall(head + data, socket.MSG_NOSIGNAL)

    def receive(self) -> Message:
        """A descriptor that comes along is not taken."""
        deadline = time.monotonic() + SECONDS
        return self._decode(self._read(_LENGTH.size, deadline), deadline)

    def receive_queue(self) -> tuple[Handed, int]:
        """What was handed over; whoever gets the descriptor closes it."""
        deadline = time.monotonic() + SECONDS
        self._end.settimeout(SECONDS)
        space, flags = socket.CMSG_LEN(_DESCRIPTOR.size), socket.MSG_CMSG_CLOEXEC
        head, beside, _, _ = self._end.recvmsg(_LENGTH.size, space, flags)
        queue = _descriptor_in(beside)
        try:
            if os.readlink(f"/proc/self/fd/{queue}") != _QUEUE:  # noqa: PTH115
                raise ConnectionError
            os.set_blocking(queue, False)
            message = self._decode(head + self._read(_LENGTH.size - len(head), deadline), deadline)
            if not isinstance(message, Handed):
                raise ConnectionError
        except BaseException:
            os.close(queue)
            raise
        return message, queue

    def close(self) -> None:
        self._end.close()

    def _decode(self, head: bytes, deadline: float) -> Message:
        (length,) = _LENGTH.unpack(head)
        if length > MAX_BYTES:
            raise ConnectionError
        try:
            message: Message = _messages.decode(self._read(length, deadline))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConnectionError from error
        return message

    def _read(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._end.settimeout(left)
            piece = self._end.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise ConnectionError
            data += piece
        return bytes(data)


def _descriptor_in(beside: list[tuple[int, int, bytes]]) -> int:
    """The one descriptor that came along; there was room for no more."""
    for level, kind, data in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS) and len(data) == _DESCRIPTOR.size:
            return int(_DESCRIPTOR.unpack(data)[0])
    raise ConnectionError
