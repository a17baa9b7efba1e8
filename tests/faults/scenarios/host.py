"""Moves of files, followed by a host of another name, as each container has that is started in place of a dead one."""

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


SCENARIOS = {
    "restore, then another host": _followed_by(RENAMED, RESTORES["restore whole"]),
    "undo, then another host": _followed_by(RENAMED, BRANCHES["undo"]),
    "switch, then another host": _followed_by(RENAMED, BRANCHES["switch"]),
    "restore, then a restart": _followed_by(RESTARTED, RESTORES["restore whole"]),
}
