"""Deleting and naming: checkpoints, branches, tasks, tags."""

from __future__ import annotations

from typing import Any

from tests.faults.acting import Actor
from tests.faults.ledger import state_digest
from tests.faults.scenarios.scenario import Scenario, save_some, some_state


def _save_more(actor: Actor) -> None:
    save_some(actor)
    task = actor.store.task("other")
    for number in range(4):
        actor.save(task, some_state(10 + number), f"other {number}", files=False)


def _delete(actor: Actor) -> None:
    store, first, second, third = actor.store, *(actor.kept(f"other {number}") for number in range(3))
    actor.hide("delete", [first], lambda: store.delete_checkpoint(first))
    actor.hide("delete", [second], lambda: store.delete_checkpoint(second))
    actor.bring_back("undelete", [first], lambda: store.undelete_checkpoint(first))
    actor.remove("purge", [second], lambda: store.purge_checkpoint(second))
    actor.remove("purge", [third], lambda: store.purge_checkpoint(third))
    actor.save(store.task("other"), some_state(20), "after the purge", files=False)


def _delete_old(actor: Actor) -> None:
    store, old = actor.store, [actor.kept(f"other {number}") for number in range(2)]
    actor.hide("delete old", old, lambda: store.delete_old_checkpoints("other", 2))


def _make_branch(actor: Actor) -> None:
    save_some(actor)
    task = actor.task
    side = task.fork(actor.kept("save 1"), name="side")
    for number in range(2):
        actor.save(side, some_state(10 + number), f"side {number}", files=False)
    actor.ledger.expect("branch side", [True])


def _delete_branch(actor: Actor) -> None:
    task, ids = actor.task, [actor.kept(f"side {number}") for number in range(2)]
    deleted = {"branch side": [True, False]}
    actor.hide("delete branch", ids, lambda: actor.change("delete branch", lambda: task.delete_branch("side"), deleted))
    actor.save(task, some_state(5), "after the branch")


def _delete_task(actor: Actor) -> None:
    store, ids = actor.store, [actor.kept(f"other {number}") for number in range(4)]
    gone: dict[str, list[Any]] = {"task other": [True, False], "state other": [state_digest(some_state(13)), None]}
    actor.remove("delete task", ids, lambda: actor.change("delete", lambda: store.delete_task("other"), gone))
    actor.change("begin anew", lambda: _begin_anew(actor), {"task other": [False, True]})


def _begin_anew(actor: Actor) -> None:
    actor.save(actor.store.task("other"), some_state(30), "other anew", files=False)


def _tag(actor: Actor) -> None:
    store, first, second = actor.store, actor.kept("save 0"), actor.kept("save 1")
    actor.change("tag", lambda: store.tag(first, "green"), {"tag green": [None, first]})
    actor.change("tag", lambda: store.tag(second, "red"), {"tag red": [None, second]})
    actor.change("move", lambda: store.tag(second, "green", move=True), {"tag green": [first, second]})
    actor.change("untag", lambda: store.untag(second, "red"), {"tag red": [second, None]})


SCENARIOS = {
    "delete": Scenario(_save_more, _delete),
    "delete old": Scenario(_save_more, _delete_old),
    "delete branch": Scenario(_make_branch, _delete_branch),
    "delete task": Scenario(_save_more, _delete_task),
    "tag": Scenario(save_some, _tag),
}
