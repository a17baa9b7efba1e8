"""Saving: small, packed, large, in workers, and often enough that the write-ahead log is emptied."""

from __future__ import annotations

from tests.faults import shim
from tests.faults.scenarios.scenario import Scenario, nothing, packs, save_some, some_state, tune
from tests.faults.worker import Worker, write_files

from lastgood.catalog.sqlite import connection, database
from lastgood.engine import readers


def _save_inline(worker: Worker) -> None:
    task = worker.task
    for number in range(3, 5):
        write_files(worker.sandbox.work, ["a", "deep/new"], seed=number, size=300)
        worker.save(task, some_state(number), f"save {number}")


def _save_packed(worker: Worker) -> None:
    task = worker.task
    for number in range(3, 5):
        write_files(worker.sandbox.work, [f"many/{one % 4}/{one}" for one in range(90)], seed=number, size=900)
        worker.save(task, some_state(number), f"save {number}")
        assert len(packs(worker)) == number - 2


def _save_large(worker: Worker) -> None:
    task = worker.task
    write_files(worker.sandbox.work, ["large"], seed=7, size=2_500_000)
    worker.save(task, some_state(3), "save 3")
    assert packs(worker)
    with shim.pause(), (worker.sandbox.work / "large").open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"changed")
    worker.save(task, some_state(4, 3000), "save 4")


def _save_in_workers(worker: Worker) -> None:
    """A fault may come to a worker, too: then the save succeeds without it, or says that it did not."""
    tune(readers, MANY_FILES=10, processors=lambda: 2)
    write_files(worker.sandbox.work, [f"many/{one % 4}/{one}" for one in range(14)], seed=3, size=50_000)
    worker.save(worker.task, some_state(3), "save 3")
    assert packs(worker)


def _save_often(worker: Worker) -> None:
    """SQLite empties its log in between, and closing cuts it to nothing."""
    tune(connection, LONG_PAGES=12)
    tune(database, LONG_LIVED_COMMITS=6)
    task = worker.task
    for number in range(3, 11):
        write_files(worker.sandbox.work, ["a"], seed=number, size=300)
        worker.save(task, some_state(number, 4 * number), f"save {number}")


SCENARIOS = {
    "create": Scenario(nothing, save_some),
    "save inline": Scenario(save_some, _save_inline),
    "save packed": Scenario(save_some, _save_packed),
    "save large": Scenario(save_some, _save_large),
    "save in workers": Scenario(save_some, _save_in_workers),
    "save often": Scenario(save_some, _save_often),
}
