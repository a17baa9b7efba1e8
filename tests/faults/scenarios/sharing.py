"""Two processes at once: when one of them dies, the other goes on, and nothing that it was told is lost."""

from __future__ import annotations

from tests.faults.acting import Actor, write_files
from tests.faults.ledger import Content, state_digest
from tests.faults.scenarios.collecting import in_small_steps
from tests.faults.scenarios.scenario import Scenario, save_some, some_state


def _save(actor: Actor) -> None:
    in_small_steps()
    task = actor.task
    for number in range(3, 5):
        write_files(actor.work, [f"many/{one}" for one in range(6)], seed=number, size=300)
        actor.save(task, some_state(number), f"save {number}")
        _append(actor, f"mine {number}")


def _save_beside(actor: Actor, number: int) -> None:
    in_small_steps()
    write_files(actor.work, [f"{one}" for one in range(number % 3, 6)], seed=100 + number, size=300)
    actor.save(actor.task, some_state(number), f"beside {number}")
    _append(actor, f"theirs {number}")


def _collect_beside(actor: Actor, number: int) -> None:
    _save_beside(actor, number)
    actor.do("collect", lambda: actor.store.collect(grace=0))


def _append(actor: Actor, message: str) -> None:
    """To a task that both write to, on top of whatever is there."""
    state = {"said": message}
    task = actor.store.task("shared")
    actor.make(message, Content(state_digest(state), None), lambda: task.append(state, message=message))


SCENARIOS = {
    "save beside another": Scenario(save_some, _save, _save_beside),
    "save beside a collector": Scenario(save_some, _save, _collect_beside),
}
