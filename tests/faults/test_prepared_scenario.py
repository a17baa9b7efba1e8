"""How a run of a scenario ended: killed as it was meant to be, or in some other way; at its fault, or before it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.ledger import read_account
from tests.faults.pool import Outcome, WorkerPool
from tests.faults.prepared_scenario import PreparedScenario, open_scenario, tried
from tests.faults.shim import Fault, no_compiler
from tests.faults.trace import Call, Op, read_trace

NEVER = 1 << 40


@pytest.fixture
def prepared() -> Iterator[PreparedScenario]:
    if why := no_compiler():
        pytest.skip(why)
    with open_scenario("save inline") as opened:
        yield opened


def test_a_run_that_is_killed_at_its_fault_is_a_trial_of_it(prepared: PreparedScenario) -> None:
    killed = prepared.run(Fault("kill", 3))
    assert (killed.ended, killed.met, killed.surprise) == ("killed", True, [])
    assert len(list(tried("killed", killed, []))) == 1


def test_a_run_that_ends_before_its_fault_is_no_trial_of_it_unless_something_is_wrong(
    prepared: PreparedScenario,
) -> None:
    done = prepared.run(Fault("kill", NEVER))
    assert (done.ended, done.met) == ("done", False)
    assert list(tried("done", done, [])) == []
    assert len(list(tried("done", done, ["I1"]))) == 1


def test_power_that_could_not_be_cut_is_a_surprise(prepared: PreparedScenario) -> None:
    refused = prepared.run(Fault("shutdown", 3), device="/proc")
    assert refused.ended == "refused"
    assert refused.surprise


def test_an_actor_that_dies_of_another_signal_is_a_surprise(tmp_path: Path) -> None:
    if why := no_compiler():
        pytest.skip(why)
    with WorkerPool(tmp_path) as pool:
        died: Outcome = pool.run("os:abort")
    assert died.ended == "raised"
    assert died.surprise


def test_what_a_helper_process_does_is_counted_and_disturbed() -> None:
    if why := no_compiler():
        pytest.skip(why)
    with open_scenario("save in workers") as prepared:
        assert prepared.run(trace=True).ended == "done"
        first, *others = calls = _calls(prepared)
        assert len(calls) == prepared.calls()
        theirs = next(call.number for call in others if call.pid != first.pid)
        assert prepared.run(Fault("fail", theirs, errno.EIO), trace=True).ended == "done"
        first, *others = _calls(prepared)
        (failed,) = [call for call in others if call.error == errno.EIO]
        assert failed.number == theirs
        assert failed.pid != first.pid
        assert not Path(f"/proc/{failed.pid}").exists()
        assert [said["code"] for said in read_account(prepared.sandbox.ledger).errors] == ["unavailable"]


def _calls(prepared: PreparedScenario) -> list[Call]:
    return [call for call in read_trace(prepared.sandbox.trace) if call.op != Op.MARK]
