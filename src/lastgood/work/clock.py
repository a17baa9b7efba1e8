"""Time as a session sees it, so that tests can have their own."""

from __future__ import annotations

import threading
import time

POLL_SECONDS = 0.2
"""While the work is paused or waits: so often it looks whether something is wanted."""


class Clock:
    """Seconds that only ever go on, and waiting."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, until: threading.Event, seconds: float) -> bool:
        """Until that is set, or so much time has passed; whether it is set."""
        return until.wait(seconds)
