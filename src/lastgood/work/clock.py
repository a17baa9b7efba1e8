"""Time: the clock of sessions, which tests can replace, jobs at regular intervals, the time limit of a stage, and the
deadline that a signal to end the program sets.

No thread is interrupted when the time of a stage is up: what is awaited is cancelled, commands of `ctx.run` are killed,
and every other piece of work learns of it at its next call of the context, or when it has ended.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from lastgood.errors import InvalidError
from lastgood.observe.log import log_error

POLL_SECONDS = 0.2
"""How often work that is paused or waits looks for requests."""
CLOSE_SECONDS = 10.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)
LEAST_SECONDS = 0.05
"""So often it is looked whether the time is up when little of it is left; and so often a command is killed that runs on
then: it may have been just about to start."""


class Clock:
    """A monotonic clock in seconds, and waiting."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, until: threading.Event, seconds: float) -> bool:
        """Wait until the event is set, or so much time has passed; return whether it is set."""
        return until.wait(seconds)


def check_seconds(name: str, value: object, below: float = float("inf")) -> float:
    """Return a number of seconds above 0. InvalidError when it is none."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < below:
        raise InvalidError(f"{name} is not a number of seconds", hint="give one above 0", field=name)
    return value


class Scheduler:
    """A thread that calls jobs at regular intervals. A job that raises is called again all the same."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: list[tuple[float, Callable[[], None]]] = []
        self._end = threading.Event()
        self._working = threading.Lock()
        self._thread: threading.Thread | None = None

    def every(self, seconds: float, job: Callable[[], None]) -> None:
        """Add a job, before `start`."""
        self._jobs.append((seconds, job))

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="lastgood session", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Run no more jobs; wait for one that is running, for a limited time. The thread ends by itself."""
        self._end.set()
        thread = self._thread
        if thread is None or thread is threading.current_thread() or not thread.is_alive():
            return
        if self._working.acquire(timeout=CLOSE_SECONDS):
            self._working.release()

    def _run(self) -> None:
        begun = self._clock.now()
        due = [begun + seconds for seconds, _ in self._jobs]
        while not self._clock.wait(self._end, max(0.0, min(due) - self._clock.now())):
            for number, (seconds, job) in enumerate(self._jobs):
                if due[number] <= self._clock.now():
                    self._call(job)
                    due[number] = self._clock.now() + seconds

    def _call(self, job: Callable[[], None]) -> None:
        with self._working:
            if self._end.is_set():
                return
            try:
                job()
            except Exception as error:
                log_error(f"what a session does by itself has failed: {error}", task_id=None)


class StageTimeout(BaseException):
    """Raised by the calls of a stage's context when the stage's time is up. Not an Exception, so that code which goes
    on after errors does not go on after this."""


class TimeLimit:
    """The time of one attempt, from now on. An attempt that takes longer ends with a TimeoutError; None: no limit.

    Time in which the stage waits for people does not count: `suspended`, in any thread or task of the stage.
    """

    def __init__(self, seconds: float | None, clock: Clock, on_expiry: Callable[[], None]) -> None:
        """`on_expiry` kills the commands that the stage is running; it may be called more than once."""
        self.clock = clock
        self._seconds = seconds
        self._on_expiry = on_expiry
        self._lock = threading.Lock()
        self._left = float("inf") if seconds is None else seconds
        self._counted = clock.now()
        self._suspensions = 0

    def call(self, work: Callable[[], Any]) -> Any:
        """Return what `work` gives, called in this thread."""
        try:
            result = work()
        except StageTimeout:
            if not self.is_over():  # raised by the context of a stage around this one
                raise
        self._require_time()
        return result

    async def wait_for(self, awaitable: Awaitable[Any]) -> Any:
        """Return what `awaitable` gives; it is cancelled when the time is up."""
        if self._seconds is None:
            return await awaitable
        import asyncio

        work, is_cancelled = asyncio.ensure_future(awaitable), False
        while not work.done():
            try:
                await asyncio.wait([work], timeout=None if is_cancelled else max(LEAST_SECONDS, self.left()))
            except asyncio.CancelledError:  # of whoever awaits this
                work.cancel()
            if not is_cancelled and self.is_over():
                is_cancelled = work.cancel()
        try:
            result = work.result()
        except (asyncio.CancelledError, StageTimeout):
            if not self.is_over():
                raise
        self._require_time()  # also when what was awaited has swallowed its cancellation
        return result

    def left(self) -> float:
        """Return the seconds that are left, 0 or less when the time is up."""
        with self._lock:
            return self._count()

    def is_over(self) -> bool:
        return self.left() <= 0

    def check(self) -> None:
        """Raise StageTimeout if the time is up."""
        if self.is_over():
            raise StageTimeout

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Kill the commands that run inside when the time is up; then raise StageTimeout."""
        if self._seconds is None:
            yield
            return
        self.check()
        ended = threading.Event()
        threading.Thread(target=self._watch, args=(ended,), name="lastgood timeout", daemon=True).start()
        try:
            yield
        except Exception:
            self.check()
            raise
        finally:
            ended.set()
        self.check()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Let no time pass inside; from any thread, and also while others are inside. Raises StageTimeout when there
        is none left."""
        self.check()
        with self._lock:
            self._count()
            self._suspensions += 1
        try:
            yield
        finally:
            with self._lock:
                self._suspensions -= 1
                self._counted = self.clock.now()

    def _count(self) -> float:
        """Count the time that has passed, and return the seconds that are left. Under the lock."""
        if not self._suspensions:
            now = self.clock.now()
            self._left -= now - self._counted
            self._counted = now
        return self._left

    def _watch(self, ended: threading.Event) -> None:
        while not self.clock.wait(ended, max(LEAST_SECONDS, self.left())):
            if self.is_over():
                self._on_expiry()

    def _require_time(self) -> None:
        if self.is_over():
            self._on_expiry()
            raise TimeoutError(f"it took longer than {self._seconds:g} seconds")


class ExitSignals:
    """While installed, the first signal is only noted, and delivered when the work has ended or its deadline passed.
    The second one does what it always did, and so does the first in a child of this process.

    In other threads than the main one nothing is installed: Python lets only that one.
    """

    def __init__(self, clock: Clock, deadline: float, *, enabled: bool) -> None:
        self._is_enabled = enabled
        self._clock = clock
        self._deadline = deadline
        self._received: tuple[int, float] | None = None
        """The signal, and when it was received."""
        self._is_claimed = False
        self._before: dict[int, Any] = {}
        self._pid = 0

    @property
    def is_received(self) -> bool:
        return self._received is not None

    def install(self) -> None:
        """Install the handlers, if that is enabled and this is the main thread."""
        if self._is_enabled and threading.current_thread() is threading.main_thread():
            self._pid = os.getpid()
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler is not None and handler is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)

    def remove(self) -> None:
        self._pid = 0
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._before.items():
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, handler)

    def claim_overdue(self) -> bool:
        """Return, once, whether a signal was received longer ago than the deadline: then the caller delivers it."""
        received = self._received
        if received is None or self._is_claimed or self._clock.now() - received[1] <= self._deadline:
            return False
        self._is_claimed = True
        return True

    def deliver(self) -> None:
        """Let the received signal do what it does to a program without sessions."""
        if self._received is not None:
            _send(self._received[0])

    def deliver_unclaimed(self) -> None:
        if not self._is_claimed:
            self.deliver()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # Nothing here may take a lock: the code that was interrupted may hold it.
        is_own = self._pid == os.getpid()
        self.remove()
        if is_own:
            self._received = number, self._clock.now()
        elif callable(before := self._before[number]):  # in a child, or called by a handler that replaced this one
            before(number, frame)
        else:
            signal.signal(number, before)
            _send(number)


def _send(number: int) -> None:
    os.kill(os.getpid(), number)
