"""How a play ended is told apart: killed as it was meant to be, or in some other way; at its fault, or before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.shim import Fault, no_compiler
from tests.faults.stage import Stage, open_stage, tried
from tests.faults.troupe import Outcome, Troupe

NEVER = 1 << 40


@pytest.fixture
def stage() -> Iterator[Stage]:
    if why := no_compiler():
        pytest.skip(why)
    with open_stage("save inline") as opened:
        yield opened


def test_a_play_that_is_killed_at_its_fault_is_a_trial_of_it(stage: Stage) -> None:
    killed = stage.play(Fault("kill", 3))
    assert (killed.ended, killed.met, killed.surprise) == ("killed", True, [])
    assert len(list(tried("killed", killed, []))) == 1


def test_a_play_that_ends_before_its_fault_is_no_trial_of_it_unless_something_is_wrong(stage: Stage) -> None:
    done = stage.play(Fault("kill", NEVER))
    assert (done.ended, done.met) == ("done", False)
    assert list(tried("done", done, [])) == []
    assert len(list(tried("done", done, ["I1"]))) == 1


def test_power_that_could_not_be_cut_is_a_surprise(stage: Stage) -> None:
    refused = stage.play(Fault("shutdown", 3), device="/proc")
    assert refused.ended == "refused"
    assert refused.surprise


def test_an_actor_that_dies_of_another_signal_is_a_surprise(tmp_path: Path) -> None:
    if why := no_compiler():
        pytest.skip(why)
    with Troupe(tmp_path) as troupe:
        died: Outcome = troupe.run("os:abort")
    assert died.ended == "raised"
    assert died.surprise
