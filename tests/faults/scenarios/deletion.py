"""Deleting and naming: checkpoints, branches, tasks, tags."""

from __future__ import annotations

from typing import Any

from tests.faults.ledger import state_digest
from tests.faults.scenarios.scenario import Scenario, save_some, some_state
from tests.faults.worker import Worker


def _save_more(worker: Worker) -> None:
    save_some(worker)
    task = worker.store.task("other")
    for number in range(4):
        worker.save(task, some_state(10 + number), f"other {number}", files=False)


def _delete(worker: Worker) -> None:
    store, first, second, third = worker.store, *(worker.kept(f"other {number}") for number in range(3))
    worker.hide("delete", [first], lambda: store.delete_checkpoint(first))
    worker.hide("delete", [second], lambda: store.delete_checkpoint(second))
    worker.bring_back("undelete", [first], lambda: store.undelete_checkpoint(first))
    worker.remove("purge", [second], lambda: store.purge_checkpoint(second))
    worker.remove("purge", [third], lambda: store.purge_checkpoint(third))
    worker.save(store.task("other"), some_state(20), "after the purge", files=False)


def _delete_old(worker: Worker) -> None:
    store, old = worker.store, [worker.kept(f"other {number}") for number in range(2)]
    worker.hide("delete old", old, lambda: store.delete_old_checkpoints("other", 2))


def _make_branch(worker: Worker) -> None:
    save_some(worker)
    task = worker.task
    side = task.fork(worker.kept("save 1"), name="side")
    for number in range(2):
        worker.save(side, some_state(10 + number), f"side {number}", files="save 1")
    worker.ledger.expect("branch side", [True])


def _delete_branch(worker: Worker) -> None:
    task, ids = worker.task, [worker.kept(f"side {number}") for number in range(2)]
    deleted = {"branch side": [True, False]}
    worker.hide(
        "delete branch", ids, lambda: worker.change("delete branch", lambda: task.delete_branch("side"), deleted)
    )
    worker.save(task, some_state(5), "after the branch")


def _delete_task(worker: Worker) -> None:
    store, ids = worker.store, [worker.kept(f"other {number}") for number in range(4)]
    gone: dict[str, list[Any]] = {"task other": [True, False], "state other": [state_digest(some_state(13)), None]}
    worker.remove("delete task", ids, lambda: worker.change("delete", lambda: store.delete_task("other"), gone))
    worker.change("begin anew", lambda: _begin_anew(worker), {"task other": [False, True]})


def _begin_anew(worker: Worker) -> None:
    worker.save(worker.store.task("other"), some_state(30), "other anew", files=False)


def _tag(worker: Worker) -> None:
    store, first, second = worker.store, worker.kept("save 0"), worker.kept("save 1")
    worker.change("tag", lambda: store.tag(first, "green"), {"tag green": [None, first]})
    worker.change("tag", lambda: store.tag(second, "red"), {"tag red": [None, second]})
    worker.change("move", lambda: store.tag(second, "green", move=True), {"tag green": [first, second]})
    worker.change("untag", lambda: store.untag(second, "red"), {"tag red": [second, None]})


SCENARIOS = {
    "delete": Scenario(_save_more, _delete),
    "delete old": Scenario(_save_more, _delete_old),
    "delete branch": Scenario(_make_branch, _delete_branch),
    "delete task": Scenario(_save_more, _delete_task),
    "tag": Scenario(save_some, _tag),
}
