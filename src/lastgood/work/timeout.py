"""How long an attempt may take, also where nobody looks at a clock: an exception is raised in the thread that works.

A call into C is interrupted only when it returns. What never leaves C (a lock, a read from a socket without a timeout
of its own) is not interrupted at all; commands that a stage has started through its context are killed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from types import CodeType
from typing import TYPE_CHECKING, Any

from lastgood.work.clock import Clock

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

    Waiting for people does not count: that is `suspended`, in whichever threads and tasks of the work.
    """

    def __init__(self, seconds: float | None, clock: Clock, on_expiry: Callable[[], None]) -> None:
        self._seconds = seconds
        self.clock = clock
        self._on_expiry = on_expiry
        self._signal = StageTimeout if seconds is None else _own_signal()
        self._left = seconds or 0.0
        self._begun = 0.0
        self._lock = threading.Lock()
        self._alarm: _Watch | _Cancellation | None = None
        self._is_working = False
        self._suspensions = 0

    def call(self, work: Callable[[], Any]) -> Any:
        """What `work` gives, done in this thread."""
        if self._seconds is None:
            return work()
        value: list[Any] = []
        watch = _Watch(self._lock, self.clock, self._signal, self._on_expiry)

        def watched() -> None:
            self._begin(watch)
            try:
                value.append(work())
            finally:
                self._end()

        self._absorb(watched, 1 + SENDS)  # `suspended` raises one, too
        if watch.fired:
            raise self._too_long()
        return value[0]

    async def wait_for(self, awaitable: Awaitable[Any]) -> Any:
        """The same for what is awaited; after `call`, it has what is left."""
        if self._seconds is None:
            return await awaitable
        import asyncio

        try:
            async with asyncio.timeout(None) as timeout:
                self._begin(_Cancellation(timeout, asyncio.get_running_loop()))
                result = await awaitable
        except (TimeoutError, self._signal):
            if not timeout.expired():
                raise
        finally:
            self._end()
        if timeout.expired():  # also when what is awaited has swallowed that
            self._on_expiry()
            raise self._too_long()
        return result

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Inside, no time passes; from any thread, and also while others are inside. StageTimeout when there was none
        left."""
        self._suspend()
        try:
            yield
        finally:
            self._go_on()

    def _begin(self, alarm: _Watch | _Cancellation) -> None:
        with self._lock:
            self._alarm = alarm
            self._is_working = True
            self._start()

    def _end(self) -> None:
        with self._lock:
            self._halt()
            self._is_working = False

    def _suspend(self) -> None:
        with self._lock:
            if self._alarm is not None and self._alarm.fired:
                raise self._signal
            self._halt()
            self._suspensions += 1

    def _go_on(self) -> None:
        with self._lock:
            self._suspensions -= 1
            self._start()

    def _start(self) -> None:
        if self._alarm is not None and self._is_working and not self._suspensions:
            self._begun = self.clock.now()
            self._alarm.start(self._left)

    def _halt(self) -> None:
        if self._alarm is not None and self._is_working and not self._suspensions:
            self._alarm.halt()
            self._left = max(0.0, self._left - (self.clock.now() - self._begun))

    def _absorb(self, work: Callable[[], None], times: int) -> None:
        """Catch what was sent, also where it comes while another one is being caught; more than that are not sent."""
        if times == 0:
            work()
            return
        try:
            self._absorb(work, times - 1)
        except self._signal:
            self._end()

    def _too_long(self) -> TimeoutError:
        return TimeoutError(f"it took longer than {self._seconds:g} seconds")


class _Watch:
    """Raises an exception in the thread that made it, when the time is up. After `halt` none comes any more.

    The exception is sent under the lock, and whoever calls `start` or `halt` holds it. What was sent and has not come
    yet is taken back; what comes in the midst of `halt` may be raised by it: then it is called again.
    """

    def __init__(
        self, lock: threading.Lock, clock: Clock, kind: type[StageTimeout], on_expiry: Callable[[], None]
    ) -> None:
        self._lock = lock
        self._clock = clock
        self._kind = kind
        self._on_expiry = on_expiry
        self._watched = threading.get_ident()
        self._delicate = _delicate_work()
        self._halted = threading.Event()
        self.fired = False

    def start(self, seconds: float) -> None:
        import ctypes  # noqa: F401 - here, and not between looking and sending

        self._halted = threading.Event()
        arguments = (self._halted, seconds)
        threading.Thread(target=self._wait, args=arguments, name="lastgood timeout", daemon=True).start()

    def halt(self) -> None:
        if self.fired:
            _send(self._watched, None)
        self._halted.set()

    def _wait(self, halted: threading.Event, seconds: float) -> None:
        for _ in range(SENDS):
            if self._clock.wait(halted, seconds):
                return
            while not self._fire(halted):
                if halted.wait(MOMENT):
                    return
            self._on_expiry()
            seconds = SENDS_APART

    def _fire(self, halted: threading.Event) -> bool:
        """False: not at this moment."""
        with self._lock:
            if halted.is_set():
                return False
            self.fired = True
            return _send_safely(self._watched, self._kind, self._delicate)


class _Cancellation:
    """Cancels what is awaited, when the time is up. The loop alone may change when that is: it does so in the order in
    which it was told, by any thread."""

    def __init__(self, timeout: asyncio.Timeout, loop: asyncio.AbstractEventLoop) -> None:
        self._timeout = timeout
        self._loop = loop

    @property
    def fired(self) -> bool:
        return self._timeout.expired()

    def start(self, seconds: float) -> None:
        self._loop.call_soon_threadsafe(self._reschedule, self._loop.time() + seconds)

    def halt(self) -> None:
        self._loop.call_soon_threadsafe(self._reschedule, None)

    def _reschedule(self, when: float | None) -> None:
        with suppress(RuntimeError):  # it has ended meanwhile, or its time is up
            self._timeout.reschedule(when)


def _send_safely(thread: int, kind: type[BaseException], delicate: frozenset[CodeType]) -> bool:
    """Whether it was sent: not in the midst of delicate work."""
    time.sleep(0)  # who has just got its turn keeps it for some milliseconds: long enough to look and to send
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code in delicate:
            return False
        frame = frame.f_back
    _send(thread, kind)
    return True


def _delicate_work() -> frozenset[CodeType]:
    """What bears no interruption.

    Starting a thread: in Python 3.11 one that is about to begin has the number of the one that starts it, and what is
    sent there may reach that one: it would end before it has begun, and whoever started it would wait for it for ever.
    Starting a command: nobody would know of it. Importing: half a module would be left.
    """
    import importlib._bootstrap
    import subprocess

    from lastgood.engine.command import Command

    importing = vars(importlib._bootstrap)["_find_and_load"]
    work = (threading.Thread.start, subprocess.Popen.__init__, Command.start, importing)
    return frozenset(one.__code__ for one in work)


def _send(thread: int, kind: type[BaseException] | None) -> None:
    """Raise it in another thread, at its next step in Python; None: take back what has not come yet."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None if kind is None else ctypes.py_object(kind))
