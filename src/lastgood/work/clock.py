"""Time as a session sees it, which tests can replace, and the thread that calls jobs at certain times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from lastgood.observe.log import log_error

POLL_SECONDS = 0.2
"""How often work that is paused or waits looks for requests."""
CLOSE_SECONDS = 10.0


class Clock:
    """A monotonic clock in seconds, and waiting."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, until: threading.Event, seconds: float) -> bool:
        """Wait until the event is set, or so much time has passed; return whether it is set."""
        return until.wait(seconds)


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
