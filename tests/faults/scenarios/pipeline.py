"""Pipelines: every stage is recorded once, and from its commit on the one that follows is open."""

from __future__ import annotations

from typing import Any

from tests.faults.facts import STAGED
from tests.faults.ledger import Content, state_digest
from tests.faults.scenarios.scenario import Scenario, some_state
from tests.faults.scenarios.session import LONG
from tests.faults.worker import Worker

from lastgood import Pipeline, StageContext, stage

STAGES = ("fetch", "clean", "train", "report")


def _begin(worker: Worker) -> None:
    worker.save(worker.store.task(STAGED), some_state(0), "staged 0", files=False)


def _run(worker: Worker) -> None:
    worker.doing = "run"
    states = [some_state(number) for number in range(len(STAGES) + 1)]
    for state in states:
        worker.ledger.know(Content(state_digest(state), None))

    def expect(*done: int) -> None:
        worker.ledger.expect(f"state {STAGED}", [state_digest(states[number]) for number in done])
        worker.ledger.expect("stages", [standing for number in done for standing in _standings(number)])

    def work(ctx: StageContext) -> None:
        ctx.state = states[ctx.index + 1]
        expect(ctx.index, ctx.index + 1)

    expect(0)
    Pipeline([stage(name=name)(work) for name in STAGES]).run(worker.store.task(STAGED), signals=False, lease=LONG)
    expect(len(STAGES))


def _standings(done: int) -> list[Any]:
    """What may be in flight after so many stages. The first one begins by itself, without waiting for the disk."""
    following = [done, list(STAGES[done : done + 1])]
    return [following] if done else [following, [0, []]]


SCENARIOS = {"run a pipeline": Scenario(_begin, _run)}
