"""Connections for evidence: to a host or to a socket of this machine, plain or with TLS, each under one deadline.

Over one goes a single HTTP request. `http.client` reads the response within the bounds of the connection; what is added
here is that nothing incomplete or ambiguous is taken for a response.
"""

from __future__ import annotations

import errno
import io
import os
import socket
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from lastgood.errors import BusyError, CheckpointError, InvalidError
from lastgood.evidence.check import NotYet, seconds_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPResponse

    from _typeshed import WriteableBuffer

MAX_BODY = 1_000_000
_MAX_BYTES = 2 << 20  # of answers whose content is 1 MB: what goes on top in chunks is more than that only on purpose
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
    place: Any


class BoundedConnection(io.RawIOBase):
    """A stream of a socket's bytes, until the deadline; InvalidError when the other side sends too much. Close it."""

    def __init__(self, opened: socket.socket, deadline: float) -> None:
        super().__init__()
        self._socket = opened
        self._deadline = deadline
        self._allowed = _MAX_BYTES
        self.has_ended = False
        """Whether the other side has said that nothing more comes."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._socket.settimeout(seconds_until(self._deadline))
        count = self._socket.recv_into(buffer)
        self.has_ended = not count
        self._allowed -= count
        if self._allowed < 0:
            raise _too_long()
        return count

    def has_exceeded(self) -> bool:
        """Return whether the other side sent more than is read."""
        return self._allowed < 0

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return itself, as http.client takes it from a socket."""
        return io.BufferedReader(self)

    def send(self, data: bytes) -> None:
        self._socket.settimeout(seconds_until(self._deadline))
        self._socket.sendall(data)

    def close(self) -> None:
        if not self.closed:
            self._socket.close()
        super().close()


def connect(addresses: list[Address], deadline: float, *, tls_host: str | None = None) -> BoundedConnection:
    """Connect to the first address that answers within its share of the time; OSError as the last one says it.

    With `tls_host`, by TLS: the certificate must be valid for it, by the system's list of authorities.
    """
    opened = _connect_first(addresses, deadline)
    try:
        if tls_host is not None:
            opened.settimeout(seconds_until(deadline))
            opened = _secure(opened, tls_host)
    except BaseException:
        opened.close()
        raise
    return BoundedConnection(opened, deadline)


def _connect_first(addresses: list[Address], deadline: float) -> socket.socket:
    failure = OSError()
    for number, address in enumerate(addresses):
        opened = socket.socket(address.family, socket.SOCK_STREAM)
        try:
            opened.settimeout(seconds_until(deadline) / (len(addresses) - number))
            opened.connect(address.place)
            # A port on which nothing listens may be the one that this end was given: then it talks to itself.
            if opened.getsockname() != opened.getpeername():
                return opened
            failure = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        except OSError as error:
            failure = error
        except BaseException:
            opened.close()
            raise
        opened.close()
    raise failure


def _secure(plain: socket.socket, host: str) -> socket.socket:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which checks certificates and names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_default_certs()
    # A stream that was cut off must not look as if it had ended.
    return context.wrap_socket(plain, server_hostname=host.rstrip("."), suppress_ragged_eofs=False)


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


def get(connection: BoundedConnection, target: str, host: str, *, read_body: bool) -> tuple[int, bytes]:
    """Send a request and return the status and the body of its response, which is empty where it is not to be read.

    Redirections are responses like others. NotYet when it is not a complete HTTP response, InvalidError when it is
    longer than is read; TimeoutError, OSError.
    """
    from http.client import HTTPException, HTTPResponse, IncompleteRead, LineTooLong, RemoteDisconnected

    headers = f"Host: {host}\r\nUser-Agent: lastgood\r\nAccept: */*\r\nAccept-Encoding: identity\r\n"
    connection.send(f"GET {target} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n".encode())
    try:
        with closing(HTTPResponse(cast("socket.socket", connection), method="GET")) as received:
            received.begin()
            if connection.has_ended:
                raise _cut_off()
            if received.headers.defects:
                raise _not_http()
            return received.status, _read_body(received, connection) if read_body and received.length != 0 else b""
    except CheckpointError:  # some of which are a ValueError, too
        raise
    except (RemoteDisconnected, IncompleteRead) as error:
        if connection.has_exceeded():  # which is a ValueError, and http.client takes it for a chunk's bad length
            raise _too_long() from error
        raise (_cut_off() if connection.has_ended else _not_http()) from error
    except LineTooLong as error:
        raise InvalidError("the head of the answer is longer than evidence reads") from error
    except (HTTPException, ValueError) as error:
        raise _not_http() from error


def _said_of_tls(error: OSError) -> str | None:
    """Describe what went wrong with TLS; None when it was something else."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return f"has a certificate that is not valid: {error.verify_message.rstrip('.')}"
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "broke the connection off"
    return "cannot agree on TLS" if isinstance(error, ssl.SSLError) else None


def _read_body(received: HTTPResponse, connection: BoundedConnection) -> bytes:
    if received.headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
        raise InvalidError("the answer is compressed, though that was not asked for, so its content is not read")
    lengths = {length.strip() for length in received.headers.get_all("content-length", ())}
    if not received.chunked and (
        "transfer-encoding" in received.headers or len(lengths) > 1 or (lengths and received.length is None)
    ):
        raise _not_http()
    if (received.length or 0) > MAX_BODY or len(body := received.read(MAX_BODY + 1)) > MAX_BODY:
        raise InvalidError("the answer is longer than the 1 MB that evidence reads")
    # Where the end of the connection is not the end of the body, it came too early.
    if connection.has_ended and (received.chunked or lengths):
        raise _cut_off()
    return body


def _too_long() -> InvalidError:
    return InvalidError("the answer is longer than evidence reads")


def _cut_off() -> NotYet:
    return NotYet("the answer was cut off")


def _not_http() -> NotYet:
    return NotYet("the answer is not HTTP as it should be")
