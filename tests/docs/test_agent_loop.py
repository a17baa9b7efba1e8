"""The example of an agent on a session, killed and steered from another process (A1, A11, A16)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import lastgood

LOOP = Path(__file__).parents[2] / "examples" / "agent_loop" / "main.py"


class Bench:
    """Starts the program, and steers it from here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs: list[subprocess.Popen[str]] = []

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "error", str(LOOP), str(self.folder), *map(str, arguments)]
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.programs.append(program)
        return program

    def control(self, store: lastgood.Store) -> lastgood.Control:
        return store.task("agent").control

    def wait_until(self, store: lastgood.Store, state: str) -> None:
        while self.programs[-1].poll() is None:
            if store.tasks() and self.control(store).state == state:
                return
            threading.Event().wait(0.02)
        raise AssertionError(self.programs[-1].communicate()[1])

    def file(self, name: str) -> Path:
        return self.folder / "project" / name


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for program in made.programs:
        if program.poll() is None:
            os.kill(program.pid, signal.SIGKILL)
        program.communicate()


@pytest.mark.parametrize("turn", [1, 3])
def test_it_goes_on_where_it_was_killed_and_asks_before_it_releases(bench: Bench, turn: int) -> None:
    killed = bench.start("--crash", turn)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    program = bench.start()
    with lastgood.open(bench.folder / "store") as store:
        bench.wait_until(store, "waiting_for_input")
        assert bench.control(store).question is not None
        assert not bench.file("RELEASED").exists()
        bench.control(store).answer("yes")
        said = program.communicate(timeout=60)[0].splitlines()
        assert (program.returncode, said[-1]) == (0, "released")
        calls = [message["tool"] for message in store.task("agent").state["messages"]]
        assert calls == ["read", "test", "write", "test"]
        assert bench.control(store).state == "completed"
        types = [checkpoint.type for checkpoint in reversed(store.list_checkpoints("agent"))]
        assert types[-4:] == ["question", "answered", "before_risky", "completed"]


def test_it_is_steered_from_another_process(bench: Bench) -> None:
    """A session guided, asked, paused, restored and stopped from outside, end to end."""
    program = bench.start()
    with lastgood.open(bench.folder / "store") as store:
        bench.wait_until(store, "waiting_for_input")
        control = bench.control(store)
        control.guide("describe what you write")
        control.pause()  # when the question is answered
        control.answer("yes")
        bench.wait_until(store, "paused")
        head = store.task("agent").head
        assert head is not None
        assert [said["text"] for said in head.guidance] == ["describe what you write"]
        asked = control.restore("@1")
        control.resume()
        bench.wait_until(store, "waiting_for_input")
        assert asked.request is not None
        assert control.follow(asked.request.id).status == "fulfilled"  # type: ignore[union-attr]
        assert "sum of two" not in bench.file("calc.py").read_text()  # what was said later is not known there
        control.stop()
        assert program.communicate(timeout=60)[0].splitlines()[-1] == "not released"
        assert (program.returncode, control.state) == (0, "stopped")
