"""limit: a store that is too large loses its oldest checkpoints, and says which."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from lastgood.cli import failure

Run = Callable[..., Any]


@pytest.fixture
def large(run: Run, folder: Path) -> Path:
    """Eight checkpoints of one file of 200 KB each; the first is tagged."""
    (folder / "lastgood.toml").write_text('store = ".lastgood"\nworkspace = "."\n')
    run("init")
    for number in range(1, 9):
        (folder / "file").write_bytes(random.Random(number).randbytes(200_000))
        run("save", "-m", f"number {number}")
    run("tag", "first", "@1")
    return folder


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What a person at a terminal will say."""
    given: list[bool] = []
    monkeypatch.setattr(click, "confirm", lambda *_, **__: given.pop(0))
    monkeypatch.setattr(failure, "can_ask", lambda: True)
    return given


def remaining(data: Run) -> list[int]:
    return [one["sequence"] for one in reversed(data("log")["checkpoints"])]


def test_the_oldest_go_until_the_limit_is_met(run: Run, data: Run, large: Path) -> None:
    said = data("limit", "1M", "--yes")
    gone = [one["sequence"] for one in said["checkpoints"]]
    assert gone == list(range(2, 2 + len(gone)))  # the first is tagged
    assert remaining(data) == [1, *range(2 + len(gone), 9)]
    assert said["met"]
    assert said["after"] == data("du")["diskBytes"] <= said["maxBytes"] == 1 << 20 < said["before"]
    assert {one["taskId"] for one in said["checkpoints"]} == {"work"}
    assert all(one["frees"] >= 200_000 for one in said["checkpoints"])
    assert data("check", "--read-data")["ok"]


def test_a_dry_run_lists_what_each_would_free_and_changes_nothing(run: Run, data: Run, large: Path) -> None:
    head, *rows, purged, outcome = run("limit", "1M", "--dry-run").stdout.splitlines()
    assert head.split() == ["checkpoint", "id", "time", "frees"]
    assert [row.split()[:2] for row in rows] == [["work", f"@{number}"] for number in range(2, 2 + len(rows))]
    assert all(row.endswith(" KiB") for row in rows)
    assert purged == f"would purge {len(rows)} checkpoints"
    assert outcome.startswith("the store would take about ")
    assert remaining(data) == list(range(1, 9))
    assert [one["sequence"] for one in data("limit", "1M", "--dry-run")["checkpoints"]] == list(range(2, 2 + len(rows)))


def test_on_a_terminal_it_tells_first_and_asks(run: Run, data: Run, large: Path, answers: list[bool]) -> None:
    answers += [False, True]
    refused = run("limit", "1M", code=1)
    assert "work @2" in refused.stderr
    assert "would purge " in refused.stderr
    assert "nothing was changed" in refused.stderr
    assert refused.stdout == ""
    assert remaining(data) == list(range(1, 9))
    done = run("limit", "1M")
    assert "work @2" in done.stderr
    assert "work @2" not in done.stdout  # told already
    assert done.stdout.startswith("purged ")
    assert remaining(data)[:2] != [1, 2]


def test_without_a_terminal_it_wants_to_be_told_that_it_may(run: Run, data: Run, large: Path) -> None:
    assert "add --yes" in run("limit", "1M", code=2).stderr
    assert remaining(data) == list(range(1, 9))


def test_a_store_that_is_small_enough_is_not_asked_about(run: Run, data: Run, large: Path) -> None:
    said = data("limit", "1G")
    assert said["met"]
    assert said["checkpoints"] == []
    assert run("limit", "1G").stdout.startswith("the store takes ")


def test_a_limit_that_cannot_be_met_is_told_with_the_reason(process: Run, data: Run, large: Path) -> None:
    """What is protected stays, whatever the limit."""
    result = process("limit", "100k", "--yes")
    assert (result.returncode, result.stdout) == (2, "")
    assert "so nothing was purged: 2 checkpoint(s) stay" in result.stderr
    assert remaining(data) == list(range(1, 9))
    said = data("limit", "100k", "--dry-run", code=1)
    assert (said["met"], len(said["checkpoints"])) == (False, 6)
    assert "stay" in said["reason"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("0", 0), ("1234567", 1234567), ("500M", 500 << 20), ("2g", 2 << 30), ("1.5GiB", 3 << 29), ("3 kB", 3072)],
)
def test_sizes_are_understood_as_people_type_them(data: Run, three: Path, typed: str, meant: int) -> None:
    assert data("limit", typed, "--dry-run", code=int(meant < 4096))["maxBytes"] == meant


@pytest.mark.parametrize("typed", ["", "much", "-5", "1e9", "5X", "5iB", "nan", "99999999T"])
def test_what_is_no_size_is_refused(run: Run, three: Path, typed: str) -> None:
    assert "is no size" in run("limit", "--yes", "--", typed, code=2).stderr


def test_a_store_that_is_not_there_is_not_made(run: Run, folder: Path) -> None:
    run("limit", "1G", code=3)
    assert list(folder.iterdir()) == []
