"""G4: a second crash, while the program that was started again after the first one recovers.

For each call of a scenario one; at which moment of the recovery is drawn by the seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.faults.campaign import Campaign, Plan, Trial
from tests.faults.prepared_scenario import open_scenario, tried
from tests.faults.scenarios import SCENARIOS
from tests.faults.shim import Fault, no_compiler


def run(scenario: str, plan: Plan) -> Iterator[Trial]:
    dice = random.Random(plan.seed)
    with open_scenario(scenario, path=plan.path) as prepared:
        prepared.run()
        for at in plan.choose(range(1, prepared.calls() + 1)):
            first = Fault(dice.choice(["kill", "tear"]), at)
            crashed = prepared.run(first)
            prepared.sandbox.keep("crashed")
            undisturbed = prepared.recover()
            found = crashed.surprise + undisturbed.surprise + prepared.verify()
            yield from tried(f"{scenario}, {first}, started again", crashed, found)
            if crashed.met and (calls := prepared.calls()):
                second = Fault(dice.choice(["kill", "tear"]), dice.randint(1, calls))
                outcome = prepared.recover(second)
                yield from tried(f"{scenario}, {first}, then {second}", outcome, outcome.surprise + prepared.verify())


CAMPAIGN = Campaign(
    "recovery", "G4", "a second crash while recovering costs nothing either", tuple(SCENARIOS), run, no_compiler
)
