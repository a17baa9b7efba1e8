"""`lastgood watch --save`, as a process that is signalled."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
WATCH = [sys.executable, "-m", "lastgood.cli.main", "watch", "--save", "--every"]


@pytest.fixture
def begin(run: Run, folder: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    (folder / "a.txt").write_text("one")
    run("init")
    begun = []

    def begin(every: str) -> subprocess.Popen[str]:
        begun.append(subprocess.Popen([*WATCH, every], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        assert begun[-1].stderr is not None
        assert begun[-1].stderr.readline() == "watching work; Ctrl-C ends it\n"
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def test_what_changes_is_saved_and_nothing_else(begin: Run, folder: Path, data: Run) -> None:
    process = begin("0.05s")
    for number in (2, 3):
        (folder / "a.txt").write_text("x" * number)
        assert process.stdout.readline() == f"saved @{number} of work with 2 files\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0
    found = data("log")
    assert [one["type"] for one in found["checkpoints"]] == ["automatic", "automatic", "manual"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_changed_last_is_saved_when_it_ends(begin: Run, folder: Path, number: signal.Signals, data: Run) -> None:
    process = begin("1h")
    (folder / "a.txt").write_text("two")
    process.send_signal(number)
    assert process.communicate(timeout=60) == ("saved @2 of work with 2 files\n", "")
    assert process.returncode == 0
    assert data("log")["total"] == 2


def test_a_second_watcher_is_told_who_watches(begin: Run, run: Run) -> None:
    process = begin("1h")
    assert f"process {process.pid} watches this folder already" in run("watch", "--save", code=6).stderr


def test_a_store_that_is_away_gets_it_later(begin: Run, folder: Path, tmp_path: Path, data: Run) -> None:
    process = begin("0.05s")
    lock = folder / ".lastgood" / "catalog.sqlite-lock"
    lock.rename(tmp_path / "away")
    (folder / "a.txt").write_text("two")
    told = "the store's lock file cannot be used: no such file or directory; 1 checkpoint waits for the store"
    assert process.stdout.readline().startswith(f"spooled of work with 2 files: {told} since ")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    (tmp_path / "away").rename(lock)
    data("spool", "--replay")
    assert data("log")["total"] == 2


def test_watch_saves_without_being_told_so(run: Run, three: Path) -> None:
    assert "there is no workspace" in run("watch", code=2).stderr
    assert "there is no workspace" in run("watch", "--save", "--no-files", code=2).stderr
    assert "above 0" in run("watch", "--every", "0s", code=2).stderr


def test_the_message_says_what_changed(begin: Run, folder: Path, data: Run, on_a_terminal: Run) -> None:
    process = begin("1h")
    (folder / "a.txt").write_text("two")
    (folder / "new\x1b.py").write_text("new")
    for number in range(3):
        (folder / f"p{number}").write_text(str(number))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    [saved, _] = data("log")["checkpoints"]
    assert saved["description"] == '~ a.txt, + "new\\033.py", + p0 and 2 more'
    assert '~ a.txt, + "new\\033.py", + p0 and 2 more' in on_a_terminal("log")


def test_a_message_is_short_whatever_files_are_called(begin: Run, folder: Path, data: Run) -> None:
    process = begin("1h")
    for letter in "xyz":
        (folder / (letter * 200)).write_text(letter)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert len(data("log")["checkpoints"][0]["description"]) < 130
