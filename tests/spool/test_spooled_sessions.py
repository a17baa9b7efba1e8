"""Sessions whose store is away for a while: they go on, and what they saved comes back in order (C10, C6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.outages import spool_of
from tests.support.programs import Meanwhile

import lastgood
from lastgood.work.lease import HeldLease


@contextmanager
def away(store: Path) -> Iterator[None]:
    store.rename(store.with_name("elsewhere"))
    yield
    store.with_name("elsewhere").rename(store)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[lastgood.Store]:
    with lastgood.open(tmp_path / "store", spool=tmp_path / "spool") as opened:
        spool_of(opened).breaker.start = lambda: None  # nobody asks in the background
        yield opened


def line(store: lastgood.Store) -> list[tuple[str, int]]:
    return [(one.type, one.state["n"]) for one in reversed(store.list_checkpoints("work"))]


def test_a_session_goes_on_while_its_store_is_away(store: lastgood.Store, tmp_path: Path) -> None:
    memory = {"n": 0}
    with store.task("work").session(state=lambda: memory) as session:
        with away(tmp_path / "store"):
            for memory["n"] in (1, 2):
                assert session.save().status == "spooled"
            session.boundary()
        memory["n"] = 3
        assert store.replay().stored == 2
        assert session.save().status == "stored"
    assert line(store) == [("started", 0), ("step", 1), ("step", 2), ("step", 3), ("completed", 3)]
    assert len(store.branches("work")) == 1


def test_what_a_session_left_in_the_spool_comes_into_its_line_when_it_has_ended(
    store: lastgood.Store, tmp_path: Path
) -> None:
    memory = {"n": 0}

    def work() -> None:
        with store.task("work").session(state=lambda: memory) as session:
            with away(tmp_path / "store"):
                memory["n"] = 1
                session.save()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert store.replay().diverged == ()
    assert line(store) == [("started", 0), ("step", 1)]


def test_what_a_session_spooled_is_a_branch_of_its_own_when_another_has_taken_over(
    store: lastgood.Store, tmp_path: Path
) -> None:
    memory = {"n": 0}

    def work() -> None:
        with store.task("work").session(state=lambda: memory) as session:
            with away(tmp_path / "store"):
                memory["n"] = 1
                session.save()
            with lastgood.open(tmp_path / "store", spool=None) as other:
                _take_over(other)
            assert len(store.replay().diverged) == 1
            session.save()

    with pytest.raises(lastgood.LeaseError):
        work()
    names = [branch.name for branch in store.branches("work")]
    assert names[0] == "main"
    assert "spooled" in names[1]
    assert line(store) == [("started", 0), ("manual", 9), ("step", 1)]


def _take_over(store: lastgood.Store) -> None:
    task = store.task("work")
    assert task.branch_id is not None
    lease = store._engine.catalog.lease(task.owner, task.branch_id)
    assert lease is not None
    hold = HeldLease(store._engine, store.user, task.owner, "another", 30)
    task._handle.lease = hold.acquire(task.branch_id, over=lease.token).token
    task.save({"n": 9})
    hold.drop(task._handle)


def test_a_session_waits_when_its_store_is_away_for_longer_than_its_lease_lasts(
    store: lastgood.Store, tmp_path: Path
) -> None:
    """C10: somebody else may do the work by then."""
    memory, place, elsewhere = {"n": 0}, tmp_path / "store", tmp_path / "elsewhere"
    clock = Meanwhile(lambda: None, lambda: None, lambda: elsewhere.rename(place))
    clock.time = 0.0
    with store.task("work").session(state=lambda: memory, lease=30, _clock=clock) as session:
        place.rename(elsewhere)
        memory["n"] = 1
        assert session.save().status == "spooled"
        clock.time = 29.0
        session.boundary()
        clock.time = 31.0
        assert not clock.is_over()
        session.boundary()
        assert clock.is_over()
        memory["n"] = 2
        session.save()
    assert line(store) == [("started", 0), ("step", 1), ("step", 2), ("completed", 2)]


def test_a_session_whose_work_was_taken_over_while_its_store_was_away_learns_it_before_it_goes_on(
    store: lastgood.Store, tmp_path: Path
) -> None:
    """C6, C10."""
    memory, place, elsewhere = {"n": 0}, tmp_path / "store", tmp_path / "elsewhere"

    def come_back() -> None:
        elsewhere.rename(place)
        with lastgood.open(place, spool=None) as other:
            _take_over(other)

    clock = Meanwhile(come_back)
    clock.time = 0.0

    def work() -> None:
        with store.task("work").session(state=lambda: memory, lease=30, _clock=clock) as session:
            place.rename(elsewhere)
            memory["n"] = 1
            session.save()
            clock.time = 31.0
            session.boundary()
            raise AssertionError

    with pytest.raises(lastgood.LeaseError):
        work()
    assert clock.is_over()
