"""The progress of a pipeline on stderr, for people who wait."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from lastgood.cli.output import printable

if TYPE_CHECKING:
    from lastgood.cli.invocation import Invocation
    from lastgood.types import ProgressEvent

WAITING = {
    "paused": "it is paused; `lastgood resume` resumes it",
    "waiting_for_input": "it asks; see `lastgood answer`",
}


class EventLines:
    """Prints each event on a line of its own. `state` reads the control state of the work."""

    def __init__(self, stream: TextIO, state: Callable[[], str | None], complete: Callable[[str], str] = str) -> None:
        self._stream = stream
        self._state = state
        self._complete = complete
        self._waits: str | None = None

    def __call__(self, event: ProgressEvent) -> None:
        """Print an event. Comes from the thread that works; heartbeats from another."""
        if event.kind == "heartbeat":
            self._notice(self._state())
            return
        self._waits = None
        if (line := event_line(event)) is not None:
            self.note(line)

    def note(self, line: str) -> None:
        self._stream.write(f"{printable(line)}\n")
        self._stream.flush()

    def _notice(self, state: str | None) -> None:
        """Print once that it waits for a person."""
        waits = WAITING.get(state or "")
        if waits is not None and waits != self._waits:
            self.note(self._complete(waits))
        self._waits = waits


@contextmanager
def showing(call: Invocation, state: Callable[[], str | None]) -> Iterator[Callable[[ProgressEvent], object]]:
    """Yield what to call with each event of a run. With --json and --quiet nothing is printed."""
    if call.json or call.quiet:
        yield lambda event: None
        return
    lines = EventLines(sys.stderr, state, call.complete)
    with call.alerts.onto(lines.note):
        yield lines


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
        return f"{place(event)}: done in {event.seconds:.1f} s"
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
