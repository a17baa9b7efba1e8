"""Ctrl-C and SIGKILL, sent to real processes."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from lastgood.files import apply
from lastgood.files.folders import OpenFolder, exchange

Run = Callable[..., Any]
LASTGOOD = [sys.executable, "-m", "lastgood.cli.main"]


@pytest.fixture
def saved(run: Run, folder: Path) -> Path:
    (folder / "a.txt").write_text("one\n")
    run("init")
    (folder / "a.txt").write_text("two\n")
    run("save")
    return folder


@contextmanager
def writers_wait(folder: Path) -> Iterator[None]:
    """Nobody can write into the store inside."""
    with (folder / ".lastgood" / "catalog.sqlite-lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def wait_until_it_waits(process: subprocess.Popen[str]) -> None:
    """Until the kernel says that it waits for the lock."""
    while f" {process.pid} " not in " ".join(
        line for line in Path("/proc/locks").read_text().splitlines() if "->" in line
    ):
        assert process.poll() is None
        os.sched_yield()


def interrupted(folder: Path, *arguments: str) -> str:
    """Return what a command says that got Ctrl-C while it waited to write."""
    with (
        writers_wait(folder),
        subprocess.Popen(
            [*LASTGOOD, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        wait_until_it_waits(process)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 130
    return said.strip()


needs_proc = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the kernel does not say who waits")


@needs_proc
def test_an_interrupted_save_says_that_nothing_was_saved(saved: Path, data: Run) -> None:
    (saved / "a.txt").write_text("three\n")
    assert interrupted(saved, "save") == "interrupted; nothing was saved"
    assert json.loads(interrupted(saved, "save", "--json"))["error"]["code"] == "interrupted"
    assert data("log")["total"] == 2


@needs_proc
def test_an_interrupted_restore_says_that_the_files_are_as_before(saved: Path, data: Run) -> None:
    said = interrupted(saved, "restore", "@1")
    assert said == "interrupted; nothing was restored, and the files are as they were"
    assert (saved / "a.txt").read_text() == "two\n"
    assert data("log")["total"] == 2


@contextmanager
def step(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A step whose command runs; and what is at its end when the command has ended."""
    os.mkfifo(folder / "alive")
    reader = os.open(folder / "alive", os.O_RDONLY | os.O_NONBLOCK)
    script = "exec 3> alive; echo $$ >&3; exec sleep 600"
    with subprocess.Popen(
        [*LASTGOOD, "run-step", "long", "--", "sh", "-c", script], stderr=subprocess.PIPE, text=True
    ) as process:
        assert select.select([reader], [], [], 60)[0]
        pid = int(os.read(reader, 100))
        try:
            yield process, reader
        finally:
            process.kill()
            os.close(reader)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_an_interrupted_step_says_what_was_recorded(saved: Path, data: Run) -> None:
    with step(saved) as (process, reader):
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait(60) == 130
        assert os.read(reader, 1) == b""
    assert "Traceback" not in said
    assert (
        said.strip().splitlines()[-1] == "interrupted; the command was ended, and the step long is recorded as failed"
    )
    assert data("steps")["steps"] == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can")
def test_a_command_ends_with_the_step_that_is_killed(saved: Path) -> None:
    with step(saved) as (process, reader):
        process.kill()
        process.wait(60)
        assert select.select([reader], [], [], 60)[0]
        assert os.read(reader, 1) == b""


def test_log_draws_branches(saved: Path, run: Run) -> None:
    run("fork", "@1", "--name", "other")
    assert run("log", "--graph").stdout == run("branch").stdout
    run("log", "--graph", "--type", "step", code=2)


@pytest.mark.parametrize(
    ("presses", "sentence"),
    [
        (1, "interrupted; the newest checkpoint is @6 now; `lastgood status` shows the files"),
        (2, "interrupted; `lastgood status` says what became of it"),
    ],
)
def test_files_are_as_before_also_when_some_were_put_back(
    saved: Path, run: Run, monkeypatch: pytest.MonkeyPatch, presses: int, sentence: str
) -> None:
    placed: list[bytes] = []

    def interrupt(folder: OpenFolder, one: bytes, other: bytes) -> bool:
        done = exchange(folder, one, other)
        placed.append(other)
        if len(placed) <= presses:
            raise KeyboardInterrupt
        return done

    for number in range(5):
        (saved / f"{number}.txt").write_text(f"{number}")
    run("save")
    for number in range(5):
        (saved / f"{number}.txt").write_text(f"{number} changed")
    run("save")
    with monkeypatch.context() as patch:
        patch.setattr(apply, "exchange", interrupt)
        said = run("restore", "@3", code=130).stderr
    assert placed
    assert said.strip() == sentence
    if presses > 1:
        run("save")  # the next command that works with the files takes it back
    assert [(saved / f"{number}.txt").read_text() for number in range(5)] == [
        f"{number} changed" for number in range(5)
    ]
