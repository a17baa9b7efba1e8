"""Repair of damage that was done before: what was not damaged survives, what cannot be mended is refused, not wrong."""

from __future__ import annotations

import os
from pathlib import Path

from tests.faults.ledger import state_digest
from tests.faults.scenarios.scenario import Scenario, packs, save_some, some_state, tune
from tests.faults.worker import Worker, write_files
from tests.support.damage import CATALOG, ask, flip, tamper

from lastgood.catalog.sqlite import connection, database

MANY = [f"many/{one % 4}/{one}" for one in range(70)]


def _save_packs(worker: Worker) -> tuple[Path, Path]:
    """The packs of `save 3`, whose files are nowhere else, and of `save 4`, whose files lie in the workspace."""
    tune(database, LONG_LIVED_COMMITS=1)  # closing puts everything into the database
    save_some(worker)
    write_files(worker.sandbox.work, MANY, seed=3)
    worker.save(worker.task, some_state(3), "save 3", key="third")
    (older,) = packs(worker)
    write_files(worker.sandbox.work, MANY, seed=4)
    worker.save(worker.task, some_state(4), "save 4")
    (newer,) = set(packs(worker)) - {older}
    tagged = worker.kept("save 1")
    worker.store.tag(tagged, "green")
    worker.ledger.expect("tag green", [tagged])
    worker.close()
    return older, newer


def _damage_content(worker: Worker) -> None:
    """A pack is gone; the content of a file in the other one is damaged, and nobody else has it."""
    older, newer = _save_packs(worker)
    newer.unlink()
    flip(older, older.stat().st_size // 2)
    worker.ledger.damaged([worker.kept("save 3")])
    worker.ledger.mend()


def _damage_books(worker: Worker) -> None:
    """Counters, heads, names, and the places of blobs: all of it follows from something else."""
    _save_packs(worker)
    for sql in (
        "UPDATE tasks SET checkpoints = 99, last_event = 1 WHERE id = 'work'",
        "UPDATE branches SET own = 0, head = 1",
        "DELETE FROM keys",
        "DELETE FROM tags",
        "UPDATE blobs SET position = position + 1 WHERE pack IS NOT NULL",
    ):
        tamper(worker.sandbox.store, sql)
    worker.ledger.mend()


def _damage_pages(worker: Worker) -> None:
    """Of an index, which is made anew from its table, and with it the whole database."""
    _save_packs(worker)
    leaf = ask(worker.sandbox.store, "SELECT pageno FROM dbstat WHERE name = 'blobs_digest' AND pagetype = 'leaf'")
    flip(worker.sandbox.store / CATALOG, (leaf - 1) * connection.PAGE_SIZE + 2000)
    worker.ledger.mend()


def _lose_newest(worker: Worker) -> None:
    """The end of the write-ahead log, and with it the newest checkpoint."""
    save_some(worker)
    worker.close()
    log = worker.sandbox.store / f"{CATALOG}-wal"
    os.truncate(log, log.stat().st_size - 5000)
    worker.ledger.remove([worker.kept("save 2")])
    worker.ledger.expect("state work", [state_digest(some_state(1))])
    worker.ledger.mend(accept_loss=True)


def _repair(worker: Worker) -> None:
    worker.do("repair", worker.store.repair)
    worker.save(worker.task, some_state(5), "after the repair")


def _repair_with_losses(worker: Worker) -> None:
    worker.do("repair", lambda: worker.store.repair(accept_loss=True))
    worker.save(worker.task, some_state(5), "after the repair")


SCENARIOS = {
    "repair content": Scenario(_damage_content, _repair),
    "repair books": Scenario(_damage_books, _repair),
    "repair pages": Scenario(_damage_pages, _repair),
    "repair losses": Scenario(_lose_newest, _repair_with_losses),
}
