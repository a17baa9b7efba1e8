"""Writes of several threads that happen to come together, gathered so that they share one transaction.

The first to come leads. While it waits for its turn and for the disk, others line up behind it; whoever leads
next takes all of them along. Those who were along last time are likely to come again, so they are waited for: at
most as long as their commit took, and not at all by a thread that is by itself.

A signal may raise anywhere in here, even in what tidies up: between the end of a `with` and the release of its lock,
too. So nobody waits for a leader, or for the lock, without looking, now and then, whether somebody is still there.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, Generic, TypeVar

import apsw

from lastgood.errors import BusyError
from lastgood.model.forking import renew_after_fork

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]
MAX_GROUP = 64
LOOK_SECONDS = 1.0
MAX_PATIENCE_SECONDS = 0.01


class Write(Generic[T]):
    """One thread's part of a transaction, and what became of it."""

    __slots__ = ("_value", "_woken", "durable", "error", "settled", "thread", "work")

    def __init__(self, work: Work[T], *, durable: bool = True) -> None:
        self.work = work
        self.durable = durable
        self.thread = threading.get_ident()
        self.error: BaseException | None = None
        self.settled = False
        self._value: Any = None
        self._woken = threading.Lock()
        self._woken.acquire()

    def run(self, connection: apsw.Connection) -> None:
        self.error = None
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

    def wait(self, seconds: float) -> bool:
        return self._woken.acquire(timeout=seconds)

    def wake(self) -> None:
        if self._woken.locked():
            self._woken.release()


class Group:
    """Hands each write to a leader, who waits for its `turn` and takes along all who came meanwhile.

    `commit` settles every write it is given, or raises. Writes that it left unsettled (their leader was interrupted
    before anything was committed) are led by somebody else.
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
        self._lock = threading.RLock()  # a signal handler may come in between, on the same thread
        self._line: list[Write[Any]] = []
        self._leader: Write[Any] | None = None
        self._crowd = 1  # who were along last time
        self._patience = 0.0

    def write(self, write: Write[T]) -> T:
        if threading.main_thread().ident == write.thread and _is_nested():  # signal handlers run there alone
            raise nested_write()
        while self._lock._is_owned():  # type: ignore[attr-defined]  # kept by a write of this thread that was interrupted
            self._lock.release()
        try:
            with self._locked():
                self._forget_interrupted(write.thread)
                self._line.append(write)
                if self._leader is None:
                    self._leader = write
                elif len(self._line) == self._crowd:
                    self._leader.wake()
            while not write.settled:
                if self._leader is write:
                    self._lead(write)
                elif not write.wait(LOOK_SECONDS):
                    self._replace_lost_leader()
        finally:
            self._leave(write)
        return write.outcome()

    def _lead(self, write: Write[Any]) -> None:
        """Commit this write with the others in the line. They stay in it until they are settled."""
        batch: list[Write[Any]] = []
        if len(self._line) < self._crowd:
            write.wait(self._patience)
        try:
            with self._turn():
                began = time.monotonic()
                with self._locked():
                    batch = [write, *(other for other in self._line if other is not write)][:MAX_GROUP]
                self._commit(batch)
            self._crowd, self._patience = len(batch), min(MAX_PATIENCE_SECONDS, time.monotonic() - began)
        finally:
            with self._locked():
                self._line = [other for other in self._line if not other.settled]
            for other in batch:
                if other.settled and other is not write:
                    other.wake()

    def _leave(self, write: Write[Any]) -> None:
        with self._locked():
            if write in self._line:
                self._line.remove(write)
            if self._leader is write:
                self._choose_leader()

    def _choose_leader(self) -> None:
        self._leader = next((write for write in self._line if not write.settled), None)
        if self._leader is not None:
            self._leader.wake()

    def _replace_lost_leader(self) -> None:
        with self._locked():
            if self._leader is None or not _is_under_way(self._leader):
                self._line = [write for write in self._line if _is_under_way(write)]
                self._choose_leader()

    def _locked(self) -> _Held:
        """The lock, taken; a new one where the old one was lost: held by a thread that is not in here."""
        lock = self._lock
        while not lock.acquire(timeout=LOOK_SECONDS):
            if lock is self._lock and not _is_inside(threading.main_thread().ident):  # signals raise there alone
                self._lock = threading.RLock()
            lock = self._lock
        return _Held(lock)

    def _forget_interrupted(self, thread: int) -> None:
        """Who leads and is not inside any more was interrupted before it could leave."""
        if self._leader is not None and self._leader.thread == thread:
            self._choose_leader()


class _Held:
    """A lock that is taken, given back at the end."""

    __slots__ = ("_lock",)

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def nested_write() -> BusyError:
    return BusyError(
        "this thread is in the middle of a save",
        hint="in a signal handler only set a flag, and save when the work looks at it",
    )


def _is_nested() -> bool:
    """Whether a signal handler writes while its own thread is writing: it would wait for itself."""
    return _leads_through_write(sys._getframe(1).f_back)


def _is_inside(thread: int | None) -> bool:
    """Whether a thread is in `Group.write`."""
    return _leads_through_write(sys._current_frames().get(thread or 0))


def _leads_through_write(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code is Group.write.__code__:
            return True
        frame = frame.f_back
    return False


def _is_under_way(write: Write[Any]) -> bool:
    """Whether its thread is still inside `Group.write` with it."""
    frame = sys._current_frames().get(write.thread)
    while frame is not None:
        if frame.f_code is Group.write.__code__ and frame.f_locals.get("write") is write:
            return True
        frame = frame.f_back
    return False
