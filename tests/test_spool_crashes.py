"""A process that is killed while it spools or replays: nothing acknowledged is lost, nothing comes twice (C10, G1)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults import shim

pytestmark = pytest.mark.skipif(shim.no_compiler() is not None, reason=f"NOT TESTED, crashes: {shim.no_compiler()}")


@pytest.mark.parametrize("kind", ["kill", "tear"])
@pytest.mark.parametrize("what", ["spool", "replay"])
def test_killed_at_any_call_it_goes_on_where_it_was(tmp_path: Path, what: str, kind: str) -> None:
    """Each fifteenth call here; every one is tried with 1 as the last argument."""
    command = [sys.executable, "-m", "tests.spool_crashes", str(tmp_path), what, kind, "15"]
    environment = {**shim.environment(), "PYTHONPATH": ":".join(sys.path)}
    told = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert told.returncode == 0, told.stderr[-3000:]
    found = json.loads(told.stdout)
    assert found["problems"] == []
    assert found["tried"] >= 4
