"""A circuit breaker: whether the store is away, and a thread that probes it meanwhile.

While it is open, saves do not try the store. The thread probes at first soon, then more and more seldom, until the
store answers; it waits for an event, so that closing ends it at once.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable

from lastgood.errors import CheckpointError, UnavailableError
from lastgood.local.process import renew_after_fork

FIRST_SECONDS, LONGEST_SECONDS, GROWTH = 0.1, 15.0, 2.0
CLOSE_SECONDS = 10.0

Wait = Callable[[float], bool]
"""Waits so many seconds; returns whether to stop."""


class Breaker:
    """A circuit breaker. `error` is why the store is away, None when it is not.

    `probe` raises UnavailableError as long as the store is away. Any other error is handed to `failed`, and the store
    is probed again. `draw` gives numbers from 0 to 1.
    """

    def __init__(
        self,
        probe: Callable[[], None],
        failed: Callable[[CheckpointError], None],
        *,
        wait: Wait | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._probe = probe
        self._failed = failed
        self._stop = threading.Event()
        self.wait = wait or self._wait_for_stop
        self._draw = draw
        self.error: UnavailableError | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self.start: Callable[[], None] = self._start
        """Begins the thread."""
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """In a child: forget the thread. `start` begins one where the breaker is found open."""
        self._lock = threading.Lock()
        if self._process != os.getpid():
            self._process, self._thread, self._stop = os.getpid(), None, threading.Event()

    def open(self, error: UnavailableError) -> bool:
        """Note that the store is away; return whether that is new."""
        with self._lock:
            is_new, self.error = self.error is None, error
        self.start()
        return is_new

    def shut(self) -> None:
        """Note that the store is back."""
        with self._lock:
            self.error = None

    def run(self) -> None:
        """Probe until the store answers or all is closed."""
        pause = FIRST_SECONDS
        while not self.wait(pause * (0.5 + self._draw() / 2)):
            try:
                self._probe()
            except UnavailableError as error:
                with self._lock:
                    if self.error is not None:
                        self.error = error
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
        """Decide under the lock: one that opens it right now must find that a new thread is needed."""
        with self._lock:
            if self.error is None:
                self._thread = None
            return self.error is None

    def _start(self) -> None:
        with self._lock:
            if self._stop.is_set() or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self.run, name="lastgood spool", daemon=True)
            self._thread.start()
