"""What the tests share: a store of their own, the interpreters of this clone, and hypothesis without clocks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import lastgood

hypothesis.settings.register_profile(
    "here",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("here")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[lastgood.Store]:
    with lastgood.open(tmp_path / "store", user="tester") as opened:
        yield opened


@pytest.fixture(scope="session")
def interpreters() -> list[Path]:
    """The Python of every environment of this clone that has lastgood."""
    candidates = sorted(Path(__file__).parent.parent.glob(".venv-3.*/bin/python"))
    return [python for python in candidates if _has_lastgood(python)]


def _has_lastgood(python: Path) -> bool:
    command = [str(python), "-c", "import lastgood.engine.store, lastgood.content.splitting, ormsgpack"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
