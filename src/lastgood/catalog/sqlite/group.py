"""Writes of several threads that happen to come together, gathered so that they share one transaction.

Whoever is first in the line leads. While it waits for its turn and for the disk, others line up behind it; whoever
leads next takes all of them along. Those who were along last time are likely to come again, so they are waited for: at
most as long as their commit took, and not at all by a thread that is by itself.

A signal may raise anywhere in here, even in what tidies up. So there is no lock that could stay taken: the line is a
list, which is changed by single calls. Nobody waits for a leader without looking, now and then, whether it is still
there; two that lead at once do no harm, because only one has the turn. And what became of all who are along is one
assignment (`SharedTransaction.settled`), which no interrupt divides.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Generic, TypeVar

from lastgood.catalog.sqlite.connection import told
from lastgood.errors import NestedWriteError
from lastgood.local.process import renew_after_fork

T = TypeVar("T")
MAX_GROUP = 64
LOOK_SECONDS = 1.0
MAX_PATIENCE_SECONDS = 0.01


class SharedTransaction:
    """Writes that share a transaction. Settled: it is committed, or it failed with this error, for all of them."""

    __slots__ = ("error", "settled", "writes")

    def __init__(self, *writes: Write[Any]) -> None:
        self.writes = writes
        self.error: Exception | None = None
        self.settled = False
        for write in writes:
            write.batch = self

    def fail(self, error: Exception) -> None:
        self.error = error
        self.settled = True


class Write(Generic[T]):
    """One thread's part of a transaction, and what became of it.

    `work` is given the connection and the arguments. `entered` is locked while its thread is inside `Group.write` with
    it. A lock that a `with` takes is released whatever raises: both happen inside one instruction each, which no signal
    divides.
    """

    __slots__ = ("_woken", "args", "batch", "durable", "entered", "error", "kwargs", "thread", "value", "work")

    def __init__(self, work: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any], durable: bool) -> None:
        self.work = work
        self.args = args
        self.kwargs = kwargs
        self.durable = durable
        self.thread = threading.get_ident()
        self.entered = threading.Lock()
        self.batch: SharedTransaction | None = None
        self.error: BaseException | None = None
        self.value: Any = None
        self._woken = threading.Lock()
        self._woken.acquire()

    @property
    def settled(self) -> bool:
        return self.batch is not None and self.batch.settled

    def outcome(self) -> T:
        """What it gave. An error that it met itself is the one to tell."""
        if self.error is not None:
            raise self.error
        if self.batch is not None and self.batch.error is not None:
            raise told(self.batch.error)
        value: T = self.value
        return value

    def wait(self, seconds: float) -> bool:
        return self._woken.acquire(timeout=seconds)

    def wake(self) -> None:
        with suppress(RuntimeError):  # it is awake
            self._woken.release()


class Group:
    """Hands each write to a leader, who waits for its `turn` and takes along all who came meanwhile.

    `commit` settles the batch that it is given, or raises. Writes of a batch that it left unsettled (their leader was
    interrupted before anything was committed) are led by somebody else.
    """

    def __init__(
        self, turn: Callable[[], AbstractContextManager[object]], commit: Callable[[SharedTransaction], None]
    ) -> None:
        self._turn = turn
        self._commit = commit
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """In a child the threads that were lined up are gone."""
        self._line: list[Write[Any]] = []
        self._crowd = 1  # who were along last time
        self._patience = 0.0

    def write(self, write: Write[T]) -> T:
        for other in [other for other in self._line if other.thread == write.thread]:
            if other.entered.locked():  # a signal handler writes while its thread does: it would wait for itself
                raise nested_write()
            self._remove(other)  # an interrupt has left it there
        with write.entered:
            try:
                self._line.append(write)
                self._see_through(write)
            finally:
                self._remove(write)
        return write.outcome()

    def _see_through(self, write: Write[Any]) -> None:
        if len(self._line) == self._crowd:
            self._wake_first()
        while not write.settled:  # not in a `try`: on Python 3.13 an interrupt of such a loop passes by its `finally`
            if self._line[:1] == [write]:
                self._lead(write)
            elif not write.wait(LOOK_SECONDS):
                for other in [other for other in self._line if not other.entered.locked()]:
                    self._remove(other)

    def _lead(self, write: Write[Any]) -> None:
        """Commit this write with the others in the line. They stay in it until they are settled."""
        batch = None
        if len(self._line) < self._crowd:
            write.wait(self._patience)
        try:
            with self._turn():
                if write.settled:
                    return
                began = time.monotonic()
                batch = SharedTransaction(write, *self._others(write))
                self._commit(batch)
            self._crowd, self._patience = len(batch.writes), min(MAX_PATIENCE_SECONDS, time.monotonic() - began)
        finally:
            if batch is not None and batch.settled:
                self._dismiss(batch.writes[1:])

    def _others(self, write: Write[Any]) -> list[Write[Any]]:
        """The writes to take along: not one whose caller was interrupted and has gone."""
        waiting = [other for other in self._line if other is not write and not other.settled]
        return [other for other in waiting if other.entered.locked()][: MAX_GROUP - 1]

    def _dismiss(self, writes: Sequence[Write[Any]]) -> None:
        for write in writes:
            self._remove(write)
        for write in writes:
            write.wake()

    def _remove(self, write: Write[Any]) -> None:
        """Out of the line. If it was the first there, or may just have become it, the next one leads."""
        hands_over = not write.settled or self._line[:1] == [write]
        with suppress(ValueError):
            self._line.remove(write)
        if hands_over:
            self._wake_first()

    def _wake_first(self) -> None:
        for first in self._line[:1]:
            first.wake()


def nested_write() -> NestedWriteError:
    return NestedWriteError(
        "this thread is in the middle of a save",
        hint="in a signal handler only set a flag, and save when the work looks at it",
    )
