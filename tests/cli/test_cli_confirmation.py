"""What removes something for good asks first, on a terminal; elsewhere it has to be told with --yes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import lastgood
from lastgood.cli import failure
from lastgood.cli.app import COMMANDS, app

Run = Callable[..., Any]

DESTROYING = {
    "a checkpoint": (["rm", "--purge", "@1"], "remove 1 checkpoint for good?"),
    "a task": (["rm", "--whole-task", "work"], "remove the task work and its 6 checkpoints for good?"),
    "a branch": (["branch", "--delete", "other"], "delete the branch other with 2 checkpoints that only it has?"),
    "deleted ones": (["collect", "--grace", "0"], "purge 1 checkpoint for good that was deleted within the last hour?"),
    "old ones": (["limit", "300k"], "purge 1 checkpoint for good?"),
    "old ones, later": (["limit", "1G", "--keep"], "without asking, whenever the store takes 1.0 GiB?"),
    "lost commits": (["repair", "--accept-loss"], "without 2 acknowledged commits that the store has lost?"),
    "a step": (["steps", "--abandon"], "what it commits will be refused?"),
    "what waits": (["spool", "--discard"], "give up 1 checkpoint of work that waits for the store?"),
}


class Question:
    """A person at a terminal, who says no; and what that person was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = ""
        monkeypatch.setattr(click, "confirm", self._answer)
        monkeypatch.setattr(failure, "can_ask", lambda: True)

    def _answer(self, text: str, **_: object) -> bool:
        self.asked = text
        return False


@pytest.fixture
def arguments(run: Run, three: Path, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Five checkpoints, a deleted one and a large one among them, and a branch of two; a step, or lost commits."""
    run("save", "--state", "-", input=json.dumps(random.Random(1).randbytes(200_000).hex()))
    run("save", "--state", "-", input='{"n": 4}')
    run("rm", "@2")
    run("fork", "--name", "other")
    run("save", "--set", "n=5", "--task", "other")
    given: list[str] = list(DESTROYING[request.param][0])
    with lastgood.open(three / ".lastgood") as store:
        if request.param == "a step":
            yield [*given, store.task("work").step("edit").begin().id]
            return
        if request.param == "what waits":
            task = store.task("work")
            (three / ".lastgood").rename(three / "elsewhere")
            task.append({"n": 6})
    if request.param == "lost commits":
        wal = three / ".lastgood" / "catalog.sqlite-wal"
        wal.write_bytes(wal.read_bytes()[: -4 * 10_000])
        (three / ".lastgood" / "catalog.sqlite-shm").unlink()
    yield given


def contents(folder: Path, run: Run) -> str:
    """All that could be gone; of a store that lost something, its log."""
    if not (folder / ".lastgood").exists():
        return str(run("spool", "--json", code=None).stdout)
    if run("log", "--json", code=None).exit_code:
        return str((folder / ".lastgood" / "catalog.sqlite-wal").stat().st_size)
    wanted = (["log", "--all"], ["branch"], ["steps"], ["collect", "--dry-run"])
    return json.dumps([json.loads(run(*one, "--json").stdout) for one in wanted])


@pytest.mark.parametrize(("arguments", "what"), [(name, name) for name in DESTROYING], indirect=["arguments"])
def test_without_a_terminal_it_is_refused(run: Run, three: Path, arguments: list[str], what: str) -> None:
    before = contents(three, run)
    assert "hint: add --yes\n" in run(*arguments, code=2).stderr
    assert contents(three, run) == before
    run(*arguments, "--yes")
    assert what == "old ones, later" or contents(three, run) != before


@pytest.mark.parametrize(("arguments", "what"), [(name, name) for name in DESTROYING], indirect=["arguments"])
def test_on_a_terminal_it_says_what_goes_and_a_no_changes_nothing(
    run: Run, three: Path, arguments: list[str], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, person = contents(three, run), Question(monkeypatch)
    assert run(*arguments, code=1).stderr.endswith("nothing was changed\n")
    assert person.asked.endswith(DESTROYING[what][1])
    assert contents(three, run) == before


def test_every_command_that_asks_is_in_the_table() -> None:
    context = click.Context(app)
    asking = {
        name
        for name in COMMANDS
        if (command := app.get_command(context, name)) is not None
        and any("--yes" in option.opts for option in command.params)
    }
    assert asking == {arguments[0] for arguments, _ in DESTROYING.values()}


def test_what_can_be_brought_back_is_not_asked_about(run: Run, three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person = Question(monkeypatch)
    run("rm", "@1")
    run("collect")
    run("tag", "green", "@2")
    run("tag", "--delete", "green")
    run("repair", "--accept-loss")
    run("limit", "1G")
    assert person.asked == ""
