"""Connections for evidence: to a host or to a socket of this machine, plain or with TLS, each under one deadline."""

from __future__ import annotations

import errno
import io
import os
import select
import socket
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from lastgood.errors import BusyError, CheckpointError, InvalidError
from lastgood.evidence.hosts import Address
from lastgood.evidence.outside import Deadline, NotYet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import WriteableBuffer

_NEXT_ADDRESS_SECONDS = 0.25  # after which the next address is tried beside the first, as RFC 8305 advises
_MAX_ADDRESSES = 16  # of a name, however many its owner gives it
_MAX_BYTES = 2 << 20  # of answers whose content is 1 MB: what goes on top in chunks is more than that only on purpose
# A program that lets SIGPIPE kill it must not die of a server that hangs up.
_QUIETLY = getattr(socket, "MSG_NOSIGNAL", 0)
_AWAY = {
    errno.ECONNREFUSED: "refuses connections",
    errno.ECONNRESET: "broke the connection off",
    errno.ECONNABORTED: "broke the connection off",
    errno.EPIPE: "broke the connection off",
    errno.EHOSTUNREACH: "cannot be reached",
    errno.ENETUNREACH: "cannot be reached",
    errno.EHOSTDOWN: "cannot be reached",
    errno.ETIMEDOUT: "does not answer",
}


class Connection(io.RawIOBase):
    """Bytes of a socket, until the deadline; InvalidError when the other side sends without end. Close it."""

    def __init__(self, opened: socket.socket, deadline: Deadline, flags: int = _QUIETLY) -> None:
        super().__init__()
        self._socket = opened
        self._deadline = deadline
        self._flags = flags
        self._allowed = _MAX_BYTES
        self.has_ended = False
        """Whether the other side has said that nothing more comes."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._socket.settimeout(self._deadline.left())
        count = self._socket.recv_into(buffer)
        self.has_ended = not count
        self._allowed -= count
        if self._allowed < 0:
            raise InvalidError("the answer is longer than evidence reads")
        return count

    def send(self, data: bytes) -> None:
        self._socket.settimeout(self._deadline.left())
        self._socket.sendall(data, self._flags)

    def close(self) -> None:
        if not self.closed:
            self._socket.close()
        super().close()


def connect(addresses: list[Address], deadline: Deadline) -> Connection:
    """To whichever address answers first; OSError as the last one that failed says it."""
    return Connection(_connect_first(addresses, deadline), deadline)


def connect_safely(addresses: list[Address], host: str, deadline: Deadline) -> Connection:
    """As `connect`, with TLS: the certificate must be valid for the host, by the system's list of authorities."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which checks certificates and names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_default_certs()
    plain = _connect_first(addresses, deadline)
    try:
        plain.settimeout(deadline.left())
        # A stream that was cut off must not look as if it had ended.
        secured = context.wrap_socket(plain, server_hostname=host.rstrip("."), suppress_ragged_eofs=False)
    except BaseException:
        plain.close()
        raise
    return Connection(secured, deadline, flags=0)


def connect_here(path: str, deadline: Deadline) -> Connection:
    """To a socket in the file system."""
    opened = _open(socket.AF_UNIX)
    try:
        opened.settimeout(deadline.left())
        opened.connect(path)
    except BaseException:
        opened.close()
        raise
    return Connection(opened, deadline)


@contextmanager
def worded(who: str) -> Iterator[None]:
    """What goes wrong with a connection, said of `who`: NotYet when it is the other side's doing, else BusyError."""
    try:
        yield
    except CheckpointError:  # some of which are an OSError, too
        raise
    except TimeoutError as error:
        raise NotYet(f"{who} gave no answer in time") from error
    except OSError as error:
        if (said := _said_of_tls(error)) is None and (said := _AWAY.get(error.errno or 0)) is None:
            raise BusyError(f"the connection failed: {(error.strerror or 'input/output error').lower()}") from error
        raise NotYet(f"{who} {said}") from error


def _connect_first(addresses: list[Address], deadline: Deadline) -> socket.socket:
    waiting, begun = deque(addresses[:_MAX_ADDRESSES]), dict[int, socket.socket]()
    failure: OSError = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    poll = select.poll()
    try:
        while waiting or begun:
            if waiting:
                try:
                    opened = _begin(waiting.popleft())
                except OSError as error:
                    failure = error
                    continue
                begun[opened.fileno()] = opened
                poll.register(opened, select.POLLOUT)
            left = deadline.left()
            for number, _ in poll.poll(1000 * (min(left, _NEXT_ADDRESS_SECONDS) if waiting else left)):
                poll.unregister(number)
                if (reason := _why_not(begun[number])) is None:
                    return begun.pop(number)
                failure = reason
                begun.pop(number).close()
        raise failure
    finally:
        for opened in begun.values():
            opened.close()


def _begin(address: Address) -> socket.socket:
    opened = _open(address.family)
    opened.setblocking(False)
    try:
        with suppress(BlockingIOError):
            opened.connect(address.place)
    except BaseException:
        opened.close()
        raise
    return opened


def _open(family: socket.AddressFamily) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    if hasattr(socket, "SO_NOSIGPIPE"):  # where MSG_NOSIGNAL is not known
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_NOSIGPIPE, 1)
    return opened


def _why_not(opened: socket.socket) -> OSError | None:
    """Why a connection was not made; None when it was."""
    number = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    # A port from which nobody listens may be the one that this end was given: then it talks to itself.
    if not number and opened.getsockname() == opened.getpeername():
        number = errno.ECONNREFUSED
    return OSError(number, os.strerror(number)) if number else None


def _said_of_tls(error: OSError) -> str | None:
    """What went wrong with TLS; None when it was something else."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return f"has a certificate that is not valid: {error.verify_message.rstrip('.')}"
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "broke the connection off"
    return "cannot agree on TLS" if isinstance(error, ssl.SSLError) else None
