"""Branches: made, entered, left, taken back and done again."""

from __future__ import annotations

from typing import Any

from tests.faults.ledger import state_digest, tree_lines
from tests.faults.scenarios.restore import edit, save_changes
from tests.faults.scenarios.scenario import Scenario, some_state
from tests.faults.worker import Worker, captured


def _go_back(worker: Worker) -> None:
    save_changes(worker)
    task, chosen, files = worker.task, worker.kept("save 0"), worker.lines("save 0")
    worker.move("restore", lambda: task.restore(chosen), to=files, present=some_state(2), state=some_state(0))


def _undo(worker: Worker) -> None:
    task = worker.task
    worker.move("undo", task.undo, to=worker.lines("save 2"), present=some_state(0), state=some_state(2))


def _go_back_with_files(worker: Worker) -> None:
    save_changes(worker)
    task, chosen = worker.task, worker.kept("save 0")
    worker.move("restore", lambda: task.restore(chosen, "files"), to=worker.lines("save 0"), present=task.state)


def _undo_files(worker: Worker) -> None:
    task = worker.task
    worker.move("undo", task.undo, to=worker.lines("save 2"), present=task.state)


def _go_back_and_forth(worker: Worker) -> None:
    _go_back(worker)
    _undo(worker)


def _redo(worker: Worker) -> None:
    """Files that were edited since the undo are saved first."""
    task = worker.task
    edit(worker)
    worker.move("redo", task.redo, to=worker.lines("save 0"), present=some_state(2), state=some_state(0))
    worker.save(task, some_state(5), "after the redo")


def _make_side(worker: Worker) -> None:
    task, chosen = worker.task, worker.kept("save 1")
    stays = [state_digest(some_state(2))]
    fork: dict[str, list[Any]] = {"branch side": [False, True], "state work": stays}
    worker.change("fork", lambda: task.fork(chosen, name="side"), fork)


def _fork(worker: Worker) -> None:
    _make_side(worker)
    side = next(branch.id for branch in worker.task.branches() if branch.name == "side")
    worker.save(worker.store.task(side), some_state(6), "on the side", files="save 1")


def _prepare_switch(worker: Worker) -> None:
    save_changes(worker)
    _make_side(worker)


def _switch(worker: Worker) -> None:
    """There and back, with files that were not saved."""
    task = worker.task
    edit(worker)
    left, entered = captured(tree_lines(worker.sandbox.work)), worker.lines("save 1")
    worker.move("switch", lambda: task.switch("side"), to=entered, present=some_state(2), state=some_state(1))
    worker.save(task, some_state(7), "on the side")
    worker.move("switch back", lambda: task.switch("main"), to=left, present=some_state(7), state=some_state(2))


SCENARIOS = {
    "undo": Scenario(_go_back, _undo),
    "undo files": Scenario(_go_back_with_files, _undo_files),
    "redo": Scenario(_go_back_and_forth, _redo),
    "fork": Scenario(save_changes, _fork),
    "switch": Scenario(_prepare_switch, _switch),
}
