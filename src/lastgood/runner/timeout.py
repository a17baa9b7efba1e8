"""How long an attempt may take, also where nobody looks at a clock: an exception is raised in the thread that works.

A call into C is interrupted only when it returns. What never leaves C (a lock, a read from a socket without a timeout
of its own) is not interrupted at all; commands that a stage has started through its context are killed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lastgood.runner.clock import Clock

if TYPE_CHECKING:
    import asyncio


SENDS, SENDS_APART = 5, 1.0
"""Python drops an exception that comes in a finalizer: it is sent again as long as the work goes on, a few times."""
MOMENT = 0.001


class StageTimeout(BaseException):
    """Raised in the midst of a stage whose time is up. Not an Exception, so that code which goes on after errors does
    not go on after this."""


def _own_signal() -> type[StageTimeout]:
    """A stage may run a pipeline whose stages have limits, in the same thread."""
    return type("StageTimeout", (StageTimeout,), {"__module__": __name__})


class Limit:
    """The time of one attempt. What is past it ends with a TimeoutError; None: it has all the time there is.

    Waiting for people does not count: that is `suspended`.
    """

    def __init__(self, seconds: float | None, clock: Clock, on_expiry: Callable[[], None]) -> None:
        self._seconds = seconds
        self.clock = clock
        self._on_expiry = on_expiry
        self._signal = StageTimeout if seconds is None else _own_signal()
        self._left = seconds or 0.0
        self._watch: _Watch | None = None
        self._awaited: asyncio.Timeout | None = None

    def call(self, work: Callable[[], Any]) -> Any:
        """What `work` gives, done in this thread."""
        if self._seconds is None:
            return work()
        value: list[Any] = []

        def watched() -> None:
            self._start()
            try:
                value.append(work())
            finally:
                self._stop()

        self._absorb(watched, SENDS)
        if self._watch is not None and self._watch.fired:
            raise self._too_long()
        return value[0]

    async def wait_for(self, awaitable: Awaitable[Any]) -> Any:
        """The same for what is awaited; after `call`, it has what is left."""
        if self._seconds is None:
            return await awaitable
        import asyncio

        self._watch = None
        try:
            async with asyncio.timeout(self._left) as self._awaited:
                return await awaitable
        except TimeoutError:
            if self._awaited is not None and self._awaited.expired():
                raise self._too_long() from None
            raise

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Inside, no time passes. StageTimeout when there was none left."""
        if self._awaited is not None:
            import asyncio

            loop, when = asyncio.get_running_loop(), self._awaited.when()
            left = (when or 0.0) - loop.time()
            self._awaited.reschedule(None)
            try:
                yield
            finally:
                self._awaited.reschedule(loop.time() + left)
        elif self._watch is not None:
            self._stop()
            if self._watch.fired:
                raise self._signal
            try:
                yield
            finally:
                self._start()  # one that has not fired follows another: what is sent is sent by the last
        else:
            yield

    def _absorb(self, work: Callable[[], None], times: int) -> None:
        """Catch what was sent, also where it comes while another one is being caught; more than that are not sent."""
        if times == 0:
            work()
            return
        try:
            self._absorb(work, times - 1)
        except self._signal:
            self._stop()

    def _start(self) -> None:
        self._watch = _Watch(self.clock, self._left, self._signal, self._on_expiry)
        self._watch.start()

    def _stop(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._left = max(0.0, self._left - self._watch.passed())

    def _too_long(self) -> TimeoutError:
        return TimeoutError(f"it took longer than {self._seconds:g} seconds")


class _Watch:
    """Raises an exception in the thread that made it, unless it is closed before. After `close` none comes any more.

    The exception is sent under a lock, while the watch is open; `close` takes the lock, too, and afterwards takes back
    what was sent and has not come yet. What comes in the midst of `close` may be raised by it: then it is called again.
    """

    def __init__(self, clock: Clock, seconds: float, kind: type[StageTimeout], on_expiry: Callable[[], None]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._kind = kind
        self._on_expiry = on_expiry
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._open = True
        self._watched = threading.get_ident()
        self._begun = clock.now()
        self.fired = False

    def start(self) -> None:
        import ctypes  # noqa: F401 - here, and not between looking and sending

        threading.Thread(target=self._wait, name="lastgood timeout", daemon=True).start()

    def passed(self) -> float:
        return self._clock.now() - self._begun

    def close(self) -> None:
        while True:
            try:
                self._ended.set()
                with self._lock:
                    self._open = False
                if self.fired:
                    _send(self._watched, None)
                return
            except self._kind:
                continue

    def _wait(self) -> None:
        seconds = self._seconds
        for _ in range(SENDS):
            if self._clock.wait(self._ended, seconds):
                return
            while not self._fire():
                if self._ended.wait(MOMENT):
                    return
            self._on_expiry()
            seconds = SENDS_APART

    def _fire(self) -> bool:
        """False: not at this moment."""
        with self._lock:
            if self._open:
                self.fired = True
                return _send_safely(self._watched, self._kind)
        return True


def _send_safely(thread: int, kind: type[BaseException]) -> bool:
    """Whether it was sent: not while that thread starts another one."""
    time.sleep(0)  # who has just got its turn keeps it for some milliseconds: long enough to look and to send
    if _starts_a_thread(thread):
        return False
    _send(thread, kind)
    return True


def _starts_a_thread(thread: int) -> bool:
    """In Python 3.11 a thread that is about to begin has the number of the one that starts it, and what is sent there
    may reach that one: it would end before it has begun, and whoever started it would wait for it for ever."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code is threading.Thread.start.__code__:
            return True
        frame = frame.f_back
    return False


def _send(thread: int, kind: type[BaseException] | None) -> None:
    """Raise it in another thread, at its next step in Python; None: take back what has not come yet."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None if kind is None else ctypes.py_object(kind))
