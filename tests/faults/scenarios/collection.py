"""Giving room back: garbage collected, packs rewritten, and a limit kept by letting old checkpoints go."""

from __future__ import annotations

import functools

from tests.faults.scenarios.scenario import Scenario, some_state, tune
from tests.faults.worker import Worker, write_files

from lastgood.catalog.sqlite import database
from lastgood.engine import gather
from lastgood.upkeep import collect, repack

SAVES = 6
TOO_MUCH = 30_000
"""Bytes that the limit is below what the store has: more than one checkpoint has to go, fewer than all."""


def in_small_steps() -> None:
    """Few blobs make a pack, and a run changes few rows at a time: there are many moments to die at."""
    tune(gather, INLINE_BLOBS=3, PACK_BYTES=20_000)
    tune(repack, PACK_BYTES=20_000, AT_ONCE=2)
    tune(collect, AT_ONCE=3, SHRINK_BYTES=16 << 10)
    tune(database, LONG_LIVED_COMMITS=1)  # closing cuts the write-ahead log, so that its size does not count


def _fill(worker: Worker) -> None:
    in_small_steps()
    task = worker.task
    for number in range(SAVES):
        write_files(worker.sandbox.work, [f"{one}" for one in range(number, number + 5)], seed=number)
        worker.save(task, some_state(number), f"save {number}")
    worker.store.tag(worker.kept("save 1"), "green")


def _fill_and_delete(worker: Worker) -> None:
    _fill(worker)
    for one in _deleted(worker):
        worker.hide("delete", [one], functools.partial(worker.store.delete_checkpoint, one))


def _deleted(worker: Worker) -> list[str]:
    return [worker.kept(f"save {number}") for number in (0, 2, 3)]


def _collect(worker: Worker) -> None:
    in_small_steps()
    worker.remove("collect", _deleted(worker), lambda: worker.store.collect(grace=0))
    write_files(worker.sandbox.work, ["4", "5"], seed=20)
    worker.save(worker.task, some_state(20), "after the collection")


def _limit(worker: Worker) -> None:
    """Which ones go is the store's choice, but for the tagged one and the head."""
    in_small_steps()
    store, spared = worker.store, {worker.kept("save 1"), worker.kept(f"save {SAVES - 1}")}
    unprotected = [worker.kept(f"save {number}") for number in range(SAVES)]
    unprotected = [one for one in unprotected if one not in spared]
    worker.doing = "limit"
    worker.ledger.remove(unprotected)
    gone = [each.id for each in store.limit(store.size() - TOO_MUCH).checkpoints]
    worker.ledger.removed(gone)
    worker.ledger.returned([one for one in unprotected if one not in gone])
    assert 0 < len(gone) < len(unprotected)
    worker.save(worker.task, some_state(20), "after the limit")


SCENARIOS = {
    "collect": Scenario(_fill_and_delete, _collect),
    "limit": Scenario(_fill, _limit),
}
