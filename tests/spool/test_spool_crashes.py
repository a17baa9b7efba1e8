"""A process that is killed while it spools or replays: nothing acknowledged is lost, nothing comes twice (C10, G1)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults import shim

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(shim.no_compiler() is not None, reason=f"NOT TESTED, crashes: {shim.no_compiler()}"),
]


@pytest.mark.parametrize("kind", ["kill", "tear"])
@pytest.mark.parametrize("what", ["spool", "replay"])
def test_killed_at_any_call_it_goes_on_where_it_was(tmp_path: Path, what: str, kind: str) -> None:
    """Each fifteenth call, every one with LASTGOOD_FULL=1."""
    every = "1" if os.environ.get("LASTGOOD_FULL") else "15"
    command = [sys.executable, "-m", "tests.support.spool_crashes", str(tmp_path), what, kind, every]
    environment = {**shim.environment(), "PYTHONPATH": ":".join(sys.path)}
    told = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert told.returncode == 0, told.stderr[-3000:]
    found = json.loads(told.stdout)
    assert found["problems"] == []
    assert found["tried"] >= 4
