"""Who works with a store until its disk is full, reads from it then, and makes room again. Jobs of a pool."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.ledger import Content, read_account, state_digest, tree_digest
from tests.faults.sandbox import Sandbox
from tests.faults.verifier import _examine
from tests.faults.worker import Worker, open_store, write_files

from lastgood import CheckpointError

ROUNDS = 6


def fill(folder: str, disk: str) -> None:
    """All kinds of work, again and again: what does not fit is reported, and the next is tried."""
    worker = Worker(Sandbox(Path(folder), Path(disk)))
    for turn in range(ROUNDS):
        for work in (_save_state, _save_few_files, _save_many_files, _save_large_file, _restore, _collect):
            try:
                work(worker, turn)
            except CheckpointError as error:
                worker.ledger.report(worker.doing, error.code, f"{error}. {error.hint}")
                worker.close()
    worker.close()


def _save_state(worker: Worker, turn: int) -> None:
    task = worker.store.task("talk")
    for number in range(3):
        state = {"turn": [turn, number], "log": [f"entry {one} of {turn} " * 9 for one in range(40 * (turn + 1))]}
        worker.save(task, state, f"state {turn} {number}", files=False)


def _save_few_files(worker: Worker, turn: int) -> None:
    write_files(worker.sandbox.work, ["a", "b", "deep/c"], seed=turn, size=400)
    worker.save(worker.task, {"few": turn}, f"few {turn}")


def _save_many_files(worker: Worker, turn: int) -> None:
    write_files(worker.sandbox.work, [f"many/{number}" for number in range(80)], seed=turn, size=600)
    worker.save(worker.task, {"many": turn}, f"many {turn}")


def _save_large_file(worker: Worker, turn: int) -> None:
    write_files(worker.sandbox.work, ["large"], seed=turn, size=600_000 if turn % 2 else 300_000)
    worker.save(worker.task, {"large": turn}, f"large {turn}")


def _restore(worker: Worker, turn: int) -> None:
    """What was there, and what is there afterwards, is told in the ledger: it may be saved by the restore."""
    task = worker.task
    chosen = next((one for one in _listed(worker) if one.message.startswith("few")), None)
    if chosen is not None and task.head is not None:
        here = tree_digest(worker.sandbox.work)
        worker.ledger.know(Content(state_digest(task.state), here))
        worker.ledger.know(Content(state_digest(chosen.state), here))
        worker.do(f"restore {turn}", lambda: task.restore(chosen.id))
        worker.ledger.know(Content(state_digest(chosen.state), tree_digest(worker.sandbox.work)))


def _collect(worker: Worker, turn: int) -> None:
    _delete_oldest(worker)
    worker.do(f"collect {turn}", lambda: worker.store.collect(grace=0))


def _delete_oldest(worker: Worker) -> None:
    """All but the newest three checkpoints of the files, and heads."""
    branches = [branch for info in worker.store.tasks() for branch in worker.store.branches(info.id)]
    heads = {branch.head.id for branch in branches if branch.head}
    for one in _listed(worker)[3:]:
        if one.id not in heads:
            worker.ledger.remove([one.id])
            worker.do("delete", partial(worker.store.delete_checkpoint, one.id))


def _listed(worker: Worker) -> list[Any]:
    if all(info.id != "work" for info in worker.store.tasks()):
        return []
    return worker.store.list_checkpoints("work", 1000)


# --- on the full disk -----------------------------------------------------------------------------------------------


def read(folder: str, disk: str) -> list[str]:
    """What was acknowledged and cannot be read, or is not whole."""
    sandbox = Sandbox(Path(folder), Path(disk))
    account = read_account(sandbox.ledger)
    if not account.acknowledged:
        return []
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        try:
            with open_store(sandbox) as store:
                return list(_examine(store, account, Path(scratch) / "found", collected=False))
        except CheckpointError as error:
            return [f"{error.code}: {error} {error.hint} ({error.__cause__!r})"]


def reclaim(folder: str, disk: str) -> list[str]:
    """Delete and collect, then save: what could not be done, as the codes of errors."""
    worker = Worker(Sandbox(Path(folder), Path(disk)))
    return [
        *_try(worker, lambda: _collect(worker, -1)),
        *_try(worker, lambda: _save_state(worker, 0)),
        *_try(worker, worker.close),
    ]


def _try(worker: Worker, work: Callable[[], None]) -> Iterator[str]:
    try:
        work()
    except CheckpointError as error:
        yield f"{error.code}: {worker.doing}: {error} {error.hint} ({error.__cause__!r})"
