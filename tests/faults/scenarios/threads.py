"""Threads of one process that save at once: they share a transaction, and each is told what became of it."""

from __future__ import annotations

from threading import Thread

from tests.faults.scenarios.scenario import Scenario, save_some, some_state
from tests.faults.worker import Worker

import lastgood

THREADS, ROUNDS = 3, 2


def _save_together(worker: Worker) -> None:
    tasks = [worker.store.task(f"thread {number}") for number in range(THREADS)]
    for turn in range(ROUNDS):
        _save_one_each(worker, tasks, turn)


def _save_one_each(worker: Worker, tasks: list[lastgood.Task], turn: int) -> None:
    """What one of them was told is told of all."""
    errors: list[Exception] = []

    def save(number: int) -> None:
        try:
            worker.save(tasks[number], some_state(10 * turn + number), f"round {turn} of {number}", files=False)
        except Exception as error:
            errors.append(error)

    group = worker.store._engine.catalog._database._group  # type: ignore[attr-defined]
    threads = [Thread(target=save, args=(number,)) for number in range(THREADS)]
    with worker.store._engine.catalog.exclusive():  # nobody is served before all stand in the line
        for place, thread in enumerate(threads):
            thread.start()
            while len(group._line) <= place and thread.is_alive():
                thread.join(0.001)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


SCENARIOS = {"save in threads": Scenario(save_some, _save_together)}
