"""The spool: checkpoints are kept beside a store that is away, and come into it when it is back."""

from __future__ import annotations

from tests.faults.facts import SPOOLED
from tests.faults.ledger import Content, state_digest
from tests.faults.scenarios.scenario import Scenario, save_some, some_state, tune
from tests.faults.worker import Worker, write_files

import lastgood
from lastgood.spool import file as spool_file

MOVED = "moved"


def _spool_some(worker: Worker) -> None:
    """Three lines wait for the store: one with files, one without, and one that others have gone on with meanwhile."""
    worker.sandbox.spool.mkdir(mode=0o700)
    save_some(worker)
    for name in (SPOOLED, MOVED):
        worker.save(worker.store.task(name), some_state(10), f"{name} begins", files=False)
    files, plain, moved = worker.task, worker.store.task(SPOOLED), worker.store.task(MOVED)
    with worker.without_store():
        for number in range(11, 14):
            write_files(worker.sandbox.work, ["a", "b"], seed=number, size=40_000)
            worker.save(files, some_state(number), f"files {number}")
            worker.save(plain, some_state(number), f"spooled {number}", files=False)
            _save_apart(worker, moved, number)
    worker.open_without_spool()
    worker.save(worker.store.task(MOVED), some_state(20), "moved by others", files=False)


def _save_apart(worker: Worker, moved: lastgood.Task, number: int) -> None:
    """It will land on a branch of its own."""
    state, message = some_state(number), f"moved {number}"
    worker.make(message, Content(state_digest(state), None), lambda: moved.save(state, message=message))


def _spool_more(worker: Worker) -> None:
    """The log of the spool is emptied in between."""
    tune(spool_file, LONG_PAGES=20)
    with worker.without_store():
        plain = worker.store.task(SPOOLED)
        for number in range(30, 36):
            worker.save(plain, some_state(number), f"spooled {number}", files=False)


def _replay(worker: Worker) -> None:
    """By opening the store, and once more by hand."""
    worker.do("replay", lambda: worker.store.replay())
    worker.save(worker.task, some_state(30), "after the replay")


SCENARIOS = {
    "spool": Scenario(_spool_some, _spool_more),
    "replay": Scenario(_spool_some, _replay),
}
