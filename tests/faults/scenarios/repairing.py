"""Repair of damage that was done before: what was not damaged survives, what cannot be mended is refused, not wrong."""

from __future__ import annotations

import os
from pathlib import Path

from tests.faults.acting import Actor, write_files
from tests.faults.ledger import state_digest
from tests.faults.scenarios.scenario import Scenario, packs, save_some, some_state, tune
from tests.support.damage import CATALOG, ask, flip, tamper

from lastgood.catalog.sqlite import connection, database

MANY = [f"many/{one % 4}/{one}" for one in range(70)]


def _save_packs(actor: Actor) -> tuple[Path, Path]:
    """The packs of `save 3`, whose files are nowhere else, and of `save 4`, whose files lie in the workspace."""
    tune(database, LONG_LIVED_COMMITS=1)  # closing puts everything into the database
    save_some(actor)
    write_files(actor.world.work, MANY, seed=3)
    actor.save(actor.task, some_state(3), "save 3", key="third")
    (older,) = packs(actor)
    write_files(actor.world.work, MANY, seed=4)
    actor.save(actor.task, some_state(4), "save 4")
    (newer,) = set(packs(actor)) - {older}
    tagged = actor.kept("save 1")
    actor.store.tag(tagged, "green")
    actor.ledger.expect("tag green", [tagged])
    actor.close()
    return older, newer


def _damage_content(actor: Actor) -> None:
    """A pack is gone; the content of a file in the other one is damaged, and nobody else has it."""
    older, newer = _save_packs(actor)
    newer.unlink()
    flip(older, older.stat().st_size // 2)
    actor.ledger.damaged([actor.kept("save 3")])
    actor.ledger.mend()


def _damage_books(actor: Actor) -> None:
    """Counters, heads, names, and the places of blobs: all of it follows from something else."""
    _save_packs(actor)
    for sql in (
        "UPDATE tasks SET checkpoints = 99, last_event = 1 WHERE id = 'work'",
        "UPDATE branches SET own = 0, head = 1",
        "DELETE FROM keys",
        "DELETE FROM tags",
        "UPDATE blobs SET position = position + 1 WHERE pack IS NOT NULL",
    ):
        tamper(actor.world.store, sql)
    actor.ledger.mend()


def _damage_pages(actor: Actor) -> None:
    """Of an index, which is made anew from its table, and with it the whole database."""
    _save_packs(actor)
    leaf = ask(actor.world.store, "SELECT pageno FROM dbstat WHERE name = 'blobs_digest' AND pagetype = 'leaf'")
    flip(actor.world.store / CATALOG, (leaf - 1) * connection.PAGE_SIZE + 2000)
    actor.ledger.mend()


def _lose_newest(actor: Actor) -> None:
    """The end of the write-ahead log, and with it the newest checkpoint."""
    save_some(actor)
    actor.close()
    log = actor.world.store / f"{CATALOG}-wal"
    os.truncate(log, log.stat().st_size - 5000)
    actor.ledger.remove([actor.kept("save 2")])
    actor.ledger.expect("state work", [state_digest(some_state(1))])
    actor.ledger.mend(accept_loss=True)


def _repair(actor: Actor) -> None:
    actor.do("repair", actor.store.repair)
    actor.save(actor.task, some_state(5), "after the repair")


def _repair_with_losses(actor: Actor) -> None:
    actor.do("repair", lambda: actor.store.repair(accept_loss=True))
    actor.save(actor.task, some_state(5), "after the repair")


SCENARIOS = {
    "repair content": Scenario(_damage_content, _repair),
    "repair books": Scenario(_damage_books, _repair),
    "repair pages": Scenario(_damage_pages, _repair),
    "repair losses": Scenario(_lose_newest, _repair_with_losses),
}
