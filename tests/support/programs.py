"""Work that is steered, in one thread: what people do happens at the moments when the work waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lastgood
from lastgood.catalog.sqlite.catalog import SQLiteCatalog
from lastgood.catalog.sqlite.database import FileDatabase
from lastgood.model.identity import now
from lastgood.work.clock import Clock


class Program:
    """A loop somebody wrote: its memory, and how a session reaches it."""

    def __init__(self, task: lastgood.Task) -> None:
        self.task = task
        self.memory: dict[str, Any] = {"n": 0}

    @property
    def store(self) -> lastgood.Store:
        return lastgood.Store(self.task._handle.engine, self.task._handle.user)

    def session(self, **how: Any) -> lastgood.Session:
        return self.task.session(state=lambda: self.memory, load=self.load, **how)

    def load(self, state: Any) -> None:
        self.memory = state


class Meanwhile(Clock):
    """Each time the work waits, the next of these is done; when there is none left, nobody would ever come."""

    def __init__(self, *deeds: Callable[[], object]) -> None:
        self._deeds = list(deeds)
        self._thread = threading.get_ident()
        self.time: float | None = None
        """What it shows; None: the time it is."""

    def now(self) -> float:
        return super().now() if self.time is None else self.time

    def wait(self, until: threading.Event, seconds: float) -> bool:
        if threading.get_ident() != self._thread:
            return super().wait(until, seconds)
        assert self._deeds, "the work waits for ever"
        self._deeds.pop(0)()
        return False

    def is_over(self) -> bool:
        """Whether everything was done."""
        return not self._deeds


class KilledError(BaseException):
    """The process is gone, as far as the work is concerned."""


def die() -> None:
    raise KilledError


@contextmanager
def another_host(folder: Path, hours: float = 1) -> Iterator[lastgood.Store]:
    """The store as someone sees it whose clock goes wrong by so many hours: leases of others have run out there."""
    with lastgood.open(folder, user="tester", on_failure="raise") as store:
        set_clock(store, lambda: now() + int(hours * 3600 * 1_000_000))
        yield store


def set_clock(store: lastgood.Store, clock: Callable[[], int]) -> None:
    """Let the store's catalog go by another clock."""
    assert isinstance(store._engine.catalog, SQLiteCatalog)
    database = store._engine.catalog._database
    assert isinstance(database, FileDatabase)
    database._clock = clock
    database._generation += 1  # each thread opens another connection, which goes by it


class Hands(Clock):
    """A clock that goes on only when it is told to. The work itself waits no longer than a moment."""

    def __init__(self) -> None:
        self.time = 1000.0
        self._thread = threading.get_ident()

    def now(self) -> float:
        return self.time

    def go_on(self, seconds: float) -> None:
        self.time += seconds

    def wait(self, until: threading.Event, seconds: float) -> bool:
        return threading.get_ident() != self._thread and until.wait()
