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
    """While installed, the first of them is only noted; the second does what it always did.

    In other threads than the main one nothing is installed: Python lets only that one.
    """

    def __init__(self, on_signal: Callable[[int], None]) -> None:
        self._on_signal = on_signal
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler is not None and handler is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)

    def remove(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._before.items():
                if signal.getsignal(number) == self._note:
                    signal.signal(number, handler)
            self._before.clear()

    def _note(self, number: int, _: FrameType | None) -> None:
        # Nothing here may take a lock: whoever was interrupted may hold it.
        self.remove()
        self._on_signal(number)


def deliver(number: int) -> None:
    """The signal does what it does to a program that knows nothing of sessions."""
    os.kill(os.getpid(), number)
