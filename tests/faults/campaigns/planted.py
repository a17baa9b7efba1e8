"""G13: the harness can fail. Each planted bug is noticed by the campaign that is there for it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.faults.campaign import Campaign, Plan, Trial
from tests.faults.planted import BUGS, plant

_BY_NAME = {bug.name: bug for bug in BUGS}


def run(name: str, plan: Plan) -> Iterator[Trial]:
    from tests.faults.campaigns import CAMPAIGNS

    bug = _BY_NAME[name]
    with tempfile.TemporaryDirectory(prefix="lastgood-planted-") as folder:
        path = plant(bug, Path(folder))
        trials = CAMPAIGNS[bug.campaign].run(bug.part, Plan(plan.seed, bug.points, str(path)))
        noticed = next((number for number, trial in enumerate(trials, 1) if trial.violations), None)
    where = f"{bug.campaign}, {bug.part}"
    if noticed is None:
        yield Trial(name, [f"{where} did not notice"])
    else:
        yield Trial(f"{name}: noticed by {where} at trial {noticed}")


def _obstacle_to(name: str) -> str | None:
    """Whoever must notice it cannot be run here."""
    from tests.faults.campaigns import CAMPAIGNS

    return CAMPAIGNS[_BY_NAME[name].campaign].obstacle()


CAMPAIGN = Campaign("planted", "G13", "each planted bug is noticed", tuple(_BY_NAME), run, obstacle_to=_obstacle_to)
