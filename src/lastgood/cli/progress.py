"""How far work has come, on stderr, for people who wait for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from lastgood.cli.invocation import Invocation


class Stage:
    """What was told last. To be called by whoever does the work."""

    def __init__(self) -> None:
        self.text = ""

    def __call__(self, doing: str, done: int, of: int) -> None:
        if of:
            self.text = f", {doing} {done:,} of {of:,} ({100 * done // of}%)"
        else:
            self.text = f", {doing} {done:,}" if done else f", {doing}"


@contextmanager
def counting(call: Invocation, doing: str) -> Iterator[Stage]:
    """Nothing is printed within the first second, with --json, or where stderr is not a terminal."""
    stage = Stage()
    if call.json or not sys.stderr.isatty():
        yield stage
        return
    import threading

    from lastgood.observe.log import reporting

    over = threading.Event()
    counter = threading.Thread(target=count, args=(over.wait, doing, sys.stderr, stage), daemon=True)
    counter.start()
    try:
        with reporting(stage):
            yield stage
    finally:
        over.set()
        counter.join()


def count(wait: Callable[[float], bool], doing: str, stream: TextIO, stage: Stage) -> None:
    """Print how many seconds it has been, and what was told last, each second until `wait` says that it is over; then
    wipe it away."""
    seconds, widest = 0, 0
    while not wait(1):
        seconds += 1
        shown = f"{doing}: {seconds} s{stage.text}"
        stream.write(f"\r{shown:{widest}}")
        stream.flush()
        widest = max(widest, len(shown))
    if widest:
        stream.write(f"\r{' ' * widest}\r")
        stream.flush()
