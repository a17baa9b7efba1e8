"""How long an attempt may take, also where nobody looks at a clock: an exception is raised in the thread that works.

A call into C is interrupted only when it returns. What never leaves C (a lock, a read from a socket without a timeout
of its own) is not interrupted at all; commands that a stage has started through its context are killed.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lastgood.runner.clock import Clock

if TYPE_CHECKING:
    import asyncio


class StageTimeout(BaseException):
    """Raised in the midst of a stage whose time is up. Not an Exception, so that code which goes on after errors does
    not go on after this. It is raised once."""


class Limit:
    """The time of one attempt. What is past it ends with a TimeoutError; None: it has all the time there is.

    Waiting for people does not count: that is `suspended`.
    """

    def __init__(self, seconds: float | None, clock: Clock, on_expiry: Callable[[], None]) -> None:
        self._seconds = seconds
        self.clock = clock
        self._on_expiry = on_expiry
        # One of its own: a stage may run a pipeline whose stages have limits, in the same thread.
        self._signal: type[StageTimeout] = type("StageTimeout", (StageTimeout,), {"__module__": __name__})
        self._left = seconds or 0.0
        self._watch: _Watch | None = None
        self._awaited: asyncio.Timeout | None = None

    def call(self, work: Callable[[], Any]) -> Any:
        """What `work` gives, done in this thread."""
        if self._seconds is None:
            return work()
        try:
            self._start()
            try:
                value = work()
            finally:
                self._stop()
        except self._signal:
            self._stop()  # it is raised once: nothing comes in between any more
            raise self._too_long() from None
        if self._watch is not None and self._watch.fired:
            raise self._too_long()
        return value

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
            yield
            self._awaited.reschedule(loop.time() + left)
        elif self._watch is not None:
            self._stop()
            if self._watch.fired:
                raise self._signal
            yield
            self._start()
        else:
            yield

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

    The exception is sent under a lock, once, while the watch is open; `close` takes the lock, too, and afterwards
    takes back what was sent and has not come yet.
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
                continue  # it came in the midst of this, and there is only one

    def _wait(self) -> None:
        if self._clock.wait(self._ended, self._seconds):
            return
        with self._lock:
            if not self._open:
                return
            self.fired = True
            _send(self._watched, self._kind)
        self._on_expiry()


def _send(thread: int, kind: type[BaseException] | None) -> None:
    """Raise it in another thread, at its next step in Python; None: take back what has not come yet."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None if kind is None else ctypes.py_object(kind))
