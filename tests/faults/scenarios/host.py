"""Moves of files, followed by a host of another name, as each container has that is started in place of a dead one; or
by power loss, while their files are on their way to the disk."""

from __future__ import annotations

from tests.faults.scenarios.branches import SCENARIOS as BRANCHES
from tests.faults.scenarios.restore import SCENARIOS as RESTORES
from tests.faults.scenarios.scenario import Scenario
from tests.faults.worker import RENAMED, RESTARTED, Worker


def _followed_by(host: str, scenario: Scenario) -> Scenario:
    def prepare(worker: Worker) -> None:
        worker.sandbox.host.write_text(host)
        scenario.prepare(worker)

    return scenario._replace(prepare=prepare)


def _synced_later(scenario: Scenario) -> Scenario:
    """Leave it to the system when restored files come to the disk: their journals stay."""

    def run(worker: Worker) -> None:
        worker.store._engine.sync_apart = lambda journal, plans: None
        scenario.run(worker)

    return scenario._replace(run=run)


SCENARIOS = {
    "restore, then another host": _followed_by(RENAMED, RESTORES["restore whole"]),
    "undo, then another host": _followed_by(RENAMED, BRANCHES["undo"]),
    "switch, then another host": _followed_by(RENAMED, BRANCHES["switch"]),
    "restore, then a restart": _followed_by(RESTARTED, RESTORES["restore whole"]),
    "restore whole, synced later": _synced_later(RESTORES["restore whole"]),
    "restore some files, synced later": _synced_later(RESTORES["restore some files"]),
    "undo, synced later": _synced_later(BRANCHES["undo"]),
    "switch, synced later": _synced_later(BRANCHES["switch"]),
}
