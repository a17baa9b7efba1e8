"""Two processes at once: when one of them dies, the other goes on, and nothing that it was told is lost."""

from __future__ import annotations

from tests.faults.ledger import Content, state_digest
from tests.faults.scenarios.collection import in_small_steps
from tests.faults.scenarios.scenario import Scenario, save_some, some_state
from tests.faults.worker import Worker, write_files


def _save(worker: Worker) -> None:
    in_small_steps()
    task = worker.task
    for number in range(3, 5):
        write_files(worker.work, [f"many/{one}" for one in range(6)], seed=number, size=300)
        worker.save(task, some_state(number), f"save {number}")
        _append(worker, f"mine {number}")


def _save_beside(worker: Worker, number: int) -> None:
    in_small_steps()
    write_files(worker.work, [f"{one}" for one in range(number % 3, 6)], seed=100 + number, size=300)
    worker.save(worker.task, some_state(number), f"beside {number}")
    _append(worker, f"theirs {number}")


def _collect_beside(worker: Worker, number: int) -> None:
    _save_beside(worker, number)
    worker.do("collect", lambda: worker.store.collect(grace=0))


def _append(worker: Worker, message: str) -> None:
    """To a task that both write to, on top of whatever is there."""
    state = {"said": message}
    task = worker.store.task("shared")
    worker.make(message, Content(state_digest(state), None), lambda: task.append(state, message=message))


SCENARIOS = {
    "save beside another": Scenario(save_some, _save, _save_beside),
    "save beside a collector": Scenario(save_some, _save, _collect_beside),
}
