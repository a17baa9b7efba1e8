"""The demonstration holds, and says so when it does not."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo" / "main.py"


@pytest.fixture
def demo() -> Any:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_demonstration_holds() -> None:
    command = [sys.executable, "-W", "error", str(DEMO)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    said = done.stdout.splitlines()
    assert sum(line.startswith("holds ") for line in said) == 19
    assert "try-regex (active)" in said


def test_the_demonstration_fails_when_a_claim_does_not_hold(demo: Any, capsys: pytest.CaptureFixture[str]) -> None:
    demo.CHAPTERS = (lambda folder, claims: claims.check("the moon is made of cheese", False),)
    assert demo.main([]) == 1
    assert capsys.readouterr().out == "FAILED the moon is made of cheese\n"


@pytest.mark.parametrize(("name", "value"), [("BROKEN", "FIRST"), ("OTHER", "BROKEN")])
def test_the_story_is_not_told_as_true_when_it_went_otherwise(
    demo: Any, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    demo.CHAPTERS = (demo.run_story,)
    setattr(demo, name, getattr(demo, value))
    assert demo.main([]) == 1
    assert "FAILED" in capsys.readouterr().out
