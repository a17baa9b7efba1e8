"""A sample of every campaign: a few points of a few parts, drawn anew in each run by a seed that is told.

`./dev faults` runs all of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.campaign import Plan
from tests.faults.campaigns import CAMPAIGNS
from tests.faults.planted import BUGS, Bug, plant

SEED = int(os.environ["LASTGOOD_FAULTS_SEED"])
POINTS = 5
PARTS = {"golden": 0, "full": 1, "machine": 1, "planted": 1}
"""Of others three. Golden stores have tests of their own."""


def _sample() -> Iterator[tuple[str, str]]:
    dice = random.Random(SEED)
    for name, campaign in CAMPAIGNS.items():
        for part in dice.sample(campaign.parts, min(PARTS.get(name, 3), len(campaign.parts))):
            yield name, part


@pytest.mark.parametrize(("name", "part"), list(_sample()))
def test_the_promise_holds_in_a_sample_of(name: str, part: str) -> None:
    """I1 to I4, G1 to G13: the campaign says which."""
    campaign = CAMPAIGNS[name]
    if why := campaign.obstacle() or campaign.obstacle_to(part):
        pytest.skip(f"{name}: {why}")
    tried = []
    for trial in campaign.run(part, Plan(SEED, POINTS)):
        assert not trial.violations, f"{trial.name}: {trial.violations} (LASTGOOD_FAULTS_SEED={SEED})"
        tried.append(trial.name)
    assert tried, "nothing was tried"


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_every_bug_can_still_be_planted(bug: Bug, tmp_path: Path) -> None:
    """G13: what it changes is in the code; whether it is noticed, `./dev faults planted` finds out."""
    assert plant(bug, tmp_path) == tmp_path
