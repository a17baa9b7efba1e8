"""The record of how far a pipeline has come, its rules (C1, C4), and how long to wait before trying again."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

import lastgood
from lastgood import InvalidError
from lastgood.model.checkpoint import check_metadata
from lastgood.types import Progress
from lastgood.work.progress import FIELD, MAX_FAILURES, Missing, broken_rule, read_progress

NOW, SECOND = 1_000_000_000_000, 1_000_000
names = st.lists(st.text("abcdefgh-é ", min_size=1, max_size=8), min_size=1, max_size=12, unique=True).map(tuple)


def record(plan: tuple[str, ...], done: int, **more: Any) -> Progress:
    about = {"pipeline": "p", "run": "r", "at_us": NOW, "plan": plan, "completed": plan[:done], "last": done - 1}
    return Progress(**{**about, **more})


def rule(progress: Progress | Missing, plan: tuple[str, ...], ttl: float | None = None) -> str | None:
    return broken_rule(progress, plan, pipeline="p", ttl=ttl, at=NOW)


@given(names, st.data())
def test_every_prefix_of_the_plan_is_valid_and_the_stages_ahead_may_change(plan: Any, data: Any) -> None:
    """C4: none completed, too."""
    done = data.draw(st.integers(0, len(plan)))
    ahead = data.draw(names)
    assert rule(record(plan, done), plan) is None
    now = plan[:done] + tuple(name for name in ahead if name not in plan[:done])
    assert rule(record(plan, done), now) is None


@given(names, st.data())
def test_each_way_in_which_a_record_does_not_fit_is_named(plan: Any, data: Any) -> None:
    """C4: index, number of names, names and their order, age; and whose it is."""
    done = data.draw(st.integers(1, len(plan)))
    beyond = data.draw(st.one_of(st.integers(max_value=-2), st.integers(min_value=len(plan))))
    assert "index" in (rule(record(plan, done, last=beyond), plan) or "")
    fewer = data.draw(st.integers(0, done - 1))
    assert "names stand for" in (rule(record(plan, done, completed=plan[:fewer]), plan) or "")
    assert "not in the plan" in (rule(record(plan, done), ("other", *plan[1:])) or "")
    if done > 1:
        swapped = (plan[1], plan[0], *plan[2:])
        assert "at another place" in (rule(record(plan, done), swapped) or "")
    ttl = data.draw(st.integers(1, 1000))
    old = record(plan, done, at_us=NOW - ttl * SECOND)
    assert rule(old, plan, ttl) is None
    assert "older" in (rule(msgspec.structs.replace(old, at_us=old.at_us - 1), plan, ttl) or "")
    assert "another pipeline" in (rule(record(plan, done, pipeline="q"), plan) or "")
    assert "cannot be read" in (rule("unreadable", plan) or "")
    assert "purged" in (rule("purged", plan) or "")


@given(names, st.integers(0, 30))
def test_a_record_comes_back_from_the_metadata_of_a_checkpoint(plan: Any, failures: int) -> None:
    """C1. It is bounded, and plain."""
    progress = record(plan, 0)
    for number in range(failures):
        progress = progress.failing("x" * 5000, number, stage=plan[0], final=False)
    for _ in plan:
        progress = progress.completing(0.5)
    assert len(progress.failures) == min(failures, MAX_FAILURES)
    assert (progress.completed, progress.last, progress.next) == (plan, len(plan) - 1, None)
    metadata = progress.as_metadata()
    check_metadata(metadata)
    checkpoint: Any = msgspec.convert({"metadata": metadata, "version": 7}, _Found)
    assert read_progress(checkpoint) == msgspec.structs.replace(progress, version=7)


class _Found(msgspec.Struct):
    metadata: dict[str, Any]
    version: int


def test_the_longest_plan_finds_room_in_a_checkpoint() -> None:
    plan = tuple(f"{number:03}".ljust(255, "x") for number in range(1000))
    progress = record(plan, 0)
    for _ in range(20):
        progress = progress.failing("é" * 5000, 1, stage=plan[0], final=False)
    for _ in plan:
        progress = progress.completing(123456.123456)
    check_metadata(progress.as_metadata())


@pytest.mark.parametrize("broken", [None, 3, [], {"pipeline": 1}, {"pipeline": "p", "run": "r", "last": "x"}])
def test_a_record_that_cannot_be_read_is_none(broken: Any) -> None:
    assert read_progress(msgspec.convert({"metadata": {FIELD: broken}, "version": 1}, _Found)) is None  # type: ignore[arg-type]


@given(st.floats(0, 1e6), st.integers(1, 10_000), st.floats(0, 1))
def test_waits_double_up_to_a_minute_and_chance_only_shortens_them(
    backoff: float, failures: int, chance: float
) -> None:
    waiting = lastgood.stage(name="s", backoff=backoff)(print)
    whole = waiting.delay(failures, 0.0)
    assert waiting.delay(1, 0.0) == backoff <= whole <= max(backoff, 60)
    assert whole <= waiting.delay(failures + 1, 0.0)
    assert whole / 2 - 1e-6 <= waiting.delay(failures, chance) <= whole


@pytest.mark.parametrize("wrong", [-1, "1", True, None, float("nan")])
def test_a_backoff_that_cannot_be_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidError, match="backoff"):
        lastgood.stage(name="s", backoff=wrong)(print)
