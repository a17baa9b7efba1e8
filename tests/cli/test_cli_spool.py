"""`lastgood spool`, and what other commands say while the store is away (C10, A16)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run


@pytest.fixture
def away(three: Path) -> Path:
    """A task whose newest checkpoint is spooled, and whose store is gone; where to bring it back from."""
    import lastgood

    elsewhere = three / "elsewhere"
    with lastgood.open(three / ".lastgood") as store:
        task = store.task("work")
        (three / ".lastgood").rename(elsewhere)
        assert task.save({"n": 4}, message="number 4").status == "spooled"
    return elsewhere


def test_what_waits_is_listed_and_brought_when_the_store_is_back(
    run: Run, data: Callable[..., Any], three: Path, away: Path
) -> None:
    listed = data("spool")
    assert (listed["depth"], listed["away"]) == (1, "the store is not there")
    assert [each["task_id"] for each in listed["checkpoints"]] == ["work"]
    assert run("spool", "--replay", code=6).stderr.startswith("error: the store is away")
    assert "spooled" in run("save", "--state", "-", input='{"n": 5}').stdout
    away.rename(three / ".lastgood")
    replayed = data("spool", "--replay")
    assert replayed["depth"] == 0
    shown = [each["sequence"] for each in data("log")["checkpoints"]]
    assert shown == [5, 4, 3, 2, 1]
    assert "nothing is spooled" in run("spool").stderr


def test_status_says_that_the_store_is_away_and_what_waits(run: Run, data: Callable[..., Any], away: Path) -> None:
    """A16"""
    found = data("status")
    assert (found["exists"], found["spool"]["depth"], found["head"]["status"]) == (False, 1, "spooled")
    assert found["advice"][0].startswith("the store is away")
    assert "1 checkpoint waits for it" in run("status").stdout
    assert run("log", code=6).stdout == ""
    assert not (away.parent / ".lastgood").exists()


def test_the_config_says_where_they_wait(run: Run, data: Callable[..., Any], three: Path) -> None:
    """Relative to its own folder, and seen by whoever looks from below."""
    import lastgood

    (three / "lastgood.toml").write_text('store = ".lastgood"\nspool = "waiting"\nspool_bytes = 5_000_000\n')
    with lastgood.open() as store:
        task = store.task("work")
        (three / ".lastgood").rename(three / "elsewhere")
        assert task.save({"n": 4}, message="number 4").status == "spooled"
    found = data("spool")
    assert (found["depth"], found["max_bytes"]) == (1, 5_000_000)
    assert Path(found["folder"]).parent == three / "waiting"
    (three / "elsewhere").rename(three / ".lastgood")
    assert data("spool", "--replay")["depth"] == 0
    assert [each["message"] for each in data("log")["checkpoints"]] == [f"number {one}" for one in (4, 3, 2, 1)]
