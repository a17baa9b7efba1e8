"""The example program of a loop that resumes runs as it stands."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import lastgood

ROOT = Path(__file__).parents[2]
LOOP = ROOT / "examples" / "resume_loop" / "main.py"


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=100)


def test_the_resume_loop_goes_on_after_a_crash_and_back_when_its_work_is_bad(tmp_path: Path) -> None:
    """A16, D9: what was in flight is said; the last that verifies is gone back to; the work gets done."""
    killed = run(LOOP, "work", "--crash", 3, cwd=tmp_path)
    assert killed.returncode == -signal.SIGKILL
    done = run(LOOP, "work", "--spoil", 5, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert "was in flight when its process ended" in said[0]
    assert said[1] == "the newest checkpoint is good: go on from there"
    assert said[2:] == [
        "page 3 is good",
        "page 4 is good",
        "page 5 is bad: mismatch: the command ended with 1, not 0",
        "back to page 4",
        "page 5 is good",
        "page 6 is good",
        "all 6 pages are there",
    ]
    with lastgood.open(tmp_path / "work" / "registry.sqlite") as store:
        assert store.task("site").state["done"] == [1, 2, 3, 4, 5, 6]
        assert len(store.branches("site")) == 2
        assert store.open_steps() == []


def test_the_resume_loop_killed_in_every_page_gets_done(tmp_path: Path) -> None:
    for page in range(1, 7):
        assert run(LOOP, "work", "--crash", page, cwd=tmp_path).returncode == -signal.SIGKILL
    done = run(LOOP, "work", cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "all 6 pages are there"
    with lastgood.open(tmp_path / "work" / "registry.sqlite") as store:
        pages = [checkpoint.state["done"][-1] for checkpoint in reversed(store.list_checkpoints("site"))]
        assert pages == [1, 2, 3, 4, 5, 6]  # each once: none missing, none twice
