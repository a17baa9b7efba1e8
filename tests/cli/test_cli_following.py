"""`lastgood log -f`: what other processes do to a task, as they do it (A17)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.outages import gone, open_store

import lastgood
from lastgood.observe.log import operating_system_user

Run = Callable[..., Any]


class Following:
    """A `lastgood log -f` in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "lastgood.cli.main", "log", "-f", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def said(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str, str]:
        """Its exit code, and what else it said."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def follow(three: Path) -> Iterator[Callable[..., Following]]:
    started: list[Following] = []

    def follow(*arguments: str) -> Following:
        started.append(Following(*arguments))
        return started[-1]

    yield follow
    for one in started:
        if one.process.poll() is None:
            one.end(signal.SIGKILL)


def test_what_was_is_shown_oldest_first_and_what_comes_as_it_comes(run: Run, follow: Callable[..., Following]) -> None:
    following = follow("-n", "2")
    assert [following.line().split()[0] for _ in range(2)] == ["@2", "@3"]
    run("save", "--set", "n=4", "-m", "new\x1b[2J")
    shown = following.line()
    assert shown.split()[0] == "@4"
    assert shown.endswith("manual       new\\x1b[2J\n")
    run("fork", "--name", "side")
    assert "(side)" in following.line()
    assert following.end() == (0, "", "")


def test_with_json_each_is_an_object_on_its_line(run: Run, follow: Callable[..., Following]) -> None:
    following = follow("-n", "1", "--json")
    first = json.loads(following.line())
    assert (first["sequence"], first["head"]) == (3, True)
    for number in (4, 5):
        run("save", "--set", f"n={number}")
    assert [json.loads(following.line())["sequence"] for _ in range(2)] == [4, 5]
    assert following.end() == (0, "", "")


def test_of_one_type_only_those_are_shown(run: Run, follow: Callable[..., Following]) -> None:
    following = follow("-n", "1", "--type", "manual", "--json")
    following.line()
    run("save", "--set", "n=4", "--type", "step")
    run("save", "--set", "n=5")
    assert json.loads(following.line())["sequence"] == 5


def test_with_all_every_entry_is_shown(run: Run, follow: Callable[..., Following]) -> None:
    following = follow("--all", "-n", "1", "--json")
    assert json.loads(following.line())["kind"] == "created"
    run("tag", "HEAD", "green")
    entry = json.loads(following.line())
    assert (entry["kind"], entry["data"]["name"]) == ("tagged", "green")
    people = follow("--all", "-n", "1")
    assert "tagged" in people.line()
    run("restore", "@1")
    assert {people.line().split()[3] for _ in range(2)} == {"restored", "branched"}


def test_more_than_a_page_of_new_ones_is_shown_whole(
    run: Run, follow: Callable[..., Following], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lastgood.cli import following as module

    nine, eight, seven, six, five = (SimpleNamespace(sequence=number) for number in (9, 8, 7, 6, 5))
    pages = iter([[nine, eight], [seven, six], [five]])
    monkeypatch.setattr(module, "NEW", 2)
    assert module._read(lambda before, size: next(pages), None, 5) == [nine, eight, seven, six]
    assert module._read(lambda before, size: [nine, eight], 2, 0) == [nine, eight]


def test_following_and_going_back_contradict_each_other(run: Run, three: Path) -> None:
    run("log", "-f", "--before", "2", code=2)
    run("log", "-f", "--task", "nothing", code=3)


@pytest.fixture
def worker(three: Path) -> Iterator[lastgood.Task]:
    """Whoever does the work, in this process; nobody asks for the store in the background."""
    with open_store(three / ".lastgood", user=operating_system_user()) as store:
        yield store.task("work")


AWAY = "the store is away: {}; what is spooled meanwhile is shown as such\n"


def test_what_is_spooled_is_shown_once_as_such_and_again_in_its_place(
    follow: Callable[..., Following], worker: lastgood.Task, three: Path
) -> None:
    following = follow("-n", "2")
    assert [following.line().split()[0] for _ in range(2)] == ["@2", "@3"]
    with gone(three / ".lastgood"):
        assert following.said() == AWAY.format("it is not where it was")
        for number in (4, 5):
            assert worker.save({"n": number}, message=f"number {number}").status == "spooled"
            shown = following.line()
            assert (shown.split()[0], shown.split(" ", 1)[1].strip().endswith(f"number {number}")) == ("spooled", True)
    assert lastgood.Store(worker._handle.engine, "ada").replay().stored == 2
    worker.save({"n": 6})
    assert [following.line().split()[0] for _ in range(3)] == ["@4", "@5", "@6"]
    assert following.said() == "the store is back\n"
    assert following.end() == (0, "", "")


def test_followed_from_an_outage_on_it_shows_what_waits_and_then_the_last_ones(
    follow: Callable[..., Following], worker: lastgood.Task, three: Path
) -> None:
    """Not the whole history."""
    with gone(three / ".lastgood"):
        spooled = [worker.save({"n": number}).id for number in (4, 5)]
        following = follow("-n", "1", "--json")
        first = json.loads(following.line())
        assert (first["id"], first["status"], first["sequence"], first["head"]) == (spooled[1], "spooled", None, True)
        spooled.append(worker.save({"n": 6}).id)
        assert json.loads(following.line())["id"] == spooled[2]
    shown = [json.loads(following.line())]
    while shown[-1]["sequence"] != 6:  # it may have looked while they came
        shown.append(json.loads(following.line()))
    assert (shown[-1]["id"], shown[-1]["status"]) == (spooled[2], "stored")
    assert [one["sequence"] for one in shown] == [4, 5, 6][-len(shown) :]
    assert following.end() == (0, "", "")


def test_entries_are_followed_through_an_outage(
    run: Run, follow: Callable[..., Following], worker: lastgood.Task, three: Path
) -> None:
    with gone(three / ".lastgood"):
        worker.save({"n": 4})
        following = follow("--all", "-n", "1")
        assert following.said() == AWAY.format("the store is not there")
    shown = [following.line()]
    run("tag", "HEAD", "green")
    while "tagged" not in shown[-1]:
        assert "created" in shown[-1]
        shown.append(following.line())
    assert [line.split()[0] for line in shown] == ["#3", "#4", "#5"][-len(shown) :]


def test_a_task_that_nothing_is_known_of_while_the_store_is_away_is_not_followed(
    run: Run, worker: lastgood.Task, three: Path
) -> None:
    with gone(three / ".lastgood"):
        worker.save({"n": 4})
        assert run("log", "-f", "--task", "another", code=6).stderr.startswith("error: the store is away")
