"""Writes of several threads that happen to come together, gathered so that they share one transaction.

The first to come leads. While it waits for its turn and for the disk, others line up behind it; whoever leads
next takes all of them along. Nobody waits longer than alone: one thread by itself commits at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

import apsw

from lastgood.model.forking import renew_after_fork

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]
MAX_GROUP = 64


class Write(Generic[T]):
    """One thread's part of a transaction, and what became of it."""

    __slots__ = ("_value", "_woken", "durable", "error", "settled", "work")

    def __init__(self, work: Work[T], *, durable: bool = True) -> None:
        self.work = work
        self.durable = durable
        self.error: BaseException | None = None
        self._value: Any = None
        self.settled = False
        self._woken = threading.Lock()
        self._woken.acquire()

    def run(self, connection: apsw.Connection) -> None:
        self._value = self.work(connection)

    def settle(self, error: BaseException | None = None) -> None:
        """It is committed, or it failed; an error that it met itself stays the one to tell."""
        self.error = self.error or error
        self.settled = True

    def outcome(self) -> T:
        if self.error is not None:
            raise self.error
        value: T = self._value
        return value

    def wait(self) -> None:
        self._woken.acquire()

    def wake(self) -> None:
        self._woken.release()


class Group:
    """Hands each write to a leader, who waits for its `turn` and takes along all who came meanwhile.

    `commit` settles every write it is given, or raises. Writes that it left unsettled (their leader was interrupted
    before anything was committed) go back into the line and are led by somebody else.
    """

    def __init__(
        self, turn: Callable[[], AbstractContextManager[None]], commit: Callable[[Sequence[Write[Any]]], None]
    ) -> None:
        self._turn = turn
        self._commit = commit
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """In a child the threads that were lined up are gone."""
        self._lock = threading.Lock()
        self._line: deque[Write[Any]] = deque()
        self._leader: Write[Any] | None = None

    def write(self, write: Write[T]) -> T:
        with self._lock:
            self._line.append(write)
            if self._leader is None:
                self._leader = write
        try:
            if self._leader is not write:
                write.wait()
            if not write.settled:
                self._lead(write)
        finally:
            self._leave(write)
        return write.outcome()

    def _lead(self, write: Write[Any]) -> None:
        """Commit this write, which is the first in the line, with those behind it."""
        batch: list[Write[Any]] = []
        try:
            with self._turn():
                with self._lock:
                    batch = [self._line.popleft() for _ in range(min(MAX_GROUP, len(self._line)))]
                self._commit(batch)
        finally:
            with self._lock:
                self._line.extendleft(other for other in reversed(batch) if not other.settled)
            for other in batch:
                if other.settled and other is not write:
                    other.wake()

    def _leave(self, write: Write[Any]) -> None:
        with self._lock:
            if not write.settled and write in self._line:
                self._line.remove(write)
            if self._leader is write:
                self._leader = self._line[0] if self._line else None
                if self._leader is not None:
                    self._leader.wake()
