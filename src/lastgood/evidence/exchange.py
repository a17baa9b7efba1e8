"""One HTTP request and its response, on a connection of its own, read by `http.client` within bounds.

The connection keeps the deadline and bounds the bytes; what this adds is that nothing incomplete or ambiguous is taken
for a response.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, NamedTuple, cast

from lastgood.errors import CheckpointError, InvalidError
from lastgood.evidence.connection import Connection
from lastgood.evidence.outside import NotYet

if TYPE_CHECKING:
    import socket
    from http.client import HTTPResponse

MAX_BODY = 1_000_000


class Response(NamedTuple):
    """A status, headers with lower-case names, and a body, which is empty where none was to be read."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""

    def values(self, name: str) -> list[str]:
        return [value for header, value in self.headers if header == name]


def exchange(connection: Connection, method: str, target: str, host: str, *, read_body: bool) -> Response:
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


class _Stream(io.BufferedReader):
    """The bytes of a connection; http.client closes its streams at will, and the connection has an owner who does."""

    def close(self) -> None:
        pass


class _Socket:
    """What http.client uses of a socket."""

    def __init__(self, connection: Connection) -> None:
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


def _read_body(received: HTTPResponse, response: Response, connection: Connection) -> bytes:
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
