"""Branches: made, entered, left, taken back and done again."""

from __future__ import annotations

from typing import Any

from tests.faults.acting import Actor, captured
from tests.faults.ledger import state_digest, tree_lines
from tests.faults.scenarios.restoring import edit, save_changes
from tests.faults.scenarios.scenario import Scenario, some_state


def _go_back(actor: Actor) -> None:
    save_changes(actor)
    task, chosen, files = actor.task, actor.kept("save 0"), actor.lines("save 0")
    actor.move("restore", lambda: task.restore(chosen), to=files, present=some_state(2), state=some_state(0))


def _undo(actor: Actor) -> None:
    task = actor.task
    actor.move("undo", task.undo, to=actor.lines("save 2"), present=some_state(0), state=some_state(2))


def _go_back_and_forth(actor: Actor) -> None:
    _go_back(actor)
    _undo(actor)


def _redo(actor: Actor) -> None:
    """Files that were edited since the undo are saved first."""
    task = actor.task
    edit(actor)
    actor.move("redo", task.redo, to=actor.lines("save 0"), present=some_state(2), state=some_state(0))
    actor.save(task, some_state(5), "after the redo")


def _make_side(actor: Actor) -> None:
    task, chosen = actor.task, actor.kept("save 1")
    stays = [state_digest(some_state(2))]
    fork: dict[str, list[Any]] = {"branch side": [False, True], "state work": stays}
    actor.change("fork", lambda: task.fork(chosen, name="side"), fork)


def _fork(actor: Actor) -> None:
    _make_side(actor)
    side = next(branch.id for branch in actor.task.branches() if branch.name == "side")
    actor.save(actor.store.task(side), some_state(6), "on the side", files=False)


def _prepare_switch(actor: Actor) -> None:
    save_changes(actor)
    _make_side(actor)


def _switch(actor: Actor) -> None:
    """There and back, with files that were not saved."""
    task = actor.task
    edit(actor)
    left, entered = captured(tree_lines(actor.world.work)), actor.lines("save 1")
    actor.move("switch", lambda: task.switch("side"), to=entered, present=some_state(2), state=some_state(1))
    actor.save(task, some_state(7), "on the side")
    actor.move("switch back", lambda: task.switch("main"), to=left, present=some_state(7), state=some_state(2))


SCENARIOS = {
    "undo": Scenario(_go_back, _undo),
    "redo": Scenario(_go_back_and_forth, _redo),
    "fork": Scenario(save_changes, _fork),
    "switch": Scenario(_prepare_switch, _switch),
}
