"""G5: in which order a store writes, read from the calls of one undisturbed play."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.campaign import Campaign, Plan, Trial
from tests.faults.rules import RULES, Place
from tests.faults.scenarios import SCENARIOS
from tests.faults.shim import no_compiler
from tests.faults.stage import open_stage
from tests.faults.trace import read_trace


def run(scenario: str, plan: Plan) -> Iterator[Trial]:
    with open_stage(scenario, path=plan.path) as stage:
        played = stage.play(trace=True)
        if played.error:
            yield Trial(f"{scenario}, undisturbed", [played.error])
            return
        calls, place = read_trace(stage.world.trace), Place(str(stage.world.store), str(stage.world.work))
        for rule in RULES:
            yield Trial(f"{scenario}, {rule.__name__.replace('_', ' ')}", list(rule(calls, place)))


CAMPAIGN = Campaign(
    "ordering",
    "G5",
    "what is relied on is synced before it is relied on",
    tuple(SCENARIOS),
    run,
    no_compiler,
)
