"""G5: in which order a store writes, read from the calls of one undisturbed run."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.campaign import Campaign, Plan, Trial
from tests.faults.prepared_scenario import open_scenario
from tests.faults.rules import RULES, Place
from tests.faults.scenarios import SCENARIOS
from tests.faults.shim import no_compiler
from tests.faults.trace import read_trace

PARTS = tuple(name for name in SCENARIOS if name != "spool")
"""The rules are about the log of the catalog; whether that of the spool is synced in time, `reorder` finds out."""


def run(scenario: str, plan: Plan) -> Iterator[Trial]:
    with open_scenario(scenario, path=plan.path) as prepared:
        outcome = prepared.run(trace=True)
        if outcome.error:
            yield Trial(f"{scenario}, undisturbed", [outcome.error])
            return
        calls, place = (
            read_trace(prepared.sandbox.trace),
            Place(str(prepared.sandbox.store), str(prepared.sandbox.work)),
        )
        for rule in RULES:
            yield Trial(f"{scenario}, {rule.__name__.replace('_', ' ')}", list(rule(calls, place)))


CAMPAIGN = Campaign(
    "ordering",
    "G5",
    "what is relied on is synced before it is relied on",
    PARTS,
    run,
    no_compiler,
)
