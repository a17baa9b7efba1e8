"""The harness itself can fail: what was not tried did not go well."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from tests.faults import __main__ as command
from tests.faults.campaign import Campaign, Plan, Trial
from tests.faults.campaigns import CAMPAIGNS, golden
from tests.faults.runner import Job, run_part


def _nothing(part: str, plan: Plan) -> Iterator[Trial]:
    yield from ()


def test_a_part_of_which_nothing_was_tried_has_broken_its_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CAMPAIGNS, "idle", Campaign("idle", "", "", ("all",), _nothing))
    tally = run_part(Job("idle", "all", Plan()))
    assert (tally.trials, tally.violations, tally.found) == (0, 1, ["nothing was tried"])


def test_a_part_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["faults", "kill", "--part", "save nothing"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert "there is no part 'save nothing'; there is create, save inline," in capsys.readouterr().err


def test_a_planted_bug_whose_campaign_cannot_be_run_here_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(CAMPAIGNS, "power", CAMPAIGNS["power"]._replace(obstacle=lambda: "nobody is root"))
    monkeypatch.setattr(sys, "argv", ["faults", "planted", "--part", "commits are not synced"])
    assert command.main() == 1  # nothing was tried
    said = capsys.readouterr().out
    assert "planted, commits are not synced is not run: nobody is root" in said
    assert "| 0; 1 not run: nobody is root | 0 |" in said


def test_golden_stores_that_no_test_has_opened_are_not_fine() -> None:
    (trial,) = golden.run("0.0", Plan())
    assert "the tests ended with 5" in trial.violations[0]
