"""du: what takes how much of the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lastgood

Run = Callable[..., Any]


@pytest.fixture
def two(run: Run, three: Path) -> Path:
    """A store with two tasks that have a file in common; one of them has two branches."""
    (three / "lastgood.toml").write_text('store = ".lastgood"\nworkspace = "."\n')
    (three / "common").write_text("in both\n" * 500)
    run("save", "-m", "with files")
    run("save", "--task", "another", "--set", "n=1")
    run("fork", "--name", "side")
    return three


def test_the_store_is_told_with_its_tasks_the_largest_first(data: Run, two: Path) -> None:
    said = data("du")
    assert said["store"] == str(two / ".lastgood" / "catalog.sqlite")
    assert said["diskBytes"] == said["catalogBytes"] + said["packBytes"]
    assert [(task["id"], task["checkpoints"]) for task in said["tasks"]] == [("work", 5), ("another", 1)]
    assert said["storedBytes"] < said["tasks"][0]["stored"] + said["tasks"][1]["stored"]  # they share a file
    assert said["unreadable"] == 0
    assert "checkpoints" not in said


def test_people_read_tables(run: Run, two: Path) -> None:
    lines = run("du").stdout.splitlines()
    assert lines[0].split() == ["store", str(two / ".lastgood" / "catalog.sqlite")]
    assert {"on disk", "stored"} <= {line[:12].strip() for line in lines}
    head = next(index for index, line in enumerate(lines) if line.startswith("task "))
    assert lines[head].split() == ["task", "owner", "checkpoints", "stored"]
    assert [line.split()[0] for line in lines[head + 1 :]] == ["work", "another"]
    assert len({len(line) for line in lines[head:]}) == 1  # numbers end below each other


def test_a_task_is_told_by_checkpoint(run: Run, data: Run, two: Path) -> None:
    for asked in (("work",), ("--task", "work"), ("work", "--checkpoints")):
        said = data("du", *asked)
        assert [task["id"] for task in said["tasks"]] == ["work"]
        assert [one["sequence"] for one in said["checkpoints"]] == [1, 2, 3, 4, 5]
    lines = run("du", "work").stdout.splitlines()
    assert lines[0].split() == ["task", "work"]
    assert lines[-6].split() == ["checkpoint", "id", "adds", "frees"]
    assert [line.split()[:2] for line in lines[-5:]] == [["work", f"@{n}"] for n in range(1, 6)]


def test_a_branch_is_told_by_its_id(data: Run, two: Path) -> None:
    side = data("du", "work")["checkpoints"][-1]["branchId"]
    said = data("du", side)
    assert [(one["branchId"], one["sequence"]) for one in said["checkpoints"]] == [(side, 5)]


def test_checkpoints_are_told_with_what_they_add_and_free(run: Run, data: Run, two: Path) -> None:
    run("rm", "@2")
    said = data("du", "work", "--checkpoints")["checkpoints"]
    assert [(one["sequence"], one["deleted"]) for one in said] == [(n, n == 2) for n in range(1, 6)]
    adds = {one["sequence"]: one["adds"] for one in said}
    assert max(adds, key=lambda sequence: adds[sequence]) == 4
    assert said[3]["frees"] < said[3]["adds"]  # the branch and the other task need its files, too
    lines = run("du", "--checkpoints").stdout.splitlines()
    assert any(line.startswith("work @2 (deleted) ") for line in lines)
    assert data("du")["tasks"][0]["deletedCheckpoints"] == 1
    assert "5, 1 of them deleted" in run("du", "work").stdout


def test_owners_are_told_apart(run: Run, data: Run, three: Path) -> None:
    run("save", "--user", "ann", "--task", "hers", "--set", "n=1")
    assert [task["id"] for task in data("du", "--owner", "ann")["tasks"]] == ["hers"]
    run("du", "hers", code=3)
    assert [task["owner"] for task in data("du", "hers", "--owner", "ann")["tasks"]] == ["ann"]


def test_two_tasks_are_refused(run: Run, three: Path) -> None:
    assert "name one" in run("du", "work", "--task", "other", code=2).stderr


def test_a_task_that_is_not_there_is_told(run: Run, three: Path) -> None:
    assert "there is no task 'nothing'" in run("du", "nothing", code=3).stderr


def test_garbage_and_leftovers_are_told(run: Run, two: Path) -> None:
    for word in ("unreferenced", "stray"):
        assert word not in run("du").stdout
    with lastgood.open(two / ".lastgood") as store:
        objects = store._engine.blobs.objects
        assert objects is not None
        objects.put("packs/aa/left-over", [b"x" * 3000])
        for task in ("work", "another"):
            store.delete_task(task)
    said = run("du").stdout
    assert "that no checkpoint needs any more" in said
    assert "2.9 KiB of saves that were interrupted or are under way" in said


def test_damage_is_told_with_an_exit_code(run: Run, two: Path) -> None:
    with lastgood.open(two / ".lastgood") as store:
        catalog: Any = store._engine.catalog
        catalog._write(
            lambda connection: connection.execute("UPDATE checkpoints SET record = zeroblob(9) WHERE number & 1")
        )
    result = run("du", code=5)
    assert "could not be read" in result.stderr
    assert "work" in result.stdout
