"""A counter of seconds on stderr, for work that people wait for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from lastgood.cli.invocation import Invocation


@contextmanager
def counting(call: Invocation, doing: str) -> Iterator[None]:
    """Nothing is printed within the first second, with --json, or where stderr is not a terminal."""
    if call.json or not sys.stderr.isatty():
        yield
        return
    import threading

    over = threading.Event()
    counter = threading.Thread(target=count, args=(over.wait, doing, sys.stderr), daemon=True)
    counter.start()
    try:
        yield
    finally:
        over.set()
        counter.join()


def count(wait: Callable[[float], bool], doing: str, stream: TextIO) -> None:
    """Print how many seconds it has been, each second until `wait` says that it is over; then wipe it away."""
    seconds, shown = 0, ""
    while not wait(1):
        seconds += 1
        shown = f"{doing}: {seconds} s"
        stream.write(f"\r{shown}")
        stream.flush()
    if shown:
        stream.write(f"\r{' ' * len(shown)}\r")
        stream.flush()
