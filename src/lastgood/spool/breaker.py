"""Whether the store is away, and who asks for it meanwhile.

Open means away: nobody else tries. A thread asks, at first soon, then more and more seldom, until the store answers;
it waits for an event, so that closing ends it at once.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable

from lastgood.errors import CheckpointError, UnavailableError
from lastgood.local.fork import renew_after_fork

FIRST_SECONDS, LONGEST_SECONDS, GROWTH = 0.1, 15.0, 2.0
CLOSE_SECONDS = 10.0

Wait = Callable[[float], bool]
"""Wait so many seconds; whether to stop."""


class Breaker:
    """`ask` raises UnavailableError as long as the store is away, and any other error where asking again may help, too:
    `failed` is told of that. `draw` gives numbers from 0 to 1."""

    def __init__(
        self,
        ask: Callable[[], None],
        failed: Callable[[CheckpointError], None],
        *,
        wait: Wait | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._ask = ask
        self._failed = failed
        self._stop = threading.Event()
        self.wait = wait or self._wait_for_stop
        self._draw = draw
        self._error: UnavailableError | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self.start: Callable[[], None] = self._start
        """How asking is begun."""
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """A child has no thread; whoever finds the breaker open there begins one."""
        self._lock = threading.Lock()
        if self._process != os.getpid():
            self._process, self._thread, self._stop = os.getpid(), None, threading.Event()

    @property
    def error(self) -> UnavailableError | None:
        """Why the store is away; None when it is not."""
        return self._error

    def open(self, error: UnavailableError) -> bool:
        """The store is away. Whether that is news."""
        with self._lock:
            is_new, self._error = self._error is None, error
        self.start()
        return is_new

    def shut(self) -> None:
        """The store is back."""
        with self._lock:
            self._error = None

    def run(self) -> None:
        """Ask until the store answers or all is closed."""
        pause = FIRST_SECONDS
        while not self.wait(pause * (0.5 + self._draw() / 2)):
            try:
                self._ask()
            except UnavailableError as error:
                with self._lock:
                    if self._error is not None:
                        self._error = error
            except CheckpointError as error:
                self._failed(error)
            if self._is_done():
                return
            pause = min(LONGEST_SECONDS, GROWTH * pause)

    def close(self) -> None:
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread() and thread.is_alive():
            thread.join(CLOSE_SECONDS)  # it may be waiting for a store that another program holds

    def _wait_for_stop(self, seconds: float) -> bool:
        return self._stop.wait(seconds)

    def _is_done(self) -> bool:
        """Decided under the lock, so that whoever opens it right now finds that a new thread is needed."""
        with self._lock:
            if self._error is None:
                self._thread = None
            return self._error is None

    def _start(self) -> None:
        with self._lock:
            if self._stop.is_set() or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self.run, name="lastgood spool", daemon=True)
            self._thread.start()
