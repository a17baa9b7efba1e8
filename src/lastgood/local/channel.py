"""Messages between processes of this machine, over a socket: each is its length and msgpack of a struct. And helper
processes to exchange them with: fresh interpreters that work for this one, never forks of the user's program.

Every message has a bound in bytes and may have one in time, and a descriptor can go along with one. Whatever is wrong
with a message is an OSError: what follows it makes no sense any more, so the channel is to be closed then.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

import msgspec

from lastgood.errors import UnavailableError

Received = TypeVar("Received")

_LENGTH = struct.Struct(">Q")
_DESCRIPTOR = struct.Struct("i")
_CREDENTIALS = struct.Struct("3i")
_PIECE_BYTES = 1 << 20
# A program that lets SIGPIPE kill it must not die of a process that ended.
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
_encode = msgspec.msgpack.Encoder().encode


class ChannelClosedError(ConnectionError):
    """The other side has closed the channel, or said that nothing more comes, between two messages."""


class BadMessageError(ConnectionError):
    """A message is longer than the channel takes, or not one that the other side expects."""


class Channel(Generic[Received]):
    """One end of a connection between two processes. One thread at a time sends, and one receives.

    `decoder` knows what may be received; nothing longer than `max_bytes` is sent or taken. A message without a deadline
    (on `time.monotonic`'s clock) has `seconds`, and where these are None, all the time there is.
    """

    def __init__(
        self,
        end: socket.socket,
        decoder: msgspec.msgpack.Decoder[Received],
        *,
        max_bytes: int,
        seconds: float | None = None,
    ) -> None:
        if hasattr(socket, "SO_NOSIGPIPE"):  # where MSG_NOSIGNAL is not known
            end.setsockopt(socket.SOL_SOCKET, socket.SO_NOSIGPIPE, 1)
        self._end = end
        self._decode = decoder.decode
        self._max_bytes = max_bytes
        self._seconds = seconds

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, message: object, *, deadline: float | None = None, descriptor: int | None = None) -> None:
        """Send a message; TimeoutError, BadMessageError, OSError."""
        data = _encode(message)
        if len(data) > self._max_bytes:
            raise BadMessageError
        head, deadline = _LENGTH.pack(len(data)), self._deadline(deadline)
        self._allow_until(deadline)
        if descriptor is not None:
            beside = (socket.SOL_SOCKET, socket.SCM_RIGHTS, _DESCRIPTOR.pack(descriptor))
            self._end.sendmsg([head], [beside], _NO_SIGNAL)
            head = b""
        self._end.sendall(head + data, _NO_SIGNAL)

    def receive(self, *, deadline: float | None = None) -> Received:
        """Receive a message; ChannelClosedError, BadMessageError, TimeoutError, OSError.

        A descriptor that comes along is not taken.
        """
        return self._receive(b"", self._deadline(deadline))

    def receive_with_descriptor(self) -> tuple[Received, int]:
        """Receive a message and the one descriptor that comes along, which the caller closes."""
        deadline = self._deadline(None)
        self._allow_until(deadline)
        space, flags = socket.CMSG_LEN(_DESCRIPTOR.size), getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        head, beside, _, _ = self._end.recvmsg(_LENGTH.size, space, flags)
        descriptor = _descriptor_in(beside)
        try:
            return self._receive(head, deadline), descriptor
        except BaseException:
            os.close(descriptor)
            raise

    def finish(self) -> None:
        """Say that nothing more comes from this side."""
        self._end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._end.close()

    def _deadline(self, given: float | None) -> float | None:
        return given if given is not None or self._seconds is None else time.monotonic() + self._seconds

    def _allow_until(self, deadline: float | None) -> None:
        """Bound the next system calls in time; TimeoutError when there is none left."""
        if deadline is None:
            if self._end.gettimeout() is not None:
                self._end.settimeout(None)
        elif (left := deadline - time.monotonic()) > 0:
            self._end.settimeout(left)
        else:
            raise TimeoutError

    def _receive(self, head: bytes, deadline: float | None) -> Received:
        head += self._read(_LENGTH.size - len(head), deadline, is_first=not head)
        (length,) = _LENGTH.unpack(head)
        if length > self._max_bytes:
            raise BadMessageError
        try:
            return self._decode(self._read(length, deadline))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadMessageError from error

    def _read(self, size: int, deadline: float | None, *, is_first: bool = False) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._allow_until(deadline)
            piece = self._end.recv(min(size - len(data), _PIECE_BYTES))
            if not piece:
                raise ChannelClosedError if is_first and not data else ConnectionError
            data += piece
        return bytes(data)


def require_same_user(end: socket.socket) -> None:
    """Raise PermissionError unless the process at the other end is of this one's user."""
    given = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    if _CREDENTIALS.unpack(given)[1] != os.geteuid():
        raise PermissionError


def _descriptor_in(beside: list[tuple[int, int, bytes]]) -> int:
    """Return the one descriptor that came along; there was room for no more."""
    for level, kind, data in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS) and len(data) == _DESCRIPTOR.size:
            return int(_DESCRIPTOR.unpack(data)[0])
    raise ConnectionError


_START = "import sys; sys.path += sys.argv[2:]; from {0} import serve; serve()"
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class HelperProcess(Generic[Received]):
    """A process that runs `serve()` of a module, and the channel to it. It ends when the channel does.

    `packages` are those that it imports, beside lastgood and msgspec: it starts without `site`, in half the time, and
    with nothing else on its path. An `isolated` one sees nothing of the environment and no signals of the terminal.
    OSError when it cannot be started, UnavailableError when there is no interpreter to start.
    """

    def __init__(
        self,
        module: str,
        decoder: msgspec.msgpack.Decoder[Received],
        *,
        max_bytes: int,
        packages: Iterable[ModuleType] = (),
        isolated: bool = False,
    ) -> None:
        import subprocess

        if not sys.executable or getattr(sys, "frozen", False):
            raise UnavailableError("there is no Python interpreter to start the helper process with")
        self.owner = os.getpid()
        command = [sys.executable, "-I", "-S", "-B", "-c", _START.format(module), module, *_homes(packages)]
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        here, there = socket.socketpair()
        try:
            with there:
                self._process = subprocess.Popen(  # noqa: S603
                    command,
                    stdin=there.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env=kept if isolated else None,
                    start_new_session=isolated,
                )
        except BaseException:
            here.close()
            raise
        self.channel = Channel(here, decoder, max_bytes=max_bytes)

    def kill(self) -> None:
        """End the process at once; a thread that waits for its message gets none."""
        if self.owner == os.getpid() and self._process.returncode is None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        self.kill()
        self.channel.close()

    def abandon(self) -> None:
        """Forget, in a forked child, the parent's process without touching it."""
        self.channel.close()
        self._process.returncode = 0


def channel_to_parent(decoder: msgspec.msgpack.Decoder[Received], *, max_bytes: int) -> Channel[Received]:
    """Open, in a helper process, the channel to the process that started it."""
    return Channel(socket.socket(fileno=0), decoder, max_bytes=max_bytes)


def _homes(packages: Iterable[ModuleType]) -> list[str]:
    """Return the folders in which packages are installed, for the helper's path."""
    files = [str(Path(__file__).parent), *(str(package.__file__) for package in (msgspec, *packages))]
    return sorted({str(Path(file).parent.parent) for file in files})
