"""A folder that came from somebody else, with a store in it: what is in the store leads no command out of the folder
(S1, S2; G14)."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli.conftest import Run

import lastgood
from lastgood import Evidence, EvidencePack, EvidenceType
from lastgood.cli.app import app

pytestmark = pytest.mark.once

CONFIG = 'store = ".lastgood"\ntask = "c"\nworkspace = "."\n'


def _make(folder: Path, *claims: Evidence) -> None:
    """Make the folder that somebody is given: a configuration, and a checkpoint with claims about their machine."""
    folder.mkdir()
    (folder / "lastgood.toml").write_text(CONFIG)
    (folder / "inside.txt").write_text("inside")
    with lastgood.open(folder / ".lastgood", auto_verify=False, network="any") as store:
        store.task("c", workspace=folder).save({}, evidence=EvidencePack([*claims]))


def _clone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    clone = folder.with_name("clone")
    shutil.copytree(folder, clone, symlinks=True)
    monkeypatch.chdir(clone)
    return clone


def _everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_claims_about_files_elsewhere_are_not_looked_at(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private"
    private.write_text("PIN 4711")
    found = hashlib.sha256(private.read_bytes()).hexdigest().encode()
    claim = Evidence(EvidenceType.FILE_SHA256, "h", {"path": str(private), "sha256": "0" * 64})
    _make(tmp_path / "theirs", claim)
    clone = _clone(tmp_path / "theirs", monkeypatch)
    for command in (["status"], ["verify"], ["last-good"], ["restore", "HEAD"]):
        said = CliRunner().invoke(app, command)
        assert found.decode()[:12] not in said.output
    assert found not in _everything_in(clone)
    run("trust")
    run("verify", code=9)
    assert found in _everything_in(clone)


def test_claims_about_what_lies_in_the_folder_are(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = hashlib.sha256(b"inside").hexdigest()
    _make(tmp_path / "theirs", Evidence(EvidenceType.FILE_SHA256, "h", {"path": "inside.txt", "sha256": digest}))
    _clone(tmp_path / "theirs", monkeypatch)
    assert "verified" in run("verify").stdout


def test_no_socket_is_connected_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    path = str(tmp_path / "engine.sock")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    connected = threading.Event()

    def wait() -> None:
        try:
            listening.accept()[0].close()
            connected.set()
        except OSError:
            pass

    threading.Thread(target=wait, daemon=True).start()
    claim = Evidence(EvidenceType.CONTAINER_RUNNING, "x", {"name": "x", "socket": path})
    try:
        with lastgood.open(tmp_path / "own") as store:  # also one's own: such a place is not public
            task = store.task("t")
            assert not task.save({}, evidence=EvidencePack([claim])).verified
            assert "usually listens" in str(task.head and task.head.evidence_pack.evidence_list[0].verification_error)
        assert not connected.is_set()
    finally:
        listening.close()


def test_a_configuration_cannot_name_a_store_in_memory(run: Run, folder: Path) -> None:
    """A save was acknowledged, and nothing was kept."""
    (folder / "lastgood.toml").write_text('store = ":memory:"\n')
    assert "nothing stays" in run("save", "-m", "x", code=2).stderr
    (folder / "lastgood.toml").unlink()
    run("--store", ":memory:", "save", code=2)


@pytest.mark.parametrize("redirected", [">&-", ">/dev/full"])
def test_what_was_done_is_done_whatever_becomes_of_the_output(folder: Path, redirected: str) -> None:
    command = f'"{sys.executable}" -m lastgood.cli.main'
    (folder / "a.txt").write_text("one")

    def shell(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", "-c", text], capture_output=True, text=True, env=dict(os.environ), timeout=60)

    assert shell(f"{command} init").returncode == 0
    (folder / "a.txt").write_text("two")
    done = shell(f"{command} save -m second {redirected}; {command} log {redirected}")
    assert "Traceback" not in done.stderr
    assert "could not be written" in done.stderr or redirected == ">&-"
    assert "second" in shell(f"{command} log").stdout
