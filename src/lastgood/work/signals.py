"""Signals that end a program: the work gets a moment to come to a boundary and be saved."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ExitSignals:
    """While installed, the first of them is only noted; the second does what it always did, and so does the first in
    a child of this process.

    In other threads than the main one nothing is installed: Python lets only that one.
    """

    def __init__(self, on_signal: Callable[[int], None]) -> None:
        self._on_signal = on_signal
        self._before: dict[int, Any] = {}
        self._pid = 0

    def install(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._pid = os.getpid()
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler is not None and handler is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)

    def remove(self) -> None:
        self._pid = 0
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._before.items():
                if signal.getsignal(number) == self._note:
                    signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        # Nothing here may take a lock: whoever was interrupted may hold it.
        is_mine = self._pid == os.getpid()
        self.remove()
        if is_mine:
            self._on_signal(number)
        elif callable(before := self._before[number]):  # in a child, or called by a handler that was put in its place
            before(number, frame)
        else:
            signal.signal(number, before)
            deliver(number)


def deliver(number: int) -> None:
    """The signal does what it does to a program that knows nothing of sessions."""
    os.kill(os.getpid(), number)
