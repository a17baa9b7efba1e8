"""Servers of this machine that behave as a test says, and what a program asks of the world outside."""

from __future__ import annotations

import os
import select
import socket
import socketserver
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

Behave = Callable[[socket.socket], None]
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"


class Server:
    """What it was asked, and where."""

    def __init__(self, address: Any) -> None:
        self.address = address
        self.requests: list[bytes] = []

    @property
    def port(self) -> int:
        return int(self.address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving(
    *answers: bytes | Behave,
    path: str | None = None,
    host: str = "127.0.0.1",
    context: ssl.SSLContext | None = None,
    listens: bool = True,
) -> Iterator[Server]:
    """Each connection gets the next answer, the last one again and again; without `listens`, before it has asked.

    With `path` it is a socket in the file system, with `context` it speaks TLS.
    """
    waiting, lock = list(answers), threading.Lock()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with lock:
                answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            with suppress(OSError):  # the client has hung up, or broke the handshake off
                client = self.request if context is None else context.wrap_socket(self.request, server_side=True)
                with client:
                    request = b""
                    while listens and b"\r\n\r\n" not in request and (part := client.recv(65536)):
                        request += part
                    if request:
                        server.requests.append(request)
                    if callable(answer):
                        answer(client)
                    else:
                        client.sendall(answer)
                        _end(client)

    kind = socketserver.ThreadingTCPServer if path is None else socketserver.ThreadingUnixStreamServer
    with _of_family(kind, host)(path if path is not None else (host, 0), Handler) as opened:
        server = Server(opened.server_address)
        thread = threading.Thread(target=opened.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            opened.shutdown()
            thread.join()


def connections_to(address: Any) -> int:
    """How many this process has open, from its side."""
    found = 0
    for descriptor in list(Path("/dev/fd").iterdir()):
        with suppress(OSError), socket.socket(fileno=os.dup(int(descriptor.name))) as opened:
            found += opened.getpeername() == address
    return found


def forever(data: bytes) -> Behave:
    """Send it again and again until the client hangs up."""

    def behave(client: socket.socket) -> None:
        while True:
            client.sendall(data)

    return behave


def dripping(beginning: bytes, drop: bytes) -> Behave:
    """Send a little every hundredth of a second until the client hangs up."""

    def behave(client: socket.socket) -> None:
        client.sendall(beginning)
        while not select.select([client], [], [], 0.01)[0]:
            client.sendall(drop)

    return behave


def falling_silent(beginning: bytes = b"") -> Behave:
    """Send this, then nothing, until the client hangs up."""

    def behave(client: socket.socket) -> None:
        client.sendall(beginning)
        client.recv(1)

    return behave


def free_port() -> int:
    """One on which nobody listens."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


@contextmanager
def black_hole() -> Iterator[int]:
    """A port that neither takes connections nor refuses them."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        crowd = []
        try:
            while True:
                crowd.append(socket.socket())
                crowd[-1].settimeout(0.05)
                try:
                    crowd[-1].connect(address)
                except TimeoutError:
                    break
            yield int(address[1])
        finally:
            for one in crowd:
                one.close()


_watched: list[list[tuple[str, Any]]] = []
_hooked = threading.Event()


@contextmanager
def watching() -> Iterator[list[tuple[str, Any]]]:
    """Every lookup, every connection and every process that is begun meanwhile."""
    if not _hooked.is_set():
        _hooked.set()
        sys.addaudithook(_note)
    seen: list[tuple[str, Any]] = []
    _watched.append(seen)
    try:
        yield seen
    finally:
        _watched.remove(seen)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched and event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen"):
        for seen in _watched:
            seen.append((event, arguments[1] if event == "socket.connect" else arguments[0]))


def _end(client: socket.socket) -> None:
    """Properly: TLS says so, and what was sent is read before the connection is gone."""
    if isinstance(client, ssl.SSLSocket):
        client.unwrap()
    else:
        client.shutdown(socket.SHUT_WR)
        while client.recv(65536):
            pass


def _of_family(kind: type[Any], host: str) -> type[Any]:
    given = {"daemon_threads": False, "block_on_close": True}
    return type("Kind", (kind,), given | ({"address_family": socket.AF_INET6} if ":" in host else {}))
