"""G2: the power fails before any call that changes something on disk, on a real file system.

The writer itself shuts ext4 down, so that no call of its own is under way, and dies. Then it is mounted again, its
journal replayed, and the store looked at.

What power loss may take, as docs/reference/format.md says: the beginning of a step, the announcement of a
pack, the witness, caches, copies of files elsewhere; and steps of a collection. None of them is acknowledged as saved.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.campaign import Campaign, Plan, Trial
from tests.faults.pool import Outcome
from tests.faults.prepared_scenario import open_scenario, tried
from tests.faults.scenarios import SCENARIOS
from tests.faults.shim import UNDISTURBED, Fault, no_compiler
from tests.support.volume import mounted, no_volume

PARTS = tuple(name for name, scenario in SCENARIOS.items() if scenario.beside is None)
"""A process beside the scenario may be in the middle of a sync, which the shutdown lets succeed: no disk does that."""


def run(scenario: str, plan: Plan) -> Iterator[Trial]:
    with mounted() as volume, open_scenario(scenario, disk=volume.folder / "disk", path=plan.path) as prepared:
        undisturbed = prepared.run()
        yield Trial(f"{scenario}, undisturbed", [undisturbed.error] if undisturbed.error else prepared.verify())
        points = [Fault("shutdown", at) for at in range(1, prepared.calls() + 1)]
        # The end first, because all that is acknowledged is at stake there.
        for fault in [UNDISTURBED, *plan.choose(points)]:
            prepared.sandbox.reset()
            volume.sync()
            outcome = prepared.run_as_is(fault, device=str(volume.folder))
            if outcome.ended == "done":  # it has come to its end
                volume.cut_power()
            volume.come_back()
            when = f"before call {fault.at}" if fault.at else "at the end"
            yield from tried(
                f"{scenario}, power cut {when}", outcome, _surprise(outcome) + prepared.verify("restarted")
            )


def _surprise(outcome: Outcome) -> list[str]:
    """Where the power is cut by a process that it started, its own files are gone, too: then it may raise anything."""
    return [] if outcome.met and outcome.ended not in ("hung", "refused") else outcome.surprise


CAMPAIGN = Campaign(
    "power",
    "G2",
    "when the power fails before any call, nothing acknowledged is lost",
    PARTS,
    run,
    lambda: no_compiler() or no_volume(),
)
