"""`lastgood watch`: a process beside which saves look only at what changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.files.test_watch import fresh, later, visits

import lastgood
from lastgood.files import watch, watch_client

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/sys/fs/inotify"), reason="needs inotify")  # noqa: PTH110

Run = Callable[..., Any]
__all__ = ["later"]


@pytest.fixture
def work(run: Run, folder: Path) -> Path:
    """A workspace of three folders beside its store, saved once."""
    for name in ("a/x", "a/b/y", "c/z"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    run("init", "--store", "../store")
    run("save", "-m", "first")
    return folder


class Watching:
    """A `lastgood watch` in a process of its own that has said that it is ready."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "lastgood.cli.main", "watch", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """Its exit code, and what else it said."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def watching(work: Path) -> Iterator[Watching]:
    started = Watching()
    yield started
    if started.process.poll() is None:
        started.end(signal.SIGKILL)


@pytest.fixture
def save(run: Run, work: Path, monkeypatch: pytest.MonkeyPatch, later: None) -> Callable[[], set[bytes]]:
    """Save in this process: the checkpoint has what lies there; the folders that were looked at."""
    monkeypatch.setattr(watch_client, "SECONDS", 60)  # however busy the machine is
    looked_at = visits(monkeypatch)

    def save() -> set[bytes]:
        looked_at.clear()
        run("save", "-m", "again")
        found = set(looked_at)
        with lastgood.open(work.parent / "store") as store:
            head = store.task("work").head
        assert head is not None
        assert head.record.files is not None
        assert head.record.files[0].tree == fresh(str(work))
        return found

    return save


EVERYTHING = {b"", b"a", b"a/b", b"c"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_what_it_watches_and_ends_when_it_is_told(
    work: Path, watching: Watching, number: signal.Signals
) -> None:
    assert watching.said == f"watching 4 folders of {work}; saves look only at what changed. Ctrl-C ends it.\n"
    assert watching.end(number) == (0, "", "")


def test_saves_beside_it_look_only_at_what_changed(work: Path, watching: Watching, save: Run) -> None:
    save()
    assert save() == {b""}
    (work / "a/b/y").write_text("changed")
    (work / "new/folder").mkdir(parents=True)
    assert save() == {b"", b"a/b", b"new", b"new/folder"}
    watching.end()
    assert save() == EVERYTHING | {b"new", b"new/folder"}


def test_status_and_diff_have_their_use_of_it(
    run: Run, work: Path, watching: Watching, save: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    save()
    save()
    looked_at = visits(monkeypatch)
    (work / "c/z").write_text("changed")
    assert "c/z" in run("status").stdout
    assert set(looked_at) == {b"", b"c"}
    assert "c/z" in run("diff").stdout
    save()


def test_killed_it_leaves_nothing_in_the_way(work: Path, watching: Watching, save: Run) -> None:
    save()
    assert watching.end(signal.SIGKILL)[0] == -signal.SIGKILL
    (work / "a/x").write_text("changed")
    assert save() == EVERYTHING
    again = Watching()
    assert again.said.startswith("watching 4 folders")
    assert save() == {b""}
    assert again.end() == (0, "", "")


def test_one_that_does_not_answer_holds_nobody_up(
    work: Path, watching: Watching, save: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    save()
    watching.process.send_signal(signal.SIGSTOP)
    (work / "a/x").write_text("changed")
    with monkeypatch.context() as patch:
        patch.setattr(watch_client, "SECONDS", 0.2)
        assert save() == EVERYTHING
    watching.process.send_signal(signal.SIGCONT)
    (work / "c/z").write_text("changed, too")
    save()
    (work / "c/z").write_text("and again")
    assert save() == {b"", b"c"}


def test_a_restore_in_another_process_is_right_and_so_is_what_follows(
    run: Run, process: Run, work: Path, watching: Watching, save: Run
) -> None:
    (work / "c/z").write_text("changed")
    save()
    assert process("restore", "@1").returncode == 0
    assert (work / "c/z").read_text() == "c/z"
    (work / "a/x").write_text("changed")
    save()
    assert process("undo").returncode == 0
    save()
    (work / "a/x").write_text("changed again")
    assert save() == {b"", b"a"}


def test_a_folder_is_watched_once(run: Run, watching: Watching) -> None:
    refused = run("watch", code=6)
    assert "is being watched already" in refused.stderr
    assert refused.stdout == ""


def test_before_the_first_save_the_next_one_looks_at_everything(run: Run, folder: Path) -> None:
    (folder / "below").mkdir()
    run("init", "--store", "../store")
    started = Watching()
    assert "once one has looked at everything" in started.said
    run("save", "-m", "first")
    assert started.end() == (0, "", "")


@pytest.mark.usefixtures("later")
def test_a_store_that_lies_in_the_folder_is_no_trouble(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_client, "SECONDS", 60)
    (folder / "below").mkdir()
    run("init")
    run("save", "-m", "first")
    started = Watching()
    run("save", "-m", "second")
    looked_at = visits(monkeypatch)
    run("save", "-m", "third")
    assert set(looked_at) == {b""}
    assert started.end() == (0, "", "")


def test_programs_are_told_in_one_object(run: Run, work: Path) -> None:
    (work.parent / "other").mkdir()
    (work / "lastgood.toml").write_text('store = "../store"\n[workspace]\napp = "a"\nother = "../other"\n')
    run("save", "-m", "of two folders")
    started = Watching("--json")
    folders = [
        {"name": "app", "path": str(work / "a"), "watched": 2},
        {"name": "other", "path": str(work.parent / "other"), "watched": 1},
    ]
    assert json.loads(started.said) == {"folders": folders}
    assert started.end() == (0, "", "")


def test_a_folder_that_is_named_is_watched(work: Path) -> None:
    started = Watching("c")
    assert str(work / "c") in started.said
    assert started.end() == (0, "", "")


def test_without_a_workspace_or_a_store_it_says_so(run: Run, folder: Path) -> None:
    assert "no workspace" in run("watch", code=2).stderr
    assert "no store" in run("watch", ".", code=3).stderr
    assert "in memory" in run("watch", ".", "--store", ":memory:", code=2).stderr
    run("init", "--store", "../store")
    assert "not there" in run("watch", "nowhere", code=2).stderr
    assert "is not a folder" in run("watch", "lastgood.toml", code=2).stderr


@pytest.mark.parametrize(
    ("call", "says"), [("inotify_init1", "max_user_instances"), ("inotify_add_watch", "max_user_watches")]
)
def test_at_a_limit_of_the_system_it_names_it_and_ends(
    run: Run, work: Path, monkeypatch: pytest.MonkeyPatch, call: str, says: str
) -> None:
    class Exhausted:
        def __getattr__(self, name: str) -> Callable[..., int]:
            return (lambda *_: -1) if name == call else getattr(system, name)

    system = watch._system()
    monkeypatch.setattr(watch, "_system", Exhausted)
    ended = run("watch", code=6)
    assert says in ended.stderr
    assert ended.stdout == ""
