"""Messages between processes of this machine, over a socket: each is its length and msgpack of a struct. And helper
processes to exchange them with: fresh interpreters that work for this one, never forks of the user's program.

Every message has a bound in bytes and may have one in time. Whatever is wrong with a message is an OSError: what
follows it makes no sense any more, so the channel is to be closed then.
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
_PIECE_BYTES, _AHEAD_BYTES = 1 << 20, 1 << 14
"""Bytes that are received at once: at most, and if so many have come, whatever they belong to."""
# A program that lets SIGPIPE kill it must not die of a process that ended.
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
_encode = msgspec.msgpack.Encoder().encode


class ChannelClosedError(ConnectionError):
    """The other side has closed the channel, or said that nothing more comes, between two messages."""


class BadMessageError(ConnectionError):
    """A message is longer than the channel takes, or not one that the other side expects."""


class Channel(Generic[Received]):
    """One end of a connection between two processes. One thread at a time sends, and one receives.

    `decoder` knows what may be received; nothing longer than `max_bytes` is sent or taken. Deadlines are on
    `time.monotonic`'s clock.
    """

    def __init__(self, end: socket.socket, decoder: msgspec.msgpack.Decoder[Received], *, max_bytes: int) -> None:
        if hasattr(socket, "SO_NOSIGPIPE"):  # where MSG_NOSIGNAL is not known
            end.setsockopt(socket.SOL_SOCKET, socket.SO_NOSIGPIPE, 1)
        self._end = end
        self._decode = decoder.decode
        self._max_bytes = max_bytes
        self._received = bytearray()

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, message: object, *, deadline: float | None = None) -> None:
        """Send a message; TimeoutError, BadMessageError, OSError."""
        data = _encode(message)
        if len(data) > self._max_bytes:
            raise BadMessageError
        self._allow_until(deadline)
        self._end.sendall(_LENGTH.pack(len(data)) + data, _NO_SIGNAL)

    def receive(self, *, deadline: float | None = None) -> Received:
        """Receive a message; ChannelClosedError, BadMessageError, TimeoutError, OSError."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline, is_first=True))
        if length > self._max_bytes:
            raise BadMessageError
        try:
            return self._decode(self._read(length, deadline))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadMessageError from error

    def finish(self) -> None:
        """Say that nothing more comes from this side."""
        self._end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._end.close()

    def _allow_until(self, deadline: float | None) -> None:
        """Bound the next system calls in time; TimeoutError when there is none left."""
        if deadline is None:
            if self._end.gettimeout() is not None:
                self._end.settimeout(None)
        elif (left := deadline - time.monotonic()) > 0:
            self._end.settimeout(left)
        else:
            raise TimeoutError

    def _read(self, size: int, deadline: float | None, *, is_first: bool = False) -> bytes:
        received = self._received
        while len(received) < size:
            self._allow_until(deadline)
            piece = self._end.recv(min(max(size - len(received), _AHEAD_BYTES), _PIECE_BYTES))
            if not piece:
                raise ChannelClosedError if is_first and not received else ConnectionError
            received += piece
        data = bytes(received) if len(received) == size else bytes(received[:size])
        del received[:size]
        return data


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
