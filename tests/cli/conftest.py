"""A folder to stand in, and a `lastgood` to run there."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
from click.testing import CliRunner, Result

from lastgood.cli import background
from lastgood.cli.app import app


class Run(Protocol):
    def __call__(self, *arguments: str, input: str | bytes | None = None, code: int | None = 0) -> Result: ...


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder called `work`, with nothing in the environment that points elsewhere."""
    for name in ("LASTGOOD_STORE", "LASTGOOD_NETWORK", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What commands that run in this process would leave to another: its function, and what that is given."""
    found: list[tuple[str, ...]] = []
    monkeypatch.setattr(background, "_start", lambda *what: found.append(what))
    return found


@pytest.fixture
def run(folder: Path, started: list[tuple[str, ...]]) -> Run:
    """Run a command in this process; its exit code must be `code`, unless that is None."""

    def run(*arguments: str, input: str | bytes | None = None, code: int | None = 0) -> Result:
        result = CliRunner().invoke(app, arguments, input=input)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert code in (None, result.exit_code), (result.stdout, result.stderr)
        return result

    return run


@pytest.fixture
def data(run: Run) -> Callable[..., Any]:
    """Run a command with --json; what it printed."""

    def data(*arguments: str, input: str | bytes | None = None, code: int = 0) -> Any:
        return json.loads(run(*arguments, "--json", input=input, code=code).stdout)

    return data


@pytest.fixture
def process(folder: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command in a process of its own."""

    def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "lastgood.cli.main", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=60)

    return process


@pytest.fixture
def on_a_terminal(folder: Path) -> Callable[..., str]:
    """Run a command in a process of its own whose stdout is a terminal; what it printed."""

    def on_a_terminal(*arguments: str, columns: int = 80, **environment: str) -> str:
        parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        command = [sys.executable, "-m", "lastgood.cli.main", *arguments]
        with subprocess.Popen(command, stdout=child, env={**os.environ, "TERM": "xterm", **environment}) as process:
            os.close(child)
            shown = b""
            try:
                while chunk := os.read(parent, 4096):
                    shown += chunk
            except OSError:
                pass  # Linux says so when the other side is closed
            process.wait(timeout=60)
        os.close(parent)
        return shown.decode()

    return on_a_terminal


@pytest.fixture
def three(run: Run, folder: Path) -> Path:
    """A store with three checkpoints of the task `work`, which has no workspace."""
    (folder / "lastgood.toml").write_text('store = ".lastgood"\n')
    run("init")
    for number in (1, 2, 3):
        run("save", "--set", f"n={number}", "-m", f"number {number}")
    return folder
