"""Pipelines whose process is killed for real: what was recorded as finished never runs again, the rest does (C3)."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.support.killed_pipeline import STAGES

import lastgood

pytestmark = pytest.mark.once

FULL = bool(os.environ.get("LASTGOOD_FULL"))
KILLS = 200 if FULL else 15


def read(ledger: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ledger.read_text().splitlines()]


def test_killed_at_random_moments_every_stage_happens_and_none_that_was_recorded_runs_again(tmp_path: Path) -> None:
    """C3, C6, A1: 20 stages, 200 kills in full."""
    seed = random.SystemRandom().getrandbits(32)
    ledger = tmp_path / "ledger"
    command = [
        sys.executable,
        "-m",
        "tests.support.killed_pipeline",
        str(tmp_path / "store"),
        str(ledger),
        str(KILLS),
        str(seed),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1000, check=False)
    assert done.returncode == 0, (seed, done.stderr)

    plan = [f"stage {number}" for number in range(STAGES)]
    attempts: dict[tuple[int, str], list[int]] = defaultdict(list)
    keys: dict[tuple[int, str], set[str]] = defaultdict(set)
    recorded: dict[int, list[str]] = defaultdict(list)
    last: dict[int, dict[str, Any]] = {}
    for line in read(ledger):
        task = line["task"]
        if line["what"] == "ran":
            assert line["stage"] not in recorded[task], (seed, line)
            attempts[task, line["stage"]].append(line["attempt"])
            keys[task, line["stage"]].add(line["key"])
        elif line["what"] == "recorded":
            assert line["stages"][: len(recorded[task])] == recorded[task], (seed, line)
            assert line["stages"] == plan[: len(line["stages"])] == line["done"], (seed, line)
            recorded[task], last[task] = line["stages"], line
    assert last
    for task, line in last.items():
        assert (line["state"], line["stages"]) == ("completed", plan), (seed, task)
        for stage in plan:
            counted = attempts[task, stage]
            assert counted, (seed, task, stage)
            assert counted == sorted(set(counted)), (seed, task, stage, counted)  # each attempt knows those before it
            assert len(keys[task, stage]) == 1, (seed, task, stage)


STARTS = "import os, signal, sys\nfrom pathlib import Path\nimport lastgood\n"
DIE = "os.kill(os.getpid(), signal.SIGKILL)"


def let_die(script: str, *arguments: object) -> None:
    command = [sys.executable, "-c", STARTS + script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


IN_FLIGHT = f"""
def first(ctx):
    ctx.state["first"] = True
def second(ctx):
    ctx.state["lost"] = True
    Path(sys.argv[2]).open("a").write(f"{{ctx.attempt}} {{ctx.key}}\\n")
    {DIE}
lastgood.Pipeline([first, second]).run(lastgood.open(sys.argv[1], user="tester").task("work"))
"""


def test_a_stage_in_flight_when_its_process_died_is_run_again_and_knows_it(tmp_path: Path) -> None:
    """C3. What it made of the state is gone; what finished before it is kept."""
    for _ in range(2):
        let_die(IN_FLIGHT, tmp_path / "store", tmp_path / "told")
    told = [line.split() for line in (tmp_path / "told").read_text().splitlines()]
    assert [attempt for attempt, _ in told] == ["1", "2"]
    seen: list[Any] = []

    def first(ctx: lastgood.StageContext) -> None:
        raise AssertionError("it is done")

    def second(ctx: lastgood.StageContext) -> None:
        seen.extend((ctx.attempt, ctx.key, dict(ctx.state)))

    with lastgood.open(tmp_path / "store", user="tester") as store:
        assert [step.name for step in store.open_steps("work")] == ["second"]
        outcome = lastgood.Pipeline([first, second]).run(store.task("work"))
        assert seen == [3, told[0][1], {"first": True}]
        assert told[0][1] == told[1][1]
        assert outcome.state == {"first": True}
        assert store.open_steps("work") == []


MESSING = f"""
@lastgood.stage(on_error="restore")
def edit(ctx):
    Path(sys.argv[2], "notes").write_text("half done")
    {DIE}
task = lastgood.open(sys.argv[1], user="tester").task("work", workspace=sys.argv[2])
lastgood.Pipeline([edit]).run(task)
"""


@pytest.mark.parametrize("on_error", ["restore", "keep"])
def test_files_of_an_attempt_that_died_are_put_back_where_that_is_wanted(tmp_path: Path, on_error: Any) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "notes").write_text("before")
    let_die(MESSING, tmp_path / "store", folder)
    seen: list[str] = []

    @lastgood.stage(on_error=on_error)
    def edit(ctx: lastgood.StageContext) -> None:
        seen.append((folder / "notes").read_text())

    with lastgood.open(tmp_path / "store", user="tester") as store:
        lastgood.Pipeline([edit]).run(store.task("work", workspace=folder))
    assert seen == ["before" if on_error == "restore" else "half done"]


UNDOING = f"""
told = Path(sys.argv[2])
def undo(ctx):
    told.open("a").write(f"{{ctx.stage}} {{ctx.attempt}}\\n")
    ctx.state["done"].remove(ctx.stage)
    if len(sys.argv) > 3 and ctx.stage == sys.argv[3]:
        {DIE}
def work(ctx):
    ctx.state.setdefault("done", []).append(ctx.stage)
stages = [lastgood.stage(name=name, undo=undo)(work) for name in "abcd"]
pipeline = lastgood.Pipeline(stages)
task = lastgood.open(sys.argv[1], user="tester").task("work")
if task.head is None:
    pipeline.run(task)
pipeline.roll_back(task, to="b")
"""


def test_rolling_back_goes_on_where_it_died_and_undoes_nothing_twice(tmp_path: Path) -> None:
    """C2."""
    store, told = tmp_path / "store", tmp_path / "told"
    for stage in ("c", "b"):
        let_die(UNDOING, store, told, stage)
    done = subprocess.run(
        [sys.executable, "-c", STARTS + UNDOING, store, told], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert told.read_text().split("\n")[:-1] == ["d 1", "c 1", "c 2", "b 1", "b 2"]
    with lastgood.open(store, user="tester") as opened:
        task = opened.task("work")
        assert task.state == {"done": ["a"]}
        progress = task.progress()
        assert progress is not None
        assert progress.completed == ("a",)


def test_running_a_pipeline_whose_roll_back_died_rolls_it_back_first(tmp_path: Path) -> None:
    store, told = tmp_path / "store", tmp_path / "told"
    let_die(UNDOING, store, told, "c")
    ran: list[str] = []

    def work(ctx: lastgood.StageContext) -> None:
        ran.append(ctx.stage)

    def undo(ctx: lastgood.StageContext) -> None:
        ran.append(f"un{ctx.stage}")

    stages = [lastgood.stage(name=name, undo=undo)(work) for name in "abcd"]
    with lastgood.open(store, user="tester") as opened:
        lastgood.Pipeline(stages).run(opened.task("work"))
    assert ran == ["unc", "unb", "b", "c", "d"]


SIGNALLED = """
def first(ctx):
    ctx.state["first"] = ctx.attempt
    os.kill(os.getpid(), signal.SIGTERM)
    ctx.state["ended"] = True
def second(ctx):
    ctx.state["second"] = ctx.attempt
outcome = lastgood.Pipeline([first, second]).run(lastgood.open(sys.argv[1], user="tester").task("work"))
assert outcome.state == {"first": 1, "ended": True, "second": 1}, outcome.state
"""


def test_a_signal_lets_the_stage_end_which_is_recorded_and_then_ends_the_program(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS + SIGNALLED, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == -signal.SIGTERM, done.stderr
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
