"""Connections for evidence: to a host or to a socket of this machine, plain or with TLS, each under one deadline.

Over one goes a single HTTP request. `http.client` reads the response within the bounds of the connection; what is added
here is that nothing incomplete or ambiguous is taken for a response.
"""

from __future__ import annotations

import errno
import io
import os
import select
import socket
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lastgood.errors import BusyError, CheckpointError, InvalidError
from lastgood.evidence.check import Deadline, NotYet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPResponse

    from _typeshed import WriteableBuffer

MAX_BODY = 1_000_000
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


class Address(NamedTuple):
    """An address as `socket.connect` takes it, with its family."""

    family: socket.AddressFamily
    place: tuple[Any, ...]


class BoundedConnection(io.RawIOBase):
    """A stream of a socket's bytes, until the deadline; InvalidError when the other side sends too much. Close it."""

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


def connect(addresses: list[Address], deadline: Deadline) -> BoundedConnection:
    """Connect to the address that answers first; OSError as the last one that failed says it."""
    return BoundedConnection(_connect_first(addresses, deadline), deadline)


def connect_with_tls(addresses: list[Address], host: str, deadline: Deadline) -> BoundedConnection:
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
    return BoundedConnection(secured, deadline, flags=0)


def connect_to_socket(path: str, deadline: Deadline) -> BoundedConnection:
    """Connect to a socket in the file system."""
    opened = _open(socket.AF_UNIX)
    try:
        opened.settimeout(deadline.left())
        opened.connect(path)
    except BaseException:
        opened.close()
        raise
    return BoundedConnection(opened, deadline)


@contextmanager
def translated(subject: str) -> Iterator[None]:
    """Raise what goes wrong as a sentence about `subject`: NotYet when it is the other side's doing, else BusyError."""
    try:
        yield
    except CheckpointError:  # some of which are an OSError, too
        raise
    except TimeoutError as error:
        raise NotYet(f"{subject} gave no answer in time") from error
    except OSError as error:
        if (said := _said_of_tls(error)) is None and (said := _AWAY.get(error.errno or 0)) is None:
            raise BusyError(f"the connection failed: {(error.strerror or 'input/output error').lower()}") from error
        raise NotYet(f"{subject} {said}") from error


class Response(NamedTuple):
    """A status, headers with lower-case names, and a body, which is empty where none was to be read."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""

    def values(self, name: str) -> list[str]:
        return [value for header, value in self.headers if header == name]


def exchange(connection: BoundedConnection, method: str, target: str, host: str, *, read_body: bool) -> Response:
    """Send a request and return its response; redirections are responses like others.

    NotYet when it is not a complete HTTP response, InvalidError when it is longer than is read; TimeoutError, OSError.
    """
    from http.client import HTTPConnection, HTTPException, IncompleteRead, LineTooLong, RemoteDisconnected

    client = HTTPConnection(host)
    client.sock = end = _Socket(connection)
    headers = {"Host": host, "User-Agent": "lastgood", "Accept": "*/*", "Accept-Encoding": "identity"}
    client.request(method, target, headers=headers | {"Connection": "close"})
    try:
        received = _receive_head(end, method)
        if connection.has_ended:
            raise _cut_off()
        if received.headers.defects:
            raise _not_http()
        response = Response(received.status, [(name.lower(), value.strip()) for name, value in received.getheaders()])
        if not read_body or received.length == 0:
            return response
        return response._replace(body=_read_body(received, response, connection))
    except CheckpointError:  # some of which are a ValueError, too
        raise
    except (RemoteDisconnected, IncompleteRead) as error:
        raise (_cut_off() if connection.has_ended else _not_http()) from error
    except LineTooLong as error:
        raise InvalidError("the head of the answer is longer than evidence reads") from error
    except (HTTPException, ValueError) as error:
        raise _not_http() from error


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
    """Return why a connection was not made; None when it was."""
    number = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    # A port on which nothing listens may be the one that this end was given: then it talks to itself.
    if not number and opened.getsockname() == opened.getpeername():
        number = errno.ECONNREFUSED
    return OSError(number, os.strerror(number)) if number else None


def _said_of_tls(error: OSError) -> str | None:
    """Describe what went wrong with TLS; None when it was something else."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return f"has a certificate that is not valid: {error.verify_message.rstrip('.')}"
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "broke the connection off"
    return "cannot agree on TLS" if isinstance(error, ssl.SSLError) else None


class _Stream(io.BufferedReader):
    """A stream that stays open when http.client closes it: the connection's owner closes that."""

    def close(self) -> None:
        pass

    def flush(self) -> None:
        """Do nothing: a response flushes its stream when it is freed, perhaps after the connection was closed."""


class _Socket:
    """An adapter with what http.client uses of a socket."""

    def __init__(self, connection: BoundedConnection) -> None:
        self.sendall = connection.send
        self._stream = _Stream(connection)

    def makefile(self, mode: str) -> _Stream:
        return self._stream

    def close(self) -> None:
        pass


def _receive_head(end: _Socket, method: str) -> HTTPResponse:
    from http.client import HTTPResponse

    while True:
        received = HTTPResponse(cast("socket.socket", end), method=method)
        received.begin()
        if received.status == 101 or not 100 <= received.status < 200:  # those in between announce another
            return received


def _read_body(received: HTTPResponse, response: Response, connection: BoundedConnection) -> bytes:
    if any(value.lower() not in ("", "identity") for value in response.values("content-encoding")):
        raise InvalidError("the answer is compressed, though that was not asked for, so its content is not read")
    lengths = set(response.values("content-length"))
    if not received.chunked and (
        response.values("transfer-encoding") or len(lengths) > 1 or (lengths and received.length is None)
    ):
        raise _not_http()
    if (received.length or 0) > MAX_BODY or len(body := received.read(MAX_BODY + 1)) > MAX_BODY:
        raise InvalidError("the answer is longer than the 1 MB that evidence reads")
    # Where the end of the connection is not the end of the body, it came too early.
    if connection.has_ended and (received.chunked or lengths):
        raise _cut_off()
    return body


def _cut_off() -> NotYet:
    return NotYet("the answer was cut off")


def _not_http() -> NotYet:
    return NotYet("the answer is not HTTP as it should be")
