"""One HTTP/1.1 request and its answer, on a connection of its own. Nothing is taken on trust.

Every part of an answer has a bound, and the connection has a deadline: what drips, never ends or makes no sense
costs neither memory nor time beyond these.
"""

from __future__ import annotations

import io
import re
from typing import NamedTuple

from lastgood.errors import InvalidError
from lastgood.evidence.connection import Connection
from lastgood.evidence.outside import NotYet

MAX_BODY = 1_000_000
_MAX_HEAD = 64 << 10
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?")
_LENGTH = re.compile(r"[0-9]{1,18}")
_BODILESS = (204, 304)


class Answer(NamedTuple):
    """Names of headers are in small letters. The body is empty where none was to be read."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def values(self, name: str) -> list[str]:
        return [value for header, value in self.headers if header == name]


def exchange(connection: Connection, method: str, target: str, host: str, *, read_body: bool) -> Answer:
    """The answer to a request. NotYet when it is not a whole answer, InvalidError when it is longer than is read;
    TimeoutError, OSError. `method`, `target` and `host` hold no blanks and no control characters."""
    request = [f"{method} {target} HTTP/1.1", f"Host: {host}", "User-Agent: lastgood", "Accept: */*"]
    request += ["Accept-Encoding: identity", "Connection: close", "", ""]
    connection.send("\r\n".join(request).encode("ascii"))
    stream = io.BufferedReader(connection)
    head = _Lines(stream)
    status, headers = _read_head(head)
    while 100 <= status < 200 and status != 101:
        status, headers = _read_head(head)
    answer = Answer(status, headers, b"")
    if not read_body or method == "HEAD" or status in _BODILESS or status < 200:
        return answer
    if any(value.lower() not in ("", "identity") for value in answer.values("content-encoding")):
        raise InvalidError("the answer is compressed, though that was not asked for, so its content is not read")
    return answer._replace(body=_read_body(stream, answer))


class _Lines:
    """Lines of a stream, without their ends, up to a bound for all of them together."""

    def __init__(self, stream: io.BufferedReader[Connection]) -> None:
        self._stream = stream
        self._allowed = _MAX_HEAD

    def next(self) -> bytes:
        line = self._stream.readline(self._allowed)
        self._allowed -= len(line)
        if line.endswith(b"\n"):
            return line[:-1].removesuffix(b"\r")
        if not self._allowed:
            raise InvalidError("the head of the answer is longer than evidence reads")
        raise _cut_off()


def _read_head(lines: _Lines) -> tuple[int, list[tuple[str, str]]]:
    if (found := _STATUS.fullmatch(lines.next())) is None:
        raise _not_http()
    headers = []
    while line := lines.next():
        if (field := _FIELD.fullmatch(line)) is None:
            raise _not_http()
        headers.append((field[1].decode("ascii").lower(), field[2].decode("latin-1")))
    return int(found[1]), headers


def _read_body(stream: io.BufferedReader[Connection], answer: Answer) -> bytes:
    if codings := answer.values("transfer-encoding"):
        if [coding.lower() for coding in codings] != ["chunked"]:
            raise _not_http()
        return _read_chunks(stream)
    lengths = set(answer.values("content-length"))
    if not lengths:
        body = stream.read(MAX_BODY + 1)
        if len(body) > MAX_BODY:
            raise _too_long()
        return body
    length = lengths.pop()
    if lengths or not _LENGTH.fullmatch(length):
        raise _not_http()
    return _read_exactly(stream, int(length), 0)


def _read_chunks(stream: io.BufferedReader[Connection]) -> bytes:
    body = bytearray()
    while True:
        line = stream.readline(1024)
        if not line.endswith(b"\n"):
            raise _cut_off() if len(line) < 1024 else _not_http()
        found = _CHUNK.fullmatch(line[:-1].removesuffix(b"\r"))
        if found is None:
            raise _not_http()
        if not (size := int(found[1], 16)):
            break
        body += _read_exactly(stream, size, len(body))
        if stream.readline(3) not in (b"\r\n", b"\n"):
            raise _not_http()
    trailer = _Lines(stream)
    while trailer.next():
        pass
    return bytes(body)


def _read_exactly(stream: io.BufferedReader[Connection], size: int, before: int) -> bytes:
    if before + size > MAX_BODY:
        raise _too_long()
    data = stream.read(size)
    if len(data) < size:
        raise _cut_off()
    return data


def _too_long() -> InvalidError:
    return InvalidError("the answer is longer than the 1 MB that evidence reads")


def _cut_off() -> NotYet:
    return NotYet("the answer was cut off")


def _not_http() -> NotYet:
    return NotYet("the answer is not HTTP as it should be")
