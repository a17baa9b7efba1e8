"""A store of an older format, opened by newer code: a golden store of a killed process, and a made-up migration.

Every process of the scenario knows the migration (worker.open_store), and applies it unless it is applied.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.ledger import Content, state_digest, tree_digest
from tests.faults.scenarios.scenario import Scenario, some_state
from tests.faults.worker import Worker, write_files

import lastgood

if TYPE_CHECKING:
    from tests.golden.ledger import ExpectedCheckpoint

MIGRATION = """
  CREATE TABLE made_up (a INTEGER PRIMARY KEY) STRICT;
  INSERT INTO made_up SELECT number FROM checkpoints;
  ALTER TABLE checkpoints ADD COLUMN made_up TEXT;
  CREATE INDEX checkpoints_made_up ON checkpoints (made_up) WHERE made_up IS NOT NULL;"""


def _take_down(worker: Worker) -> None:
    """What it must give back is had from a copy that was opened in peace, and is what is written beside the archive."""
    from tests.golden import values as values  # a class that golden stores hold values of is registered there
    from tests.golden.shelf import NEWEST, unpack

    expected = unpack(NEWEST, worker.sandbox.store)
    copy = worker.sandbox.folder / "golden"
    copy.mkdir()
    unpack(NEWEST, copy / "store")
    with lastgood.open(copy / "store", user="golden", collect="never", on_failure="raise") as store:
        for number, (id_, it) in enumerate(expected.checkpoints.items()):
            if not it.purged:
                _acknowledge(worker, store, id_, it, copy / str(number))
    shutil.rmtree(copy)
    worker.sandbox.migration.write_text(MIGRATION)


def _acknowledge(worker: Worker, store: lastgood.Store, id_: str, it: ExpectedCheckpoint, place: Path) -> None:
    from tests.golden.ledger import fingerprint

    checkpoint = store.find_checkpoint(id_, owner=it.owner)
    assert fingerprint(checkpoint.state) == it.state
    files = None
    if it.files is not None:
        store.task(it.task, owner=it.owner).copy_files(id_, place)
        files = tree_digest(place)
    content = Content(state_digest(checkpoint.state), files)
    worker.ledger.acknowledge(id_, it.sequence, content, owner=it.owner, verified=it.verified)
    if it.deleted:
        worker.ledger.hide([id_])
        worker.ledger.removed([id_])


def _migrate(worker: Worker) -> None:
    write_files(worker.sandbox.work, ["a", "b"], seed=1, size=400)
    worker.save(worker.task, some_state(1), "after the migration")


SCENARIOS = {"migrate": Scenario(_take_down, _migrate)}
