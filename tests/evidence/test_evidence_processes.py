"""Evidence about processes is told by the processes that there are, in /proc and by ps alike (D1)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lastgood
from lastgood.evidence import machine
from lastgood.evidence.verifier import EvidenceVerifier
from lastgood.model.evidence import Evidence, EvidencePack

LONG_NAME = "a-program-with-quite-a-long-name"


@pytest.fixture(params=["proc", "ps"])
def verifier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[EvidenceVerifier]:
    if request.param == "ps":
        monkeypatch.setattr(machine, "_has_proc", lambda: False)
    with EvidenceVerifier() as opened:
        yield opened


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """One that waits for its input to end."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as started:
        yield started


def error_of(verifier: EvidenceVerifier, expected: Any) -> str | None:
    evidence = Evidence("process_exists", "it runs", expected)
    verifier.verify_evidence(evidence)
    return evidence.verification_error


def test_a_process_that_runs_is_found_by_its_number_and_its_name(
    verifier: EvidenceVerifier, child: subprocess.Popen[bytes]
) -> None:
    """D1"""
    assert error_of(verifier, {"pid": child.pid}) is None
    assert error_of(verifier, {"pid": child.pid, "name": "cat"}) is None
    assert error_of(verifier, {"name": "cat"}) is None
    assert error_of(verifier, {"pid": child.pid, "name": "dog"}) == f"mismatch: the process {child.pid} is cat, not dog"


def test_a_process_that_is_not_there_is_a_mismatch(verifier: EvidenceVerifier, child: subprocess.Popen[bytes]) -> None:
    child.communicate()
    assert error_of(verifier, {"pid": child.pid}) == f"mismatch: there is no process {child.pid}"
    assert error_of(verifier, {"name": "no-such-program"}) == "mismatch: there is no process no-such-program"


def test_a_process_that_ended_and_was_not_waited_for_does_not_count(verifier: EvidenceVerifier, tmp_path: Path) -> None:
    program = tmp_path / "soon-over"
    program.symlink_to(str(shutil.which("true")))
    with subprocess.Popen([program]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert error_of(verifier, {"pid": child.pid}) == f"mismatch: the process {child.pid} has ended"
        assert error_of(verifier, {"name": "soon-over"}) == "mismatch: there is no process soon-over"


def test_a_later_process_of_the_same_number_is_told_by_when_it_started(
    verifier: EvidenceVerifier, child: subprocess.Popen[bytes]
) -> None:
    started = time.time()
    assert error_of(verifier, {"pid": child.pid, "started": started}) is None
    assert error_of(verifier, {"pid": child.pid, "started": round(started)}) is None
    for other in (started - 60, started + 3600):
        error = error_of(verifier, {"pid": child.pid, "started": other})
        assert error == f"mismatch: the process {child.pid} is another one: it did not start at that time"


@pytest.mark.skipif(sys.platform != "linux", reason="only there does a thread have a number among those of processes")
def test_a_thread_is_not_a_process(verifier: EvidenceVerifier) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert error_of(verifier, {"pid": thread.native_id}) == f"mismatch: there is no process {thread.native_id}"
    finally:
        done.set()
        thread.join()


@pytest.mark.skipif(sys.platform != "linux", reason="only there are names cut off")
def test_a_name_that_the_kernel_cuts_off_is_known_whole(tmp_path: Path) -> None:
    program = tmp_path / LONG_NAME
    program.symlink_to(str(shutil.which("cat")))
    pipe = subprocess.PIPE
    with EvidenceVerifier() as verifier, subprocess.Popen([program], stdin=pipe, stdout=pipe, bufsize=0) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"x")
        assert child.stdout.read(1) == b"x"  # it has begun: before that the kernel may know its short name alone
        assert error_of(verifier, {"pid": child.pid, "name": LONG_NAME}) is None
        assert error_of(verifier, {"name": LONG_NAME}) is None
        error = error_of(verifier, {"pid": child.pid, "name": LONG_NAME[:15]})
        assert error == f"mismatch: the process {child.pid} is {LONG_NAME}, not {LONG_NAME[:15]}"


def test_both_ways_of_looking_tell_the_same(child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    found = machine.find_process(child.pid, deadline)
    (told,) = machine.read_with_ps(deadline, "-p", str(child.pid))
    assert found is not None
    assert (told.pid, told.name, told.ended) == (found.pid, found.name, found.ended)
    assert abs(told.started - found.started) <= machine._TOLERANCE_SECONDS
    for listed in (machine.list_processes(deadline), machine.read_with_ps(deadline, "-A")):
        assert {os.getpid(), child.pid} <= {process.pid for process in listed}


@pytest.mark.parametrize(
    "expected",
    [
        {},
        {"pid": 0},
        {"pid": -1},
        {"pid": True},
        {"pid": "1"},
        {"pid": 1.0},
        {"pid": 1 << 31},
        {"pid": 1, "started": "yesterday"},
        {"pid": 1, "started": -1},
        {"pid": 1, "started": float("nan")},
        {"pid": 1, "started": True},
        {"started": 1.0},
        {"name": "cat", "started": 1.0},
        {"name": ""},
        {"name": "/bin/cat"},
        {"name": "c\0at"},
        {"name": "\ud800"},
        {"name": b"cat"},
        {"name": "x" * 10_000},
        {"pid": os.getpid(), "nmae": "misspelt"},
    ],
)
def test_a_claim_that_is_wrongly_shaped_cannot_be_checked(verifier: EvidenceVerifier, expected: Any) -> None:
    """D1, D2"""
    assert str(error_of(verifier, expected)).startswith("check_error: the claim")


@given(
    st.dictionaries(
        st.sampled_from(["pid", "name", "started", "other"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.integers()),
    )
)
def test_whatever_is_claimed_is_answered(expected: dict[str, Any]) -> None:
    """D2: nothing that evidence may say raises, or fails for a reason that was not thought of."""
    with EvidenceVerifier() as verifier:
        error = error_of(verifier, expected)
    assert error is None or error.startswith(("mismatch: the", "check_error: the claim", "check_error: the process"))


def test_processes_are_looked_at_anew_each_time(store: lastgood.Store, tmp_path: Path) -> None:
    """D11: also of a checkpoint that has files."""
    (tmp_path / "work").mkdir()
    task = store.task("t", workspace=tmp_path / "work")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        pack = EvidencePack([Evidence("process_exists", "it runs", {"pid": child.pid, "started": time.time()})])
        saved = task.save({}, evidence=pack)
        assert saved.verified
        assert store.verify_checkpoint(saved.id)
    assert not store.verify_checkpoint(saved.id)
