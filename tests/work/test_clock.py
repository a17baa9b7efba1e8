"""What a session does by itself ends with it (E4)."""

from __future__ import annotations

import itertools
import threading

from lastgood.work.clock import Clock, Scheduler


class Hurried(Clock):
    """Whatever is waited for is due at once."""

    def __init__(self) -> None:
        self._moments = itertools.count()

    def now(self) -> float:
        return float(next(self._moments))

    def wait(self, until: threading.Event, seconds: float) -> bool:
        return until.is_set()


def test_a_job_that_raises_is_called_again() -> None:
    calls, often = itertools.count(), threading.Event()

    def fail() -> None:
        if next(calls) == 3:
            often.set()
        raise ValueError("what a session does by itself")

    scheduler = Scheduler(Hurried())
    scheduler.every(1.0, fail)
    scheduler.start()
    assert often.wait(20)
    scheduler.close()


def test_once_it_is_closed_no_job_runs() -> None:
    """Not even one that was about to: the thread may still be there."""
    scheduler, calls, begun = Scheduler(Hurried()), itertools.count(), threading.Event()

    def work() -> None:
        next(calls)
        begun.set()

    for _ in range(1000):
        scheduler.every(1.0, work)
    scheduler.start()
    assert begun.wait(20)
    scheduler.close()
    number = next(calls)
    assert scheduler._thread is not None
    scheduler._thread.join(20)
    assert next(calls) == number + 1


def test_closing_waits_for_the_job_that_is_under_way() -> None:
    begun, may_end, told = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        assert may_end.wait(20)
        told.append("the job is done")

    def close() -> None:
        scheduler.close()
        told.append("it is closed")

    scheduler = Scheduler(Hurried())
    scheduler.every(1.0, work)
    scheduler.start()
    assert begun.wait(20)
    closing = threading.Thread(target=close)
    closing.start()
    assert scheduler._end.wait(20)
    may_end.set()
    closing.join(20)
    assert told == ["the job is done", "it is closed"]


def test_a_job_may_close_it() -> None:
    scheduler, closed = Scheduler(Hurried()), threading.Event()

    def work() -> None:
        scheduler.close()
        closed.set()

    scheduler.every(1.0, work)
    scheduler.start()
    assert closed.wait(5)
