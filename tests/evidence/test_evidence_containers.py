"""Evidence about containers asks the engine's own socket, and only what changes nothing (D1)."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.servers import falling_silent, serving, watching

import lastgood
from lastgood.evidence import machine
from lastgood.evidence.verifier import EvidenceVerifier
from lastgood.model.evidence import Evidence, EvidencePack

ID = "4f66ad9a0b2e8ba3c8a1f1a3f2f4f3e6c4b1e7a8d9c0b1a2f3e4d5c6b7a89901"


@pytest.fixture
def verifier() -> Iterator[EvidenceVerifier]:
    with EvidenceVerifier(sleep=never, timeout=600, network="any") as opened:
        yield opened


@pytest.fixture
def path() -> Iterator[str]:
    """Where an engine's socket can be: such a path has to be short."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        yield f"{folder}/engine.sock"


def never(seconds: float) -> None:
    """Waiting without a clock."""


def error_of(verifier: EvidenceVerifier, expected: Any) -> str | None:
    evidence = Evidence("container_running", "it runs", expected)
    verifier.verify_evidence(evidence)
    return evidence.verification_error


def answer(status: int, data: Any) -> bytes:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    head = f"HTTP/1.1 {status} X\r\nApi-Version: 1.49\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


def container(status: str = "running", name: str = "/web") -> bytes:
    state = {"Status": status, "Running": status in ("running", "paused", "restarting"), "Pid": 7}
    return answer(200, {"Id": ID, "Name": name, "State": state, "Config": {"Env": ["PASSWORD=hunter2"]}})


ABSENT = answer(404, {"message": "No such container: web"})


@pytest.mark.parametrize("name", ["/web", "web"])  # as Docker, and as Podman has it
def test_a_container_that_runs_is_found_by_its_name_or_its_id(verifier: EvidenceVerifier, path: str, name: str) -> None:
    """D1"""
    with serving(container(name=name), path=path) as server:
        assert error_of(verifier, {"name": "web", "socket": path}) is None
        assert error_of(verifier, {"id": ID, "socket": path}) is None
        assert error_of(verifier, {"id": ID[:12], "socket": path}) is None
    asked = [request.split(b"\r\n")[0] for request in server.requests]
    assert asked == [f"GET /containers/{what}/json HTTP/1.1".encode() for what in ("web", ID, ID[:12])]


@pytest.mark.parametrize("status", ["exited", "paused", "dead", "created", "restarting"])
def test_a_container_that_does_not_run_is_a_mismatch(verifier: EvidenceVerifier, path: str, status: str) -> None:
    with serving(container(status), path=path):
        error = error_of(verifier, {"name": "web", "socket": path})
    assert error == f"mismatch: the container web is not running: it is {status}"


def test_a_container_that_there_is_not_is_a_mismatch(verifier: EvidenceVerifier, path: str) -> None:
    with serving(ABSENT, path=path):
        assert error_of(verifier, {"name": "web", "socket": path}) == "mismatch: there is no container web"


def test_a_name_is_not_taken_for_an_id_nor_an_id_for_a_name(verifier: EvidenceVerifier, path: str) -> None:
    """Engines answer for both."""
    with serving(container(), path=path):
        assert error_of(verifier, {"name": ID[:12], "socket": path}) == f"mismatch: there is no container {ID[:12]}"
        assert error_of(verifier, {"id": "f" * 12, "socket": path}) == f"mismatch: there is no container {'f' * 12}"


def test_a_container_or_an_engine_that_starts_is_waited_for(path: str) -> None:
    """D9"""
    waits: list[float] = []
    answers = (container("restarting"), answer(500, {"message": "not yet"}), container())
    with EvidenceVerifier(sleep=waits.append, network="any") as verifier, serving(*answers, path=path):
        assert error_of(verifier, {"name": "web", "socket": path}) is None
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (answer(500, {"message": "PASSWORD=hunter2"}), "the container engine answered with 500"),
        (answer(403, b""), "the container engine answered with 403"),
        (b"", "the answer was cut off"),
        (b"hunter2\r\n", "the answer is not HTTP as it should be"),
        (answer(200, b"{"), "the container engine gave an answer that makes no sense"),
        (answer(200, []), "the container engine gave an answer that makes no sense"),
        (answer(200, b"[" * 100_000), "the container engine gave an answer that makes no sense"),
        (answer(200, {"Id": ID, "Name": "/web"}), "the container engine does not say how the container is"),
        (
            answer(200, {"Id": ID, "Name": "/web", "State": []}),
            "the container engine does not say how the container is",
        ),
        (
            answer(200, {"Id": ID, "Name": "/web", "State": {"Running": True}}),
            "the container engine does not say how the container is",
        ),
        (answer(200, b'"' + b"x" * 1_000_001), "the answer is longer than the 1 MB that evidence reads"),
    ],
)
def test_an_engine_that_makes_no_sense_cannot_tell(
    verifier: EvidenceVerifier, path: str, data: bytes, error: str
) -> None:
    with serving(data, path=path):
        assert error_of(verifier, {"name": "web", "socket": path}) == f"check_error: {error}"


def test_an_engine_that_is_silent_is_waited_for_until_the_deadline(path: str) -> None:
    with (
        serving(falling_silent(b"HTTP/1.1 200 OK\r\n"), path=path),
        EvidenceVerifier(timeout=0.1, network="any") as verifier,
    ):
        error = error_of(verifier, {"name": "web", "socket": path})
    assert error == "check_error: the container engine gave no answer in time"


def test_an_engine_that_has_no_time_for_another_cannot_tell(verifier: EvidenceVerifier, path: str) -> None:
    """A socket whose queue is full: nobody takes connections from it."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(path)
        listener.listen(0)
        first.connect(path)
        assert str(error_of(verifier, {"name": "web", "socket": path})).startswith("check_error: the ")


def test_without_an_engine_nobody_can_tell(verifier: EvidenceVerifier, path: str) -> None:
    error = error_of(verifier, {"name": "web", "socket": path})
    assert error == "check_error: the connection failed: no such file or directory"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)  # and it ended without taking its socket away
    error = error_of(verifier, {"name": "web", "socket": path})
    assert error == "check_error: the container engine refuses connections"
    Path(path).unlink()
    Path(path).touch()
    assert str(error_of(verifier, {"name": "web", "socket": path})).startswith("check_error: ")


class TestUsualPlaces:
    @pytest.fixture
    def runtime(self, path: str, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A machine whose engines, if any, are those of the user."""
        folder = Path(path).parent
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        monkeypatch.setenv("HOME", str(folder))
        places = machine._usual_places
        monkeypatch.setattr(
            machine, "_usual_places", lambda: [place for place in places() if place.startswith(str(folder))]
        )
        return folder

    def test_where_there_is_none_that_is_said(self, verifier: EvidenceVerifier, runtime: Path) -> None:
        (runtime / "docker.sock").touch()
        assert error_of(verifier, {"name": "web"}) == "check_error: there is no container engine here"

    def test_it_is_enough_that_one_of_them_runs_it(self, verifier: EvidenceVerifier, runtime: Path) -> None:
        (runtime / "podman").mkdir()
        docker, podman = str(runtime / "docker.sock"), str(runtime / "podman" / "podman.sock")
        for first in (ABSENT, container("exited"), answer(500, b"")):
            with serving(first, path=docker), serving(container(), path=podman):
                assert error_of(verifier, {"name": "web"}) is None
            os.unlink(docker)  # noqa: PTH108
            os.unlink(podman)  # noqa: PTH108
        with serving(answer(500, b""), path=docker), serving(ABSENT, path=podman):
            assert error_of(verifier, {"name": "web"}) == "check_error: the container engine answered with 500"


def test_where_connections_are_off_no_engine_is_asked(path: str) -> None:
    with serving(container(), path=path) as server, EvidenceVerifier(network="off") as verifier, watching() as seen:
        for claim in ({"name": "web"}, {"name": "web", "socket": path}):
            assert str(error_of(verifier, claim)).startswith("evidence makes no connections here; ")
        assert error_of(verifier, {"name": "web", "socket": "engine.sock"}) == (
            "check_error: the socket of a container engine is named by an absolute path"
        )
    assert not server.requests
    assert not seen


def test_a_socket_is_named_by_the_rules_for_paths(path: str) -> None:
    """D8"""
    with EvidenceVerifier(Path(path).parent, absolute_paths=False) as verifier, watching() as seen:
        assert "absolute path" in str(error_of(verifier, {"name": "web", "socket": path}))
        assert "absolute path" in str(error_of(verifier, {"name": "web", "socket": "engine.sock"}))
    assert not seen


@pytest.mark.parametrize(
    "expected",
    [
        {},
        {"socket": "/x"},
        {"name": "web", "id": ID},
        *(
            {"name": name}
            for name in ("", "/web", "a/../b", "a b", "a\r\nb", "ä", "x" * 129, "-x", "..", 7, b"web", ["web"])
        ),
        *({"id": digits} for digits in ("", "abc", ID + "0", ID.upper(), "g" * 12, 123456789012)),
        *(
            {"name": "web", "socket": path}
            for path in ("", "engine.sock", 7, b"/x", "/x\0", "/" + "x" * 5000, "/" + "x" * 107)
        ),
        {"name": "web", "engine": "docker"},
    ],
)
def test_a_claim_that_is_wrongly_shaped_connects_to_nothing(verifier: EvidenceVerifier, expected: Any) -> None:
    """D1, D2"""
    with watching() as seen:
        error = str(error_of(verifier, expected))
    assert error.startswith("check_error: the ")
    assert "the check failed" not in error
    assert not seen


@given(
    st.dictionaries(
        st.sampled_from(["name", "id", "socket", "other"]),
        st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.just(ID) | st.lists(st.text()),
    )
)
def test_whatever_is_claimed_is_answered(expected: dict[str, Any]) -> None:
    """D2"""
    with EvidenceVerifier(attempts=1, network="any") as verifier:
        error = str(error_of(verifier, {"socket": "/nowhere/engine.sock"} | expected))
    assert error.startswith("check_error: ")
    assert "the check failed" not in error


def test_containers_are_asked_for_anew_each_time(store: lastgood.Store, path: str, tmp_path: Path) -> None:
    """D11: also of a checkpoint whose files lie around the socket."""
    (tmp_path / "work").mkdir()
    store.close()
    store = lastgood.open(tmp_path / "store", user="tester", network="any")
    task = store.task("t", workspace=tmp_path / "work")
    pack = EvidencePack([Evidence("container_running", "it runs", {"name": "web", "socket": path})])
    with serving(container(), container(), container("exited"), path=path):
        saved = task.save({}, evidence=pack)
        assert saved.verified
        assert store.verify_checkpoint(saved.id)
        assert not store.verify_checkpoint(saved.id)
