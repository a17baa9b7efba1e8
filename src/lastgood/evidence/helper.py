"""The helper process of a verifier, seen from the verifier: started when first needed, kept, replaced when it died.

It reads what must not be read here: databases, because a second SQLite library in a process breaks the locks of the
first, and files that this process has open, because closing any descriptor of a file drops its locks.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lastgood.errors import BusyError, InvalidError, NotFoundError, UnavailableError
from lastgood.evidence.hashing import Signature
from lastgood.evidence.messages import MAX_BYTES, Columns, HashRequest, Reply, RowRequest, frame, receive
from lastgood.local.fork import renew_after_fork

if TYPE_CHECKING:
    import socket
    import subprocess

_START = "import sys; sys.path += sys.argv[2:]; from lastgood.evidence.reader import serve; serve()"
_GRACE_SECONDS = 0.25  # the helper keeps the deadline, too; this much later it is taken for stuck
_REPLY = msgspec.msgpack.Decoder(Reply)


class Helper:
    """One process, one request at a time. Safe for threads; a forked child starts its own."""

    def __init__(self) -> None:
        self._child: _Child | None = None
        self._farewell: weakref.finalize[[], Helper] | None = None
        self._closed = False
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        self._lock = threading.Lock()
        if self._child is not None and self._child.owner != os.getpid():
            self._child.abandon()
            self._forget()

    def hash_file(self, base: str, path: str, max_bytes: int, deadline: float) -> tuple[str, Signature | None]:
        """As `Files.read`."""
        request = HashRequest(os.fsencode(base), os.fsencode(path), max_bytes, _left(deadline))
        reply = self._ask(request, deadline).answer()
        return reply.text, reply.seen

    def ask_row(self, base: str, path: str, table: str, where: Columns, values: Columns, deadline: float) -> Question:
        """Ask whether the database has such a row; the answer's text is how it differs, empty when it has one."""
        request = RowRequest(os.fsencode(base), os.fsencode(path), table, where, values, _left(deadline))
        return self._ask(request, deadline)

    def is_free(self) -> bool:
        return not self._lock.locked()

    def close(self) -> None:
        """At once: whoever waits for an answer gets none."""
        self._closed = True
        if (child := self._child) is not None:
            child.end()
        with self._lock:
            self.end()

    def _ask(self, request: HashRequest | RowRequest, deadline: float) -> Question:
        message = frame(request)
        if len(message) > MAX_BYTES:
            raise InvalidError("the claim is too large to be checked")
        if not self._lock.acquire(timeout=_left(deadline)):
            raise _too_slow()
        question = Question(self, message, deadline)
        try:
            child = self._require_child()
            with suppress(OSError):  # it is gone: that is seen when the answer does not come
                child.send(message, deadline)
        except BaseException:
            question.drop()
            raise
        return question

    def receive(self, message: bytes, deadline: float) -> Reply:
        """The answer to what was sent; sent once more, to a new process, when the old one turns out to be gone."""
        child = self._require_child()
        for is_last in (False, True):
            try:
                return child.receive(deadline)
            except TimeoutError as error:
                raise _too_slow() from error
            except ValueError as error:
                self._require_open()  # else it was not the answer: the socket was closed under whoever waits for it
                raise UnavailableError("the helper process gave an answer that makes no sense") from error
            except (OSError, EOFError):
                self.end()
            if not is_last:
                child = self._require_child()
                with suppress(OSError):
                    child.send(message, deadline)
        raise UnavailableError("the helper process that reads for evidence ended unexpectedly")

    def release(self) -> None:
        self._lock.release()

    def _require_open(self) -> None:
        if self._closed:
            raise UnavailableError("this verifier was closed")

    def _require_child(self) -> _Child:
        self._require_open()
        if self._child is None:
            self._child = _Child()
            self._farewell = weakref.finalize(self, self._child.end)
        return self._child

    def end(self) -> None:
        if self._child is not None:
            self._child.end()
            self._forget()

    def _forget(self) -> None:
        self._child = None
        if self._farewell is not None:
            self._farewell.detach()


class Question:
    """Sent to a helper, which has time for nobody else until it was answered or dropped."""

    def __init__(self, helper: Helper, message: bytes, deadline: float) -> None:
        self._helper: Helper | None = helper
        self._message = message
        self._deadline = deadline

    def answer(self) -> Reply:
        """Once. BusyError, NotFoundError and InvalidError as the helper met them, UnavailableError without it."""
        assert self._helper is not None
        try:
            reply = self._helper.receive(self._message, self._deadline)
        except BaseException:
            self.drop()
            raise
        helper, self._helper = self._helper, None
        helper.release()
        return _told(reply)

    def drop(self) -> None:
        """Nobody waits for the answer any more; the helper may be stuck, so it is ended."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.end()
            helper.release()


class _Child:
    def __init__(self) -> None:
        self.owner = os.getpid()
        self._process, self._socket = _start()

    def send(self, message: bytes, deadline: float) -> None:
        import select
        import socket

        # A program that lets SIGPIPE kill it must not die of a helper that did.
        flags = getattr(socket, "MSG_NOSIGNAL", 0)
        rest = memoryview(message)
        while rest:
            try:
                rest = rest[self._socket.send(rest, flags) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, deadline)

    def receive(self, deadline: float) -> Reply:
        import select

        def read(size: int) -> bytes:
            while True:
                try:
                    return self._socket.recv(size)
                except BlockingIOError:
                    self._wait(select.POLLIN, deadline)

        reply = receive(read)
        if reply is None:
            raise EOFError
        return _REPLY.decode(reply)

    def _wait(self, event: int, deadline: float) -> None:
        import select

        poll = select.poll()
        poll.register(self._socket, event)
        if not poll.poll((_left(deadline) + _GRACE_SECONDS) * 1000):
            raise TimeoutError

    def end(self) -> None:
        """It only ever reads, so killing it harms nothing."""
        if self.owner == os.getpid() and self._process.returncode is None:
            self._socket.close()
            self._process.kill()
            self._process.wait()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's process without touching it."""
        self._socket.close()
        self._process.returncode = 0


def _start() -> tuple[subprocess.Popen[bytes], socket.socket]:
    import socket
    import subprocess

    if not sys.executable or getattr(sys, "frozen", False):
        raise UnavailableError("there is no Python interpreter to start the helper process with")
    here, there = socket.socketpair()
    here.setblocking(False)
    if hasattr(socket, "SO_NOSIGPIPE"):
        here.setsockopt(socket.SOL_SOCKET, socket.SO_NOSIGPIPE, 1)
    # Isolated, and without site: nothing of the user's environment runs there, and it starts in half the time.
    command = [sys.executable, "-I", "-S", "-B", "-c", _START, "lastgood.evidence.reader", *_homes()]
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}
    try:
        with there:
            process = subprocess.Popen(  # noqa: S603
                command,
                stdin=there.fileno(),
                stdout=there.fileno(),
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=kept,
                start_new_session=True,  # Ctrl-C is for the program, not for its helper
            )
    except OSError as error:
        here.close()
        raise UnavailableError("the helper process that reads for evidence cannot be started") from error
    return process, here


def _homes() -> list[str]:
    """Where this package and msgspec are installed."""
    return sorted({str(Path(file).parent.parent) for file in (str(Path(__file__).parent), str(msgspec.__file__))})


def _told(reply: Reply) -> Reply:
    match reply.kind:
        case "busy":
            raise BusyError(reply.text)
        case "missing":
            raise NotFoundError(reply.text)
        case "invalid":
            raise InvalidError(reply.text)
    return reply


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _too_slow() -> UnavailableError:
    return UnavailableError("reading took too long", hint="give the verifier a longer timeout")
