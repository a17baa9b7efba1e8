"""Signals that end a program: the work gets a moment to come to a boundary and be saved."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any, NamedTuple

from lastgood.work.clock import Clock

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Received(NamedTuple):
    number: int
    at: float


class ExitSignals:
    """While installed, the first signal is only noted, and delivered when the work has ended or its deadline passed.
    The second one does what it always did, and so does the first in a child of this process.

    In other threads than the main one nothing is installed: Python lets only that one.
    """

    def __init__(self, clock: Clock, deadline: float, *, enabled: bool) -> None:
        self._is_enabled = enabled
        self._clock = clock
        self._deadline = deadline
        self._received: _Received | None = None
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
        if received is None or self._is_claimed or self._clock.now() - received.at <= self._deadline:
            return False
        self._is_claimed = True
        return True

    def deliver(self) -> None:
        """Let the received signal do what it does to a program without sessions."""
        if self._received is not None:
            _send(self._received.number)

    def deliver_unclaimed(self) -> None:
        if not self._is_claimed:
            self.deliver()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # Nothing here may take a lock: the code that was interrupted may hold it.
        is_own = self._pid == os.getpid()
        self.remove()
        if is_own:
            self._received = _Received(number, self._clock.now())
        elif callable(before := self._before[number]):  # in a child, or called by a handler that replaced this one
            before(number, frame)
        else:
            signal.signal(number, before)
            _send(number)


def _send(number: int) -> None:
    os.kill(os.getpid(), number)
