"""Who asks for a store that is away, how often, and how that ends: no clocks, no sleeps."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import apsw
import pytest
from tests.support.outages import gone, numbers, open_store, spool_of

import lastgood
from lastgood import CheckpointError, UnavailableError
from lastgood.spool import breaker as breakers
from lastgood.spool.breaker import Breaker
from lastgood.types import Alert

AWAY = UnavailableError("away")


class Asked:
    """A store that answers after a while, and a clock that only writes down how long it was to wait."""

    def __init__(self, *answers: CheckpointError | None) -> None:
        self.answers = list(answers)
        self.waited: list[float] = []
        self.failures: list[CheckpointError] = []
        self.breaker = Breaker(self.ask, self.failures.append, wait=self.wait, draw=lambda: 1.0)
        self.breaker.start = lambda: None

    def ask(self) -> None:
        if (answer := self.answers.pop(0)) is not None:
            raise answer
        self.breaker.shut()

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        return not self.answers


def test_it_is_asked_more_and_more_seldom_until_it_answers() -> None:
    asked = Asked(*[AWAY] * 12, None)
    assert asked.breaker.open(AWAY)
    assert not asked.breaker.open(AWAY)  # no news
    asked.breaker.run()
    assert asked.breaker.error is None
    assert asked.waited[:4] == [0.1, 0.2, 0.4, 0.8]
    assert asked.waited[-1] == breakers.LONGEST_SECONDS
    assert len(asked.waited) == 13


def test_how_long_it_waits_is_drawn_so_that_not_all_ask_at_once() -> None:
    asked = Asked(None)
    asked.breaker._draw = lambda: 0.0
    asked.breaker.open(AWAY)
    asked.breaker.run()
    assert asked.waited == [0.05]


def test_another_error_is_told_and_asked_again() -> None:
    damage = lastgood.IntegrityError("damaged")
    asked = Asked(damage, AWAY, None)
    asked.breaker.open(AWAY)
    asked.breaker.run()
    assert asked.failures == [damage]
    assert asked.breaker.error is None


def test_closing_ends_the_asking_at_once() -> None:
    asked = Asked(*[AWAY] * 3)
    breaker = Breaker(asked.ask, asked.failures.append)
    breaker.open(AWAY)
    (thread,) = [each for each in threading.enumerate() if each.name == "lastgood spool"]
    breaker.close()
    thread.join()
    assert breaker.error is AWAY
    breaker.open(AWAY)  # nobody begins again after that
    assert not [each for each in threading.enumerate() if each.name == "lastgood spool"]


def test_in_the_background_what_is_spooled_comes_into_the_store(tmp_path: Path) -> None:
    """The whole way, with the thread: it is let go when the store is back."""
    back, done = threading.Event(), threading.Event()
    alerts: list[Alert] = []
    with lastgood.open(tmp_path / "store", user="tester", on_alert=alerts.append) as store:
        breaker = spool_of(store).breaker
        breaker.wait = lambda seconds: not back.wait(60)
        shut = breaker.shut

        def shut_and_tell() -> None:
            shut()
            done.set()

        breaker.shut = shut_and_tell  # type: ignore[method-assign]
        task = store.task("t")
        task.save({"n": 0})
        with gone(tmp_path / "store"):
            for number in range(1, 100):
                assert task.save({"n": number}).status == "spooled"
        back.set()
        assert done.wait(60)
        assert task.save({"n": 100}).status == "stored"
        assert numbers(store) == list(range(101))
        assert len(alerts) == 1


def test_a_child_goes_on_spooling_and_asks_for_itself(tmp_path: Path) -> None:
    """Fork-safe: it has a connection of its own, and no thread until it needs one."""
    with open_store(tmp_path / "store") as store:
        task = store.task("t")
        task.save({"n": 0})
        with gone(tmp_path / "store"):
            task.save({"n": 1})
            begun: list[int] = []
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    spool_of(store).breaker.start = lambda: begun.append(1)
                    good = task.save({"n": 2}).status == "spooled" and begun and task.state == {"n": 2}
                    code = 0 if good else 2
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
            assert task.refresh() is not None
            assert task.state == {"n": 2}
            task.save({"n": 3})
        assert store.replay().stored == 3
        assert numbers(store) == [0, 1, 2, 3]


def test_what_is_spooled_is_durable_before_a_save_returns(tmp_path: Path) -> None:
    """WAL, synchronous FULL, page checksums; forgetting what is in the store waits for no disk."""
    with open_store(tmp_path / "store") as store:
        task = store.task("t")
        task.save({"n": 0})
        levels: list[int] = []

        def note(connection: apsw.Connection, name: str, pages: int) -> int:
            levels.append(connection.pragma("synchronous"))
            return apsw.SQLITE_OK

        with gone(tmp_path / "store"):
            task.save({"n": 1})
            connection = spool_of(store).entries._connect(create=False)
            assert (connection.pragma("journal_mode"), connection.reserve_bytes()) == ("wal", 8)
            connection.set_wal_hook(note)
            task.save({"n": 2})
        assert levels == [2]
        store.replay()
        assert levels == [2, 1]


def test_a_damaged_spool_is_put_out_of_the_way_and_nobody_is_kept_from_saving(tmp_path: Path) -> None:
    alerts: list[Alert] = []
    with open_store(tmp_path / "store", spool=tmp_path / "spool") as store:
        task = store.task("t")
        task.save({"n": 0})
        with gone(tmp_path / "store"):
            task.save({"n": 1})
        folder = spool_of(store).folder
        assert folder is not None
    (folder / "spool.sqlite-wal").unlink()
    (folder / "spool.sqlite").write_bytes(b"no database" * 1000)
    with open_store(tmp_path / "store", spool=tmp_path / "spool", on_alert=alerts.append) as store:
        task = store.task("t")
        assert task.save({"n": 2}).status == "stored"
        assert "the spool is damaged" in alerts[0].message
        with gone(tmp_path / "store"):
            assert task.save({"n": 3}).status == "spooled"
        assert store.replay().stored == 1
    (kept,) = (tmp_path / "spool").glob("*.damaged.*")
    assert (kept / "spool.sqlite").read_bytes().startswith(b"no database")


@pytest.mark.parametrize("after", ["a spooled save", "a replay"])
def test_nothing_is_left_running_when_a_store_is_closed(tmp_path: Path, after: str) -> None:
    with lastgood.open(tmp_path / "store") as store:
        task = store.task("t")
        task.save({"n": 0})
        with gone(tmp_path / "store"):
            task.save({"n": 1})
        if after == "a replay":
            store.replay()
    assert not [each for each in threading.enumerate() if each.name == "lastgood spool" and each.is_alive()]
