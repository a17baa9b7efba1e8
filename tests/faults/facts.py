"""What a store can be asked besides its checkpoints: a question is a word and what it is about, as in `tag green`."""

from __future__ import annotations

from typing import Any

from tests.faults.ledger import state_digest

import lastgood

TASK, STEERED, STAGED, SPOOLED = "work", "steered", "staged", "spooled"
REQUESTS = {
    "guide": "guided",
    "edit": "edited",
    "add_rounds": "rounds_added",
    "answer": "answered",
    "pause": "paused",
    "resume": "resumed",
    "restore": "restored",
    "stop": "stopped",
}
"""What people ask of the task `steered`, and the type of the checkpoint that does it."""


def ask(store: lastgood.Store, fact: str) -> Any:
    """The store's answer, as plain as a ledger holds it."""
    question, _, about = fact.partition(" ")
    return _QUESTIONS[question](store, about)


def _state(store: lastgood.Store, task: str) -> str | None:
    """What a task goes on from."""
    head = store.task(task).head
    return None if head is None else state_digest(head.state)


def _tag(store: lastgood.Store, name: str) -> str | None:
    """The id of the checkpoint that bears it."""
    found = store.tags(TASK).get(name)
    return None if found is None else found.id


def _branch(store: lastgood.Store, name: str) -> bool:
    """Whether there is one of this name."""
    return name in {branch.name for branch in store.branches(TASK) if not branch.deleted}


def _task(store: lastgood.Store, id: str) -> bool:
    return id in {task.id for task in store.tasks()}


def _step(store: lastgood.Store, name: str) -> bool:
    """Whether it is open."""
    return name in {step.name for step in store.open_steps(TASK)}


def _request(store: lastgood.Store, kind: str) -> list[Any]:
    """What became of the request of this id, which is its kind; how often it was done."""
    found = next(iter(store._engine.catalog.requests(store.user, id=kind)), None)
    done = [move for move in store.list_checkpoints(STEERED, 1000) if move.type == REQUESTS[kind]]
    if kind == "resume":  # work that fails while it waits for an answer goes on by itself to say so
        done = [move for move in done if store.find_checkpoint(move.parent_id or "").control_state == "paused"]
    status: Any = None if found is None else found.status
    head = store.task(STEERED).head
    if status == "refused" and head is not None and head.control_state == "failed":
        status = "late"  # work that fails comes to nothing more, and says so
    return [status, len(done)]


def _stages(store: lastgood.Store, _: str) -> list[Any]:
    """How many are recorded as done, and which are open."""
    done = store.list_checkpoints(STAGED, 1000, "stage_succeeded")
    return [len(done), [step.name for step in store.open_steps(STAGED)]]


_QUESTIONS = {
    "state": _state,
    "tag": _tag,
    "branch": _branch,
    "task": _task,
    "step": _step,
    "request": _request,
    "stages": _stages,
}
