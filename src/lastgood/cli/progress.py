"""The progress of a pipeline on stderr, for people who wait: lines, and on a terminal a bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from lastgood.cli.output import printable, shortened, terminal_width

if TYPE_CHECKING:
    from lastgood import ProgressEvent
    from lastgood.cli.invocation import Invocation

WIDTH = 20
WAITING = {
    "paused": "it is paused; `lastgood resume` lets it go on",
    "waiting_for_input": "it asks; see `lastgood answer`",
}


class EventLines:
    """Prints each event on a line of its own. `state` reads the control state of the work."""

    def __init__(self, stream: TextIO, state: Callable[[], str | None]) -> None:
        self._stream = stream
        self._state = state
        self._waits: str | None = None
        import threading

        self._lock = threading.Lock()

    def __call__(self, event: ProgressEvent) -> None:
        """Print an event. Comes from the thread that works; heartbeats from another."""
        if event.kind == "heartbeat":
            self._notice(self._state())
            return
        self._waits = None
        if (line := event_line(event)) is not None:
            self.note(line)

    def note(self, line: str) -> None:
        with self._lock:
            self._write(line)

    def _notice(self, state: str | None) -> None:
        """Print once that it waits for a person."""
        waits = WAITING.get(state or "")
        if waits is not None and waits != self._waits:
            self.note(waits)
        self._waits = waits

    def _write(self, line: str) -> None:
        self._stream.write(f"{printable(line)}\n")
        self._stream.flush()


class Bar(EventLines):
    """Prints as EventLines, and below them, on a terminal, where it is now and for how long."""

    def __init__(self, stream: TextIO, state: Callable[[], str | None], clock: Callable[[], float]) -> None:
        super().__init__(stream, state)
        self._clock = clock
        self._began = clock()
        self._event: ProgressEvent | None = None
        self._drawn = 0

    def __call__(self, event: ProgressEvent) -> None:
        if event.stage is not None or event.kind in ("begun", "resumed", "round", "restored"):
            self._event = event
        super().__call__(event)
        self.draw()

    def draw(self) -> None:
        """Draw it again, with the time that has passed."""
        with self._lock:
            if self._event is not None:
                text = self._waits or place(self._event)
                elapsed = span(self._clock() - self._began)
                self._put(
                    shortened(
                        f"{picture(self._event)} {printable(text)}, {elapsed}", (terminal_width(self._stream) or 80) - 1
                    )
                )

    def wipe(self) -> None:
        with self._lock:
            self._put("")

    def _write(self, line: str) -> None:
        self._put("")
        super()._write(line)

    def _put(self, text: str) -> None:
        if text or self._drawn:
            self._stream.write(f"\r{text:{self._drawn}}" if text else f"\r{' ' * self._drawn}\r")
            self._stream.flush()
            self._drawn = len(text)


@contextmanager
def showing(call: Invocation, state: Callable[[], str | None]) -> Iterator[Callable[[ProgressEvent], object]]:
    """Yield what to call with each event of a run. With --json nothing is printed."""
    if call.json:
        yield lambda event: None
        return
    if not sys.stderr.isatty():
        lines = EventLines(sys.stderr, state)
        with call.alerts.onto(lines.note):
            yield lines
        return
    import threading
    import time

    bar, over = Bar(sys.stderr, state, time.monotonic), threading.Event()
    ticking = threading.Thread(target=tick, args=(over.wait, bar), daemon=True)
    ticking.start()
    try:
        with call.alerts.onto(bar.note):
            yield bar
    finally:
        over.set()
        ticking.join()
        bar.wipe()


def tick(wait: Callable[[float], bool], bar: Bar) -> None:
    """Draw it each second until `wait` says that it is over."""
    while not wait(1):
        bar.draw()


def event_line(event: ProgressEvent) -> str | None:
    """Return an event in words; None: not worth a line."""
    progress = event.progress
    if event.kind in ("begun", "resumed", "restored", "round"):
        rounds = f", round {progress.round} of {progress.rounds}" if progress.rounds > 1 else ""
        begins = {"begun": "begins", "resumed": "goes on", "restored": "was restored, and goes on", "round": "goes on"}
        return f"{begins[event.kind]}{rounds}"
    if event.kind == "started":
        return place(event)
    if event.kind == "succeeded":
        return f"{place(event)}: done in {span(event.seconds)}"
    if event.kind in ("failed", "undone"):
        return f"{place(event)}: {event.kind}" + (f": {event.error}" if event.error else "")
    return None


def place(event: ProgressEvent) -> str:
    """Return where it is: stage n of m, round, attempt."""
    progress = event.progress
    number, count = event.index + 1, len(progress.plan)
    said = f"stage {number} of {count}: {event.stage}" if event.stage is not None else f"{count} stages"
    said += f", round {progress.round} of {progress.rounds}" if progress.rounds > 1 else ""
    return said + (f", attempt {event.attempt}" if event.attempt > 1 else "")


def picture(event: ProgressEvent) -> str:
    """Return how much of the round is done, as a bar."""
    count = len(event.progress.plan) or 1
    done = max(0, event.index + (event.kind == "succeeded"))
    return f"[{'#' * (WIDTH * done // count):-<{WIDTH}}]"


def span(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}" if minutes else f"{rest} s"
