"""The table of tasks in docs/README.md names commands that its screens show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.first_use import test_tasks

HERE = Path(__file__).parent
TABLE = (HERE.parents[1] / "docs" / "README.md").read_text().partition("## What do you want to do?")[2]
ROWS = re.findall(r"^\| ([a-z][^|]+) \| ([^|]*`lastgood [^|]+) \| \[", TABLE.partition("\n## ")[0], re.MULTILINE)


def screen_of(task: str) -> Path:
    return HERE / "screens" / f"{re.sub(r'[^a-z0-9]+', '-', task)}.txt"


@pytest.mark.parametrize(("task", "commands"), ROWS, ids=[task for task, _ in ROWS])
def test_the_screen_of_a_task_shows_its_commands(task: str, commands: str) -> None:
    shown = [line for line in screen_of(task).read_text().splitlines() if line.startswith("$ ")]
    for command in re.findall(r"`(lastgood [^`]+)`", commands):
        assert any(command in line for line in shown), command


def test_every_task_has_a_test_and_every_screen_a_task() -> None:
    tasks = {screen_of(task).stem for task, _ in ROWS}
    tests = {name.removeprefix("test_").replace("_", "-") for name in dir(test_tasks) if name.startswith("test_")}
    assert len(ROWS) == 20
    assert tasks == tests == {screen.stem for screen in (HERE / "screens").iterdir()}
