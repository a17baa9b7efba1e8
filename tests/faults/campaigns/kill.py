"""G1: a process that dies before, or in the middle of, any call that changes something on disk."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.campaign import Campaign, Plan, Trial
from tests.faults.prepared_scenario import open_scenario, tried
from tests.faults.scenarios import SCENARIOS
from tests.faults.shim import Fault, Kind, no_compiler

_KINDS: tuple[Kind, ...] = ("kill", "tear")


def run(scenario: str, plan: Plan) -> Iterator[Trial]:
    with open_scenario(scenario, path=plan.path) as prepared:
        undisturbed = prepared.run()
        yield Trial(f"{scenario}, undisturbed", [undisturbed.error] if undisturbed.error else prepared.verify())
        points = [Fault(kind, at) for kind in _KINDS for at in range(1, prepared.calls() + 1)]
        for fault in plan.choose(points):
            outcome = prepared.run(fault)
            yield from tried(f"{scenario}, {fault}", outcome, outcome.surprise + prepared.verify())


CAMPAIGN = Campaign(
    "kill", "G1", "killed at any call, clean or torn, nothing acknowledged is lost", tuple(SCENARIOS), run, no_compiler
)
