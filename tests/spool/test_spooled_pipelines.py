"""Pipelines whose store is away for a while (C10, A8): they go on, and no stage is forgotten or run twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.outages import open_store

import lastgood
from lastgood import Pipeline, StageContext, StageError, stage


def test_stages_that_end_while_the_store_is_away_are_spooled_and_not_run_again(tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    ran: list[str] = []

    def work(ctx: StageContext) -> None:
        ran.append(ctx.stage)
        ctx.state.setdefault("done", []).append(ctx.stage)
        if ran == ["a", "b"]:
            place.rename(elsewhere)
        if ran == ["a", "b", "c"]:
            raise OSError("and then this")

    pipeline = Pipeline([stage(name=name)(work) for name in "abcd"])
    with lastgood.open(place, user="tester", spool=tmp_path / "spool") as store:
        with pytest.raises(StageError):
            pipeline.run(store.task("work"))
        progress = store.task("work").progress()
        assert progress is not None
        assert progress.completed == ("a", "b")
    elsewhere.rename(place)
    with lastgood.open(place, user="tester", spool=tmp_path / "spool") as store:
        lease = store.task("work").control.lease
        assert lease is not None
        store._engine.catalog.release_lease(lease.token)  # it could not be released while the store was away
        assert pipeline.run(store.task("work")).state == {"done": ["a", "b", "c", "d"]}
        assert ran == ["a", "b", "c", "c", "d"]
        assert len(store.branches("work")) == 1


def test_a_stage_that_began_while_the_store_was_away_may_end_when_it_is_back(tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "store", tmp_path / "elsewhere"

    def first(ctx: StageContext) -> None:
        place.rename(elsewhere)

    def second(ctx: StageContext) -> None:
        ctx.state["second"] = ctx.attempt
        elsewhere.rename(place)
        assert store.replay().stored == 1

    with open_store(place, spool=tmp_path / "spool") as store:
        outcome = Pipeline([first, second]).run(store.task("work"))
        assert (outcome.state, outcome.checkpoint.status) == ({"second": 1}, "stored")
        assert store.open_steps("work") == []


def test_what_is_lost_on_purpose_is_not_forgotten_by_the_stages_that_follow(tmp_path: Path) -> None:
    """on_failure="continue": the work goes on, and its next checkpoint has all of it."""
    place = tmp_path / "store"
    alerts: list[lastgood.types.Alert] = []

    def first(ctx: StageContext) -> None:
        ctx.state["first"] = True
        ctx.set_artifact("product", "of the first")
        place.rename(tmp_path / "elsewhere")

    def second(ctx: StageContext) -> None:
        assert ctx.task.head is not None
        assert ctx.task.head.type == "started"  # the first one was not stored
        assert ctx.artifact("product") == "of the first"

    def third(ctx: StageContext) -> None:
        ctx.state["third"] = dict(ctx.state)

    def bring_back(event: lastgood.types.ProgressEvent) -> None:
        if (event.kind, event.stage) == ("succeeded", "second"):
            (tmp_path / "elsewhere").rename(place)
            store.replay()

    spool: dict[str, Any] = {"spool": tmp_path / "spool", "spool_bytes": 1}
    with lastgood.open(place, user="tester", on_failure="continue", on_alert=alerts.append, **spool) as store:
        outcome = Pipeline([first, second, third]).run(store.task("work"), on_progress=bring_back)
        assert outcome.state == {"first": True, "third": {"first": True}}
        assert [one["content"] for one in outcome.checkpoint.artifacts] == ["of the first"]
        assert alerts
