"""G1: a process that dies before, or in the middle of, any call that changes something on disk."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.campaign import Campaign, Plan, Trial
from tests.faults.scenarios import SCENARIOS
from tests.faults.shim import Fault, Kind, no_compiler
from tests.faults.stage import open_stage, tried

_KINDS: tuple[Kind, ...] = ("kill", "tear")


def run(scenario: str, plan: Plan) -> Iterator[Trial]:
    with open_stage(scenario, path=plan.path) as stage:
        undisturbed = stage.play()
        yield Trial(f"{scenario}, undisturbed", [undisturbed.error] if undisturbed.error else stage.verify())
        points = [Fault(kind, at) for kind in _KINDS for at in range(1, stage.calls() + 1)]
        for fault in plan.choose(points):
            outcome = stage.play(fault)
            yield from tried(f"{scenario}, {fault}", outcome, outcome.surprise + stage.verify())


CAMPAIGN = Campaign(
    "kill", "G1", "killed at any call, clean or torn, nothing acknowledged is lost", tuple(SCENARIOS), run, no_compiler
)
