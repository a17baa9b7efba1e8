"""Evidence about hosts connects to what the verifier allows and to nothing else, and never waits too long (D1, D9)."""

from __future__ import annotations

import socket
import string
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.servers import OK, black_hole, free_port, serving, watching

import lastgood
from lastgood import Checkpoint
from lastgood.errors import EvidenceError, InvalidError
from lastgood.evidence import connection, network
from lastgood.evidence.connection import Address
from lastgood.evidence.network import is_public
from lastgood.evidence.verifier import EvidenceVerifier
from lastgood.model.evidence import Evidence, EvidencePack

PUBLIC = "93.184.215.14"
ALLOWING = 'network="any" allows evidence about it, on the command line LASTGOOD_NETWORK=any'
OFF = 'evidence makes no connections here; network="public" allows them, on the command line LASTGOOD_NETWORK=public'


@pytest.fixture
def verifier() -> Iterator[EvidenceVerifier]:
    with EvidenceVerifier(network="any", sleep=never, timeout=600) as opened:
        yield opened


def never(seconds: float) -> None:
    """Waiting without a clock."""


def about(port: int) -> EvidencePack:
    """That something on this machine takes connections."""
    return EvidencePack([Evidence("network_reachable", "it answers", {"host": "127.0.0.1", "port": port})])


def id_of(found: Checkpoint | None) -> str | None:
    return None if found is None else found.id


def error_of(verifier: EvidenceVerifier, expected: Any) -> str | None:
    evidence = Evidence("network_reachable", "it is there", expected)
    verifier.verify_evidence(evidence)
    return evidence.verification_error


@contextmanager
def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str] | OSError) -> Iterator[list[str]]:
    """A resolver that gives these answers, one after the other; whom it was asked for."""
    asked: list[str] = []

    def look_up(host: bytes, port: int, **_: Any) -> list[Any]:
        asked.append(host.decode())
        answer = answers[min(len(asked), len(answers)) - 1]
        if isinstance(answer, OSError):
            raise answer
        families = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in answer]
        return [(family, 1, 6, "", (address, port)) for family, address in zip(families, answer, strict=True)]

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", look_up)
        yield asked


class TestReaching:
    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "::ffff:127.0.0.1"])
    def test_a_port_that_takes_connections_holds(self, verifier: EvidenceVerifier, host: str) -> None:
        """D1"""
        with serving(OK) as server:
            assert error_of(verifier, {"host": host, "port": server.port}) is None
            assert error_of(verifier, {"host": host, "port": server.port, "timeout": 20}) is None

    def test_an_address_of_version_6_is_taken(self, verifier: EvidenceVerifier) -> None:
        with serving(OK, host="::1") as server:
            assert error_of(verifier, {"host": "::1", "port": server.port}) is None

    def test_a_port_on_which_nobody_listens_is_a_mismatch(self, verifier: EvidenceVerifier) -> None:
        port = free_port()
        error = error_of(verifier, {"host": "127.0.0.1", "port": port})
        assert error == f"mismatch: 127.0.0.1 port {port} refuses connections"

    def test_a_port_that_does_not_answer_is_waited_for_until_the_deadline(self, verifier: EvidenceVerifier) -> None:
        with black_hole() as port:
            error = error_of(verifier, {"host": "127.0.0.1", "port": port, "timeout": 0.1})
            assert error == f"mismatch: 127.0.0.1 port {port} gave no answer in time"
            with EvidenceVerifier(network="any", timeout=0.1) as hasty:
                assert error_of(hasty, {"host": "127.0.0.1", "port": port, "timeout": 3600}) == error

    def test_the_next_address_is_tried_when_one_is_refused_or_silent(self) -> None:
        deadline = time.monotonic() + 5
        with black_hole() as silent, serving(OK) as server:
            ports = [free_port(), silent, server.port]
            addresses = [Address(socket.AF_INET, ("127.0.0.1", port)) for port in ports]
            with connection.connect(addresses, deadline) as connected:
                assert connected._socket.getpeername()[1] == server.port

    def test_a_connection_to_itself_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Narcissus(socket.socket):
            def connect(self, address: Any) -> None:
                self.bind(address)
                super().connect(address)

        address = Address(socket.AF_INET, ("127.0.0.1", free_port()))
        monkeypatch.setattr(socket, "socket", Narcissus)
        with pytest.raises(ConnectionRefusedError):
            connection.connect([address], time.monotonic() + 60)

    def test_nothing_is_left_open(self, verifier: EvidenceVerifier, count_descriptors: Callable[[], int]) -> None:
        error_of(verifier, {"host": "127.0.0.1", "port": free_port()})
        with black_hole() as silent:
            before = count_descriptors()
            error_of(verifier, {"host": "127.0.0.1", "port": silent, "timeout": 0.05})
            error_of(verifier, {"host": "127.0.0.1", "port": free_port()})
            assert count_descriptors() == before


class TestGuard:
    @pytest.mark.parametrize(
        "address",
        [
            *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
            *("169.254.169.254", "100.64.0.1", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
            *("192.88.99.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
            *(
                "::",
                "::1",
                "fe80::1",
                "fe80::1%1",
                "fc00::1",
                "fd12::1",
                "fec0::1",
                "ff02::1",
                "ff0e::1",
                "2001:db8::1",
            ),
            *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1"),
            *("64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:7f00:1::", "2002:5db8:d70e::", "2001::1", "100::1", "3fff::1"),
            *("5f00::1", "4000::1"),
        ],
    )
    def test_an_address_that_is_not_public_is_known(self, address: str) -> None:
        assert not is_public(address)

    @pytest.mark.parametrize(
        "address",
        [
            "1.1.1.1",
            PUBLIC,
            "2606:4700:4700::1111",
            f"::ffff:{PUBLIC}",
            f"64:ff9b::{PUBLIC}",
            "100.63.0.1",
            "172.32.0.1",
        ],
    )
    def test_a_public_address_is_known(self, address: str) -> None:
        assert is_public(address)

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "0.0.0.0"])
    def test_this_machine_is_refused_by_default(self, host: str) -> None:
        with EvidenceVerifier(sleep=never) as verifier, serving(OK) as server, watching() as seen:
            error = error_of(verifier, {"host": host, "port": server.port})
        assert f"leads to an address that is not public; {ALLOWING}" in str(error)
        assert "socket.connect" not in dict(seen)

    @pytest.mark.parametrize("network", ["public", "any"])
    @pytest.mark.parametrize(
        "host",
        [
            *("0x7f.1", "0x7f000001", "2130706433", "127.1", "0177.0.0.1", "127.0.0.01", "127.0.0.1.", "0x7f.0.0.1."),
            *(
                "[::1]",
                "::1%lo",
                "fe80::1%eth0",
                "１２７.0.0.1",
                "127。0。0。1",
                "①27.0.0.1",
                "localhost\0.example.com",
            ),
            *(
                "local host",
                "-x",
                "a..b",
                ".",
                "",
                "a" * 254,
                "a" * 64 + ".com",
                "user@localhost",
                "localhost:80",
                "x/y",
            ),
        ],
    )
    def test_an_odd_spelling_is_never_even_looked_up(self, network: Any, host: str) -> None:
        with EvidenceVerifier(network=network, sleep=never) as verifier, watching() as seen:
            assert str(error_of(verifier, {"host": host, "port": 80})).startswith("check_error: ")
        assert not seen

    def test_every_address_of_a_name_must_be_allowed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for answer in (["127.0.0.1"], [PUBLIC, "10.0.0.1"], ["::1", PUBLIC], [PUBLIC, "::ffff:192.168.0.1"]):
            with (
                EvidenceVerifier(sleep=never) as verifier,
                resolving(monkeypatch, answer) as asked,
                watching() as seen,
            ):
                error = error_of(verifier, {"host": "example.com", "port": 80})
            assert error == f"example.com leads to an address that is not public; {ALLOWING}"
            assert asked == ["example.com"]
            assert not seen

    def test_what_was_checked_is_what_is_connected_to(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A name that leads elsewhere the second time it is looked up does not get a second time."""
        monkeypatch.setattr(network, "is_public", lambda address: address == "127.0.0.2")
        with (
            EvidenceVerifier(sleep=never, attempts=1) as verifier,
            resolving(monkeypatch, ["127.0.0.2"], ["127.0.0.1"]) as asked,
            serving(OK) as server,
            watching() as seen,
        ):
            error_of(verifier, {"host": "example.com", "port": server.port})
        assert asked == ["example.com"]
        assert seen == [("socket.connect", ("127.0.0.2", server.port))]

    def test_each_attempt_checks_the_address_that_it_connects_to(self, monkeypatch: pytest.MonkeyPatch) -> None:
        gone = socket.gaierror(socket.EAI_NONAME, "")
        with (
            EvidenceVerifier(sleep=never) as verifier,
            resolving(monkeypatch, gone, ["127.0.0.1"]) as asked,
            watching() as seen,
        ):
            error = error_of(verifier, {"host": "example.com", "port": 80})
        assert error == f"example.com leads to an address that is not public; {ALLOWING}"
        assert len(asked) == 2
        assert not seen

    @pytest.mark.parametrize("host", ["127.0.0.1", "example.com", PUBLIC])
    def test_where_connections_are_off_nothing_is_looked_up(self, host: str) -> None:
        with EvidenceVerifier(network="off") as verifier, watching() as seen:
            error = error_of(verifier, {"host": host, "port": 80})
        assert error == OFF
        assert not seen

    def test_a_store_is_told_what_its_evidence_may_connect_to(self, tmp_path: Path) -> None:
        with serving(OK) as server:
            pack = EvidencePack([Evidence("network_reachable", "", {"host": "127.0.0.1", "port": server.port})])
            with lastgood.open(tmp_path / "store", network="any") as store:
                saved = store.task("t").save({}, evidence=pack)
                assert saved.verified
            with lastgood.open(tmp_path / "store") as store:
                assert not store.verify_checkpoint(saved.id)
            with lastgood.CheckpointManager(tmp_path / "other.sqlite", network="off") as manager:
                assert not manager.task("t").save({}, evidence=pack).verified

    def test_who_may_not_look_takes_nothing_from_what_others_found(self, tmp_path: Path) -> None:
        """D3: pending is neither good nor bad; it is not verified now, and what was recorded stays."""
        with serving(OK) as server:
            with lastgood.open(tmp_path / "store", network="any") as store:
                first = store.task("t").save({"n": 1})
                saved = store.task("t").save({"n": 2}, evidence=about(server.port))
            with lastgood.open(tmp_path / "store") as store:
                task = store.task("t")
                assert not store.verify_checkpoint(saved.id)
                checked = store.check_checkpoint(saved.id)
                assert [one.verification_status for one in checked.pack.evidence_list] == ["pending"]
                assert checked.pack.verification_summary() == {
                    "total": 1,
                    "verified": 0,
                    "failed": 0,
                    "is_verified": False,
                }
                assert id_of(task.last_good(any=True)) == first.id
                assert task.last_good() is None
                with pytest.raises(EvidenceError, match=r"it answers .*not public; network="):
                    task.restore(saved)
                assert task.recovery().advice == (
                    f"whether the newest checkpoint is good cannot be said here: {checked.refusal}",
                )
                assert store.metrics().verification_success_rate is None
            with lastgood.open(tmp_path / "store", network="any") as store:
                assert store.find_checkpoint(saved.id).verified
                assert id_of(store.get_last_verified_checkpoint("t")) == saved.id
                assert len(store.history("t", kinds=["verified"])) == 0

    def test_what_may_not_be_looked_at_when_it_is_saved_is_pending_until_somebody_may(self, tmp_path: Path) -> None:
        with serving(OK) as server:
            with lastgood.open(tmp_path / "store") as store:
                saved = [store.task(name).save({}, evidence=about(server.port)) for name in ("up", "down")]
                (claim,) = store.find_checkpoint(saved[0].id).evidence_pack.evidence_list
                assert (claim.verification_status, claim.verified_at) == ("pending", None)
                assert "not public" in str(claim.verification_error)
            with lastgood.open(tmp_path / "store", network="any") as store:
                assert id_of(store.last_good("up")) == saved[0].id
                assert id_of(store.get_last_verified_checkpoint("up")) == saved[0].id
        with lastgood.open(tmp_path / "store", network="any") as store:
            assert store.last_good("down") is None
            (claim,) = store.find_checkpoint(saved[1].id).evidence_pack.evidence_list
            assert claim.verification_status == "failed"

    @pytest.mark.parametrize(
        ("rule", "verified", "recorded"),
        [
            ({}, False, True),
            ({"require_all": False, "min_verified": 2}, False, False),
            ({"require_all": False, "allow_partial": True, "min_verified": 2}, False, False),
            ({"require_all": False, "allow_partial": True}, True, True),
        ],
    )
    def test_what_does_not_hang_on_a_refusal_is_recorded(
        self, tmp_path: Path, rule: Any, verified: bool, recorded: bool
    ) -> None:
        """D3: a pack that has failed without it has failed, and one that holds without it holds."""
        there = [Evidence("artifact_exists", name, {"path": name}) for name in ("here", "there")]
        for one in there:
            (tmp_path / one.description).touch()
        with serving(OK) as server:
            pack = EvidencePack([*there, *about(server.port).evidence_list], **rule)
            with lastgood.open(tmp_path / "store", network="any", base_path=tmp_path) as store:
                saved = store.task("t").save({}, evidence=pack)
                assert saved.verified
            (tmp_path / "there").unlink()
            with lastgood.open(tmp_path / "store", base_path=tmp_path) as store:
                assert store.verify_checkpoint(saved.id) is verified
                assert len(store.history("t", kinds=["verified"])) == recorded
                assert store.find_checkpoint(saved.id).verified is (verified or not recorded)

    @pytest.mark.parametrize("network", ["private", "", None, True, ["any"]])
    def test_what_may_be_connected_to_is_said_in_one_of_three_words(self, network: Any) -> None:
        with pytest.raises(InvalidError):
            EvidenceVerifier(network=network)
        with pytest.raises(InvalidError):
            lastgood.open(":memory:", network=network)


class TestNames:
    def test_a_name_that_there_is_not_is_a_mismatch(
        self, verifier: EvidenceVerifier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with resolving(monkeypatch, socket.gaierror(socket.EAI_NONAME, "")):
            error = error_of(verifier, {"host": "no.example.com", "port": 80})
        assert error == "mismatch: there is no host no.example.com"

    def test_a_resolver_that_is_away_cannot_tell(
        self, verifier: EvidenceVerifier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with resolving(monkeypatch, socket.gaierror(socket.EAI_AGAIN, "")) as asked:
            error = error_of(verifier, {"host": "example.com", "port": 80})
        assert error == "check_error: the host example.com cannot be looked up now"
        assert len(asked) == 3

    def test_a_resolver_that_hangs_is_left_behind(
        self, verifier: EvidenceVerifier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        released = threading.Event()

        def hang(*_: Any, **__: Any) -> list[Any]:
            released.wait()
            return []

        monkeypatch.setattr(socket, "getaddrinfo", hang)
        error = error_of(verifier, {"host": "example.com", "port": 80, "timeout": 0.05})
        released.set()
        assert error == "check_error: the host example.com cannot be looked up now"


class TestPatience:
    def test_what_is_not_there_yet_is_waited_for(self) -> None:
        """D9"""
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        waits: list[float] = []

        def listen_the_second_time(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 2:
                listener.listen()

        with listener, EvidenceVerifier(network="any", sleep=listen_the_second_time) as verifier:
            assert error_of(verifier, {"host": "127.0.0.1", "port": listener.getsockname()[1]}) is None
        assert len(waits) == 2

    def test_all_of_it_ends_before_the_deadline(self) -> None:
        """D9: however often may be tried."""
        waits: list[float] = []

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            time.sleep(seconds)

        begun = time.monotonic()
        with EvidenceVerifier(network="any", attempts=1000, sleep=sleep) as verifier:
            error = error_of(verifier, {"host": "127.0.0.1", "port": free_port(), "timeout": 1})
        assert "refuses connections" in str(error)
        assert 0 < sum(waits) < time.monotonic() - begun < 5
        assert sum(waits) < 1

    def test_a_claim_that_cannot_be_checked_is_not_tried_again(self) -> None:
        waits: list[float] = []
        with EvidenceVerifier(sleep=waits.append) as verifier:
            error_of(verifier, {"host": "127.0.0.1", "port": 80})
            error_of(verifier, {"host": "127.0.0.1"})
        assert not waits

    @pytest.mark.parametrize("attempts", [-1, 0, 1])
    def test_it_is_looked_at_once_at_least(self, attempts: int) -> None:
        with serving(OK) as server, EvidenceVerifier(network="any", attempts=attempts) as verifier:
            assert error_of(verifier, {"host": "127.0.0.1", "port": server.port}) is None
            assert "refuses" in str(error_of(verifier, {"host": "127.0.0.1", "port": free_port()}))


class TestClaims:
    @pytest.mark.parametrize(
        "expected",
        [
            {},
            {"host": "localhost"},
            {"port": 80},
            {"host": None, "port": 80},
            {"host": 7, "port": 80},
            {"host": b"localhost", "port": 80},
            *({"host": "localhost", "port": port} for port in (0, -1, 65536, "80", True, 80.0, None, 1 << 70)),
            *(
                {"host": "localhost", "port": 80, "timeout": timeout}
                for timeout in (0, -1, "1", True, float("nan"), float("inf"), 3601, 10**400)
            ),
            {"host": "localhost", "port": 80, "protocol": "udp"},
        ],
    )
    def test_a_claim_that_is_wrongly_shaped_connects_to_nothing(
        self, verifier: EvidenceVerifier, expected: Any
    ) -> None:
        """D1, D2"""
        with watching() as seen:
            assert str(error_of(verifier, expected)).startswith("check_error: the claim")
        assert not seen

    @given(
        st.dictionaries(
            st.sampled_from(["host", "port", "timeout", "other"]),
            st.text(string.printable, max_size=20)
            | st.from_regex(r"[0-9a-fx.:]{1,20}|[a-z.-]{1,20}", fullmatch=True)
            | st.integers(-1, 70_000)
            | st.none()
            | st.booleans()
            | st.floats()
            | st.binary(max_size=3)
            | st.lists(st.integers(), max_size=2),
        )
    )
    @example({"host": "example.com", "port": 80})
    @example({"host": "example.com", "port": 80, "timeout": 1})
    def test_whatever_is_claimed_only_a_sound_claim_is_looked_up(self, expected: dict[str, Any]) -> None:
        """D2: nothing that evidence may say raises, or fails for a reason that was not thought of."""
        nobody = socket.gaierror(socket.EAI_NONAME, "")
        with (
            pytest.MonkeyPatch.context() as monkeypatch,
            resolving(monkeypatch, nobody) as asked,
            watching() as seen,
            EvidenceVerifier(network="any", sleep=never) as verifier,
        ):
            error = str(error_of(verifier, expected))
        assert not seen
        assert error.startswith(("mismatch: there is no host ", "check_error: the claim", "check_error: ")), error
        assert "the check failed" not in error
        host, port, timeout = (expected.get(name) for name in ("host", "port", "timeout"))
        is_sound = (
            isinstance(host, str)
            and type(port) is int
            and 0 < port < 65536
            and (timeout is None or (type(timeout) in (int, float) and 0 < timeout <= 3600))
            and "other" not in expected
        )
        assert is_sound or not asked
        assert not asked or (asked[0].isascii() and not set(asked[0]) & set(" /@[]%\\\t\r\n"))


def test_other_evidence_does_not_pay_for_what_looks_outside(tmp_path: Path) -> None:
    """What a save with evidence has to import before it can begin."""
    code = (
        "import sys, lastgood; verifier = lastgood.EvidenceVerifier()\n"
        "assert verifier.verify_evidence(lastgood.Evidence('artifact_exists', '', {'path': '.'}))\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "lastgood.evidence.check" in modules
    assert not modules & {"socket", "ssl", "subprocess", "http", "lastgood.evidence.connection"}
    assert not modules & {"lastgood.evidence.network", "lastgood.secrets.redaction"}
