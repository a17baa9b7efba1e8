"""The example of a deployment: it fails, is tried again, is killed, and is taken back (C2, C3)."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import lastgood

MAIN = Path(__file__).parents[2] / "examples" / "deployment" / "main.py"
DEPLOYED = ["build", "provision", "upload", "switch", "check"]


def deploy(folder: Path, *arguments: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-W", "error", str(MAIN), str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


def servers(folder: Path) -> list[str]:
    return [one.name for one in (folder / "cloud").iterdir() if one.is_dir()]


def test_a_deployment_is_killed_goes_on_turns_out_bad_and_is_taken_back(tmp_path: Path) -> None:
    code, said = deploy(tmp_path, "1.0", "--crash", "provision")
    assert code == -signal.SIGKILL
    assert said == ["started: build", "succeeded: build", "started: provision"]

    code, said = deploy(tmp_path, "1.0")
    assert code == 0
    assert said == [
        "started: provision, attempt 2",
        "succeeded: provision",
        "started: upload",
        "failed: upload, ConnectionError: the connection was reset",
        "started: upload, attempt 2",
        "failed: upload, ConnectionError: the connection was reset",
        "started: upload, attempt 3",
        "succeeded: upload",
        "started: switch",
        "succeeded: switch",
        "started: check",
        "succeeded: check",
        "people see version 1.0",
    ]
    first = servers(tmp_path)
    assert len(first) == 1  # the second attempt found what the first had made

    code, said = deploy(tmp_path, "2.0", "--bad")
    assert code == 1
    assert said[-6:] == [
        "the stage 'check' failed: RuntimeError: the new version answers nobody",
        "started: switch",
        "undone: switch",
        "started: provision",
        "undone: provision",
        "people see version 1.0",
    ]
    assert servers(tmp_path) == first

    code, said = deploy(tmp_path, "2.0")
    assert (code, said[-1]) == (0, "people see version 2.0")
    assert [line.removeprefix("succeeded: ") for line in said if line.startswith("succeeded")] == DEPLOYED
    assert deploy(tmp_path, "2.0") == (0, ["people see version 2.0"])  # it is done
    with lastgood.open(tmp_path / "store") as store:
        built = store.list_checkpoints("deployment", 100, "stage_succeeded")[-1]
        assert built.verified
        assert store.open_steps() == []


def test_killed_in_every_stage_it_gets_done(tmp_path: Path) -> None:
    for stage in ("build", "provision", "upload", "switch"):
        assert deploy(tmp_path, "1.0", "--crash", stage)[0] == -signal.SIGKILL
    code, said = deploy(tmp_path, "1.0")
    assert (code, said[-1]) == (0, "people see version 1.0")
    assert len(servers(tmp_path)) == 1
