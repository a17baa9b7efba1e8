"""Backups: each is a whole store, or is not there; another one that is under way is left alone."""

from __future__ import annotations

from tests.faults.scenarios.collection import in_small_steps
from tests.faults.scenarios.scenario import Scenario, some_state
from tests.faults.worker import Worker, write_files

OTHER = ".first.01a1ed41-2602-7693-b0a5-b3e6a402c7b8.partial"
"""What somebody else is making under the same name."""


def _fill(worker: Worker) -> None:
    in_small_steps()
    for number in range(3):
        write_files(worker.sandbox.work, [f"{one}" for one in range(number, number + 5)], seed=number)
        worker.save(worker.task, some_state(number), f"save {number}")
    write_files(worker.sandbox.backups, [f"{OTHER}/catalog.sqlite"], seed=9)
    worker.ledger.back_up(OTHER, [], made=True)


def _back_up(worker: Worker) -> None:
    in_small_steps()
    worker.back_up("first")
    write_files(worker.sandbox.work, ["4", "5"], seed=20)
    worker.save(worker.task, some_state(20), "after the first backup")
    worker.back_up("second")


def _change_beside(worker: Worker, number: int) -> None:
    """Save, let the checkpoint before it go, and collect: packs are rewritten while they are copied."""
    in_small_steps()
    before = worker.task.head
    write_files(worker.work, [f"{one}" for one in range(number % 3, 6)], seed=100 + number)
    worker.save(worker.task, some_state(number), f"beside {number}")
    if before is not None:
        worker.remove("purge", [before.id], lambda: worker.store.purge_checkpoint(before.id))
    worker.do("collect", lambda: worker.store.collect(grace=0))


SCENARIOS = {
    "back up": Scenario(_fill, _back_up),
    "back up beside a collector": Scenario(_fill, _back_up, _change_beside),
}
