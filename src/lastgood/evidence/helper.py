"""The helper process of a verifier: started when first needed, kept, replaced when it died. It reads, never writes.

It reads what must not be read in the verifier's process: databases, because a second SQLite library in a process breaks
the locks of the first, and files that the process has open, because closing any descriptor of a file drops its locks.
`Helper` is the verifier's side, `serve` is what the process runs.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from lastgood.errors import BusyError, CheckpointError, InvalidError, NotFoundError, UnavailableError
from lastgood.evidence.files import Files
from lastgood.local.paths import Signature
from lastgood.local.process import renew_after_fork

if TYPE_CHECKING:
    from lastgood.local.channel import HelperProcess

_MAX_BYTES = 4 << 20
_GRACE_SECONDS = 0.25  # the helper keeps the deadline, too; this much later it is taken for stuck
_IDLE_SECONDS = 0.5

Columns = dict[str, Any]
"""Column to value: None, a number, text or bytes."""


class HashRequest(msgspec.Struct, frozen=True, array_like=True, tag="hash"):
    """A request to hash a file."""

    base: bytes
    path: bytes
    max_bytes: int
    timeout: float


class RowRequest(msgspec.Struct, frozen=True, array_like=True, tag="row"):
    """A request to find a row in a database."""

    base: bytes
    path: bytes
    table: str
    where: Columns
    values: Columns
    timeout: float


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """An answer. `holds`: with what was found; `mismatch`, `missing`, `invalid`, `busy`: a sentence about why not."""

    kind: Literal["holds", "mismatch", "missing", "invalid", "busy"]
    text: str = ""
    seen: Signature | None = None


Request = HashRequest | RowRequest
_REQUESTS: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_REPLIES = msgspec.msgpack.Decoder(Reply)


class Helper:
    """A helper process, with one request at a time. Safe for threads; a forked child starts its own."""

    def __init__(self) -> None:
        self._process: HelperProcess[Reply] | None = None
        self._finalizer: weakref.finalize[[], Helper] | None = None
        self._closed = False
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        self._lock = threading.Lock()
        if self._process is not None and self._process.owner != os.getpid():
            self._process.abandon()
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
        """End the process at once: a thread that waits for an answer gets none."""
        self._closed = True
        if (process := self._process) is not None:
            process.kill()
        with self._lock:
            self.end()

    def _ask(self, request: Request, deadline: float) -> Question:
        if not self._lock.acquire(timeout=_left(deadline)):
            raise _too_slow()
        question = Question(self, request, deadline)
        try:
            self._send(request, deadline)
        except BaseException:
            question.drop()
            raise
        return question

    def receive(self, request: Request, deadline: float) -> Reply:
        """Wait for the answer; send the request once more, to a new process, when the old one turns out to be gone."""
        from lastgood.local.channel import BadMessageError

        for is_last in (False, True):
            try:
                return self._require_process().channel.receive(deadline=_limit(deadline))
            except TimeoutError as error:
                raise _too_slow() from error
            except BadMessageError as error:
                raise UnavailableError("the helper process gave an answer that makes no sense") from error
            except CheckpointError:  # some of which are an OSError, too
                raise
            except OSError:
                self.end()
            if not is_last:
                self._send(request, deadline)
        raise UnavailableError("the helper process that reads for evidence ended unexpectedly")

    def release(self) -> None:
        self._lock.release()

    def end(self) -> None:
        """End the process. It only ever reads, so killing it harms nothing."""
        if self._process is not None:
            self._process.close()
            self._forget()

    def _send(self, request: Request, deadline: float) -> None:
        from lastgood.local.channel import BadMessageError

        channel = self._require_process().channel
        try:
            channel.send(request, deadline=_limit(deadline))
        except BadMessageError as error:
            raise InvalidError("the claim is too large to be checked") from error
        except TimeoutError as error:
            raise _too_slow() from error
        except OSError:  # it is gone: that is seen when the answer does not come
            pass

    def _require_process(self) -> HelperProcess[Reply]:
        from lastgood.local.channel import HelperProcess

        if self._closed:
            raise UnavailableError("this verifier was closed")
        if self._process is None:
            try:
                self._process = HelperProcess(__name__, _REPLIES, max_bytes=_MAX_BYTES, isolated=True)
            except OSError as error:
                if isinstance(error, CheckpointError):
                    raise
                raise UnavailableError("the helper process that reads for evidence cannot be started") from error
            self._finalizer = weakref.finalize(self, self._process.close)
        return self._process

    def _forget(self) -> None:
        self._process = None
        if self._finalizer is not None:
            self._finalizer.detach()


class Question:
    """A request that was sent to a helper, which takes no other until this one was answered or dropped."""

    def __init__(self, helper: Helper, request: Request, deadline: float) -> None:
        self._helper: Helper | None = helper
        self._request = request
        self._deadline = deadline

    def answer(self) -> Reply:
        """Wait for the answer, once; BusyError, NotFoundError, InvalidError as the helper reports, UnavailableError."""
        assert self._helper is not None
        try:
            reply = self._helper.receive(self._request, self._deadline)
        except BaseException:
            self.drop()
            raise
        helper, self._helper = self._helper, None
        helper.release()
        match reply.kind:
            case "busy":
                raise BusyError(reply.text)
            case "missing":
                raise NotFoundError(reply.text)
            case "invalid":
                raise InvalidError(reply.text)
        return reply

    def drop(self) -> None:
        """Give up the answer; the helper may be stuck, so it is ended."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.end()
            helper.release()


def serve() -> None:
    """Answer requests until there are no more: what the process runs."""
    import resource
    import select

    from lastgood.local.channel import ChannelClosedError, channel_to_parent

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no file grows by its hand, whatever a library does
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    channel = channel_to_parent(_REQUESTS, max_bytes=_MAX_BYTES)
    with suppress(ChannelClosedError):
        while True:
            # When nothing comes for a while, a database that is still open is let go.
            if "lastgood.local.database" in sys.modules and not select.select([channel], [], [], _IDLE_SECONDS)[0]:
                from lastgood.local.database import close_kept

                close_kept()
            channel.send(answer(channel.receive()))


def answer(request: Request) -> Reply:
    """Do what is requested. Never raises, and never reveals more than the request said."""
    deadline = time.monotonic() + request.timeout
    try:
        return _hash(request, deadline) if isinstance(request, HashRequest) else _find(request, deadline)
    except NotFoundError as error:
        return Reply("missing", str(error))
    except BusyError as error:
        return Reply("busy", str(error))
    except CheckpointError as error:
        return Reply("invalid", str(error))
    except Exception as error:
        return Reply("invalid", f"reading failed with {type(error).__name__}")


def _hash(request: HashRequest, deadline: float) -> Reply:
    digest, seen = _files(request.base, request.max_bytes).read(os.fsdecode(request.path), deadline)
    return Reply("holds", digest, seen)


def _find(request: RowRequest, deadline: float) -> Reply:
    from lastgood.local.database import find_row

    path = os.fsdecode(request.path)
    files = _files(request.base, 0)
    mismatch = find_row(lambda: files.locate(path), request.table, request.where, request.values, deadline)
    return Reply("holds") if mismatch is None else Reply("mismatch", mismatch)


def _files(base: bytes, max_bytes: int) -> Files:
    files = _below(base, max_bytes)
    files.refresh()
    return files


@lru_cache(1)
def _below(base: bytes, max_bytes: int) -> Files:
    return Files(os.fsdecode(base), absolute=True, max_bytes=max_bytes, hash_elsewhere=None)


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _limit(deadline: float) -> float:
    return max(deadline, time.monotonic()) + _GRACE_SECONDS


def _too_slow() -> UnavailableError:
    return UnavailableError("reading took too long", hint="give the verifier a longer timeout")
