"""Evidence about services asks what changes nothing, believes nothing, waits for nobody too long, tells no secret
(D1, D9, D10)."""

from __future__ import annotations

import os
import socket
import ssl
import string
import subprocess
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.servers import (
    OK,
    Behave,
    black_hole,
    connections_to,
    dripping,
    falling_silent,
    forever,
    free_port,
    serving,
    watching,
)

import lastgood
from lastgood.errors import InvalidError
from lastgood.evidence.check import NotYet
from lastgood.evidence.connection import MAX_BODY, BoundedConnection, get
from lastgood.evidence.verifier import EvidenceVerifier
from lastgood.model.evidence import Evidence, EvidencePack

CANARY = "hunter2canary"
JSON = b'{"status": "green", "nodes": [{"up": true, "n": 1}, {"up": false, "n": 2.5}], "none": null, "a.b": 1}'
HEAD = b"HTTP/1.1 200 OK\r\n"
CUT_OFF = "mismatch: the answer was cut off"
NOT_HTTP = "mismatch: the answer is not HTTP as it should be"
TOO_LONG = "check_error: the answer is longer than the 1 MB that evidence reads"
ENDLESS = "check_error: the answer is longer than evidence reads"
ENDLESS_HEAD = "check_error: the head of the answer is longer than evidence reads"


@pytest.fixture
def verifier() -> Iterator[EvidenceVerifier]:
    with EvidenceVerifier(network="any", sleep=never, timeout=600) as opened:
        yield opened


def never(seconds: float) -> None:
    """Waiting without a clock."""


def error_of(verifier: EvidenceVerifier, expected: Any) -> str | None:
    evidence = Evidence("api_response", "it answers", expected)
    verifier.verify_evidence(evidence)
    return evidence.verification_error


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    parts = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + parts + end


class TestAnswers:
    def test_a_real_server_answers_as_it_should(self, verifier: EvidenceVerifier, tmp_path: Path) -> None:
        """D1"""
        (tmp_path / "health.json").write_bytes(JSON)

        class Handler(SimpleHTTPRequestHandler):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments, directory=str(tmp_path))

            def log_message(self, *_: Any) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            url = f"http://localhost:{server.server_port}/health.json"
            common = {"url": url, "status": 200}
            assert error_of(verifier, common) is None
            assert error_of(verifier, common | {"contains": "green"}) is None
            assert error_of(verifier, common | {"json": {"status": "green", "nodes.1.n": 2.5}}) is None
            assert error_of(verifier, {"url": url + "x", "status": [200, 404]}) is None
            error = error_of(verifier, {"url": url + "x", "status": 200})
            assert error == f"mismatch: {url}x answered with 404, not 200"
            server.shutdown()
            thread.join()

    @pytest.mark.parametrize(
        "data",
        [
            OK,
            chunked(b"hello"),
            chunked(b"he", b"l", b"lo"),
            chunked(b"hello", end=b"0;last\r\nTrailer: x\r\n\r\n"),
            HEAD + b"Transfer-Encoding: CHUNKED\r\nContent-Length: 3\r\n\r\n0005 ;x=y\r\nhello\r\n0\r\n\r\n",
            HEAD + b"\r\nhello",
            HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello and more",
            b"HTTP/1.0 200\r\n\r\nhello",
            OK.replace(b"\r\n", b"\n"),
            b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
            HEAD + b"Content-Encoding: identity\r\n\r\nhello",
        ],
    )
    def test_a_body_is_read_however_it_is_sent(self, verifier: EvidenceVerifier, data: bytes) -> None:
        with serving(data) as server:
            assert error_of(verifier, {"url": server.url, "status": 200, "contains": "hello"}) is None
        assert read(data) == (200, b"hello")

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("status", "green"),
            ("nodes.0.up", True),
            ("nodes.0.n", 1),
            ("nodes.0.n", 1.0),
            ("nodes.1", {"n": 2.5, "up": False}),
            ("none", None),
        ],
    )
    def test_a_value_of_the_json_holds(self, verifier: EvidenceVerifier, path: str, value: Any) -> None:
        with serving(answer(JSON)) as server:
            assert error_of(verifier, {"url": server.url, "status": 200, "json": {path: value}}) is None

    @pytest.mark.parametrize(
        ("body", "path", "value", "error"),
        [
            (JSON, "status", "red", "the answer has another value at status"),
            (JSON, "nodes.0.up", 1, "the answer has another value at nodes.0.up"),
            (JSON, "nodes.0.n", True, "the answer has another value at nodes.0.n"),
            (JSON, "nodes.0.n", "1", "the answer has another value at nodes.0.n"),
            (JSON, "nodes.0", {"up": 1, "n": 1}, "the answer has another value at nodes.0"),
            (JSON, "nodes", [], "the answer has another value at nodes"),
            (JSON, "none", False, "the answer has another value at none"),
            (JSON, "a.b", 1, "the answer has nothing at a.b"),
            (JSON, "nodes.2.up", True, "the answer has nothing at nodes.2.up"),
            (JSON, "nodes.-1.up", False, "the answer has nothing at nodes.-1.up"),
            (JSON, "nodes.0000000001.n", 1, "the answer has nothing at nodes.0000000001.n"),
            (JSON, "nodes.٠.n", 1, "the answer has nothing at nodes.٠.n"),
            (JSON, f"nodes.{'9' * 5000}", 1, None),
            (JSON, "status.x", 1, "the answer has nothing at status.x"),
            (b"", "status", 1, "the answer is not JSON"),
            (b"{", "status", 1, "the answer is not JSON"),
            (b"\xff", "status", 1, "the answer is not JSON"),
            (b"[" * 500_000, "status", 1, "the answer is not JSON"),
            (b'{"n": ' + b"9" * 900_000 + b"}", "n", 1, None),
        ],
    )
    def test_another_value_of_the_json_is_a_mismatch(
        self, verifier: EvidenceVerifier, body: bytes, path: str, value: Any, error: str | None
    ) -> None:
        with serving(answer(body)) as server:
            found = str(error_of(verifier, {"url": server.url, "status": 200, "json": {path: value}}))
        assert found.startswith("mismatch: the answer ")
        assert error is None or found == f"mismatch: {error}"

    def test_an_answer_that_differs_is_a_mismatch(self, verifier: EvidenceVerifier) -> None:
        with serving(OK) as server:
            error = error_of(verifier, {"url": server.url, "status": 200, "contains": "goodbye"})
        assert error == "mismatch: the answer does not contain the claim's text"

    def test_what_nobody_asks_about_is_not_read(self, verifier: EvidenceVerifier) -> None:
        with serving(falling_silent(HEAD + b"Content-Length: 999999999999\r\n\r\n")) as server:
            assert error_of(verifier, {"url": server.url, "status": 200}) is None

    def test_an_answer_without_content_has_no_body(self) -> None:
        assert read(answer(b"", status="204 No Content").replace(b": 0", b": 7")) == (204, b"")

    def test_many_are_looked_at_in_parallel_with_other_evidence(self, verifier: EvidenceVerifier) -> None:
        """D10: each answer is held back until all are asked for."""
        together = threading.Barrier(4, timeout=60)

        def meet(client: socket.socket) -> None:
            together.wait()
            client.sendall(OK)

        with serving(meet) as server:
            claims = [Evidence("api_response", "", {"url": server.url, "status": 200}) for _ in range(4)]
            claims.append(Evidence("artifact_exists", "", {"path": "."}))
            assert verifier.verify_multiple(claims)["all_passed"]


class TestRequests:
    def test_a_request_is_plain_and_carries_nothing(self, verifier: EvidenceVerifier) -> None:
        with serving(OK) as server:
            assert error_of(verifier, {"url": f"{server.url}/a%20b/?q=1&r#part", "status": 200}) is None
        (request,) = server.requests
        first, *headers = request.decode().split("\r\n")
        assert first == "GET /a%20b/?q=1&r HTTP/1.1"
        names = {header.partition(":")[0] for header in headers if header}
        assert names == {"Host", "User-Agent", "Accept", "Accept-Encoding", "Connection"}
        assert f"Host: 127.0.0.1:{server.port}" in headers

    def test_redirections_are_not_followed(self, verifier: EvidenceVerifier) -> None:
        with (
            serving(OK) as elsewhere,
            serving(answer(b"", f"Location: {elsewhere.url}/", status="302 Found")) as server,
        ):
            assert error_of(verifier, {"url": server.url, "status": 302}) is None
            error = error_of(verifier, {"url": server.url, "status": 200})
        assert error == f"mismatch: {server.url}/ answered with 302, not 200"
        assert not elsewhere.requests

    def test_proxies_of_the_environment_are_not_used(
        self, verifier: EvidenceVerifier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with serving(OK) as proxy, serving(OK) as server:
            for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
                monkeypatch.setenv(name, proxy.url)
            assert error_of(verifier, {"url": server.url, "status": 200}) is None
        assert not proxy.requests

    @pytest.mark.parametrize("status", [503, 429, 500])
    def test_what_may_pass_is_asked_for_again(self, status: int) -> None:
        """D9"""
        waits: list[float] = []
        with (
            EvidenceVerifier(network="any", sleep=waits.append) as verifier,
            serving(answer(b"", status=f"{status} Not Now"), b"", OK) as server,
        ):
            assert error_of(verifier, {"url": server.url, "status": 200}) is None
            assert (len(server.requests), len(waits)) == (3, 2)
            assert error_of(verifier, {"url": server.url, "status": status}) is not None
            assert len(waits) == 2  # 200 is an answer that stays


class TestMisbehaviour:
    @pytest.mark.parametrize(
        ("data", "error"),
        [
            (b"", CUT_OFF),
            (b"HTTP/1.1 200", CUT_OFF),
            (HEAD + b"X: y", CUT_OFF),
            (HEAD + b"Content-Length: 6\r\n\r\nhello", CUT_OFF),
            (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel", CUT_OFF),
            (chunked(b"hello", end=b""), CUT_OFF),
            (chunked(b"hello", end=b"0\r\n"), CUT_OFF),
            (chunked(b"hello", end=b"0"), CUT_OFF),
            (b"\r\n\r\n", NOT_HTTP),
            (b"SSH-2.0-OpenSSH_9.2\r\n", NOT_HTTP),
            (b"HTTP/2 200\r\n\r\n", NOT_HTTP),
            (b"HTTP/1.1 abc\r\n\r\n", NOT_HTTP),
            (b"HTTP/1.1 2000 OK\r\n\r\n", NOT_HTTP),
            (HEAD + b"no colon\r\n\r\n", NOT_HTTP),
            (HEAD + b"X : y\r\n\r\n", NOT_HTTP),
            (HEAD + b"X: a\rb\r\n\r\n", NOT_HTTP),
            (HEAD + b"Content-Length: -5\r\n\r\nhello", NOT_HTTP),
            (HEAD + b"Content-Length: 5, 5\r\n\r\nhello", NOT_HTTP),
            (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", NOT_HTTP),
            (HEAD + b"Content-Length: \xb5\r\n\r\nhello", NOT_HTTP),
            (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", NOT_HTTP),
            (chunked(end=b"zz\r\n"), NOT_HTTP),
            (chunked(end=b"-5\r\nhello\r\n"), NOT_HTTP),
            (chunked(end=b"\r\n"), NOT_HTTP),
            (chunked(end=b"5\r\nhello!\r\n0\r\n\r\n"), NOT_HTTP),
            (chunked(end=b"5" * 2000), CUT_OFF),
            (chunked(end=b"ffffffffffffffff\r\nhello"), CUT_OFF),
            (HEAD + b"Content-Length: 1000001\r\n\r\n", TOO_LONG),
            (HEAD + b"Content-Length: 999999999999999999\r\n\r\n", TOO_LONG),
            (HEAD + b"Content-Length: 9999999999999999999\r\n\r\n", TOO_LONG),
            (chunked(bytes(MAX_BODY), b"x"), TOO_LONG),
            (HEAD + b"\r\n" + bytes(MAX_BODY + 1), TOO_LONG),
            (HEAD + b"X: " + b"y" * 70_000 + b"\r\n\r\n", ENDLESS_HEAD),
            (HEAD + b"X: y\r\n" * 12_000 + b"\r\n", NOT_HTTP),
            (
                HEAD + b"Content-Encoding: gzip\r\n\r\nhello",
                "check_error: the answer is compressed, though that was not asked for, so its content is not read",
            ),
        ],
    )
    def test_an_answer_that_is_wrong_fails_the_evidence(
        self, verifier: EvidenceVerifier, data: bytes, error: str
    ) -> None:
        with serving(data) as server:
            assert error_of(verifier, {"url": server.url, "status": 200, "contains": "hello"}) == error

    def test_a_body_of_just_the_bound_is_read(self, verifier: EvidenceVerifier) -> None:
        body = bytes(MAX_BODY - 5) + b"hello"
        for data in (answer(body), chunked(body), HEAD + b"\r\n" + body):
            with serving(data) as server:
                assert error_of(verifier, {"url": server.url, "status": 200, "contains": "hello"}) is None

    @pytest.mark.parametrize(
        ("behave", "error"),
        [
            (forever(b"x" * 65536), ENDLESS_HEAD),
            (forever(b"HTTP/1.1 100 Continue\r\n\r\n" * 100), ENDLESS),
            (lambda client: (client.sendall(HEAD), forever(b"X: y\r\n" * 1000)(client)), NOT_HTTP),
            (lambda client: (client.sendall(HEAD + b"\r\n"), forever(b"x" * 65536)(client)), TOO_LONG),
            (
                lambda client: (
                    client.sendall(chunked(end=b"")),
                    forever((b"100\r\n" + b"x" * 256 + b"\r\n") * 100)(client),
                ),
                TOO_LONG,
            ),
            (lambda client: (client.sendall(chunked(end=b"0\r\n")), forever(b"X: y\r\n" * 1000)(client)), ENDLESS),
            (
                lambda client: (client.sendall(chunked(end=b"")), forever(b"1;" + b"x" * 900 + b"\r\nx\r\n")(client)),
                ENDLESS,
            ),
        ],
    )
    def test_an_answer_without_end_takes_no_memory(
        self, verifier: EvidenceVerifier, behave: Behave, error: str
    ) -> None:
        with serving(behave) as server:
            tracemalloc.start()
            try:
                assert error_of(verifier, {"url": server.url, "status": 200, "contains": "hello"}) == error
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        assert peak < 8 * MAX_BODY

    @pytest.mark.parametrize(
        "behave",
        [
            falling_silent(),
            falling_silent(HEAD + b"Content-Length: 5\r\n\r\nhell"),
            falling_silent(chunked(b"hello", end=b"")),
            dripping(b"", b"H"),
            dripping(b"HTTP/1.1 200 OK\r\nX: ", b"y"),
            dripping(HEAD, b"X: y\r\n"),
            dripping(HEAD + b"Content-Length: 100000\r\n\r\n", b"x"),
            dripping(HEAD + b"\r\n", b"x"),
            dripping(chunked(end=b""), b"1\r\nx\r\n"),
            dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        ],
    )
    def test_an_answer_that_does_not_come_is_waited_for_until_the_deadline(
        self, verifier: EvidenceVerifier, behave: Behave
    ) -> None:
        """However often something comes, the time is for all of it."""
        with serving(behave) as server:
            error = error_of(verifier, {"url": server.url, "status": 200, "contains": "hello", "timeout": 0.2})
        assert error == f"mismatch: {server.url}/ gave no answer in time"

    def test_a_server_that_is_away_is_a_mismatch(self, verifier: EvidenceVerifier) -> None:
        url = f"http://127.0.0.1:{free_port()}/"
        assert error_of(verifier, {"url": url, "status": 200}) == f"mismatch: {url} refuses connections"
        with black_hole() as port:
            url = f"http://127.0.0.1:{port}/"
            error = error_of(verifier, {"url": url, "status": 200, "timeout": 0.1})
            assert error == f"mismatch: {url} gave no answer in time"

    def test_nothing_is_left_open(self, verifier: EvidenceVerifier) -> None:
        with serving(falling_silent(HEAD), b"", OK) as server:
            claim = {"url": server.url, "status": 200}
            error_of(verifier, claim | {"contains": "x", "timeout": 0.05})
            for _ in range(3):
                error_of(verifier, claim | {"contains": "goodbye"})
            assert connections_to(server.address) == 0


def read(data: bytes, pieces: list[int] | None = None) -> tuple[int, bytes]:
    """What is understood of an answer that comes in pieces of these sizes, then ends."""
    here, there = socket.socketpair()
    ends = accumulate(pieces or [])
    with there, BoundedConnection(here, time.monotonic() + 60) as connection:
        begin = 0
        for end in [*(end for end in ends if end < len(data)), len(data)]:
            there.sendall(data[begin:end])
            begin = end
        there.shutdown(socket.SHUT_WR)
        return get(connection, "/", "localhost", read_body=True)


class TestReading:
    @given(st.lists(st.binary(min_size=1, max_size=300), max_size=20), st.lists(st.integers(1, 50), max_size=20))
    def test_a_body_comes_back_however_it_is_cut(self, chunks: list[bytes], pieces: list[int]) -> None:
        body = b"".join(chunks)
        for data in (answer(body), chunked(*chunks), HEAD + b"\r\n" + body):
            assert read(data, pieces) == (200, body)

    @given(st.lists(st.binary(min_size=1, max_size=300), max_size=20), st.data())
    def test_an_answer_that_lacks_its_end_is_never_taken_for_whole(
        self, chunks: list[bytes], data: st.DataObject
    ) -> None:
        for whole in (answer(b"".join(chunks)), chunked(*chunks)):
            cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
            with pytest.raises(NotYet):
                read(cut)

    @given(st.data())
    def test_whatever_a_server_sends_is_an_answer_or_is_refused(self, data: st.DataObject) -> None:
        """Answers with a few bytes changed, and no answers at all."""
        sent = bytearray(data.draw(st.sampled_from([OK, chunked(b"hello", b"x" * 20), answer(JSON, "X: y"), b""])))
        for _ in range(data.draw(st.integers(0, 5))):
            at = data.draw(st.integers(0, len(sent)))
            sent[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
        with suppress(NotYet, InvalidError):
            assert len(read(bytes(sent))[1]) <= len(sent)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for localhost, with its key, made here and now by the openssl program."""
    folder = tmp_path_factory.mktemp("certificate")
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += ["-subj", "/CN=localhost", "-addext", names, "-keyout", "key.pem", "-out", "certificate.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def context(certificate: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate / "certificate.pem", certificate / "key.pem")
    return made


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "certificate.pem"))


class TestTls:
    @pytest.mark.usefixtures("trusted")
    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "LocalHost"])
    def test_a_server_with_a_valid_certificate_is_asked(
        self, verifier: EvidenceVerifier, context: ssl.SSLContext, host: str
    ) -> None:
        for data in (OK, chunked(b"hello"), HEAD + b"\r\nhello"):
            with serving(data, context=context) as server:
                claim = {"url": f"https://{host}:{server.port}/x", "status": 200, "contains": "hello"}
                assert error_of(verifier, claim) is None
                assert server.requests[0].startswith(b"GET /x HTTP/1.1\r\n")

    def test_a_certificate_of_nobody_known_is_refused(
        self, verifier: EvidenceVerifier, context: ssl.SSLContext
    ) -> None:
        with serving(OK, context=context) as server:
            error = error_of(verifier, {"url": f"https://localhost:{server.port}/", "status": 200})
        assert str(error).startswith(
            f"mismatch: https://localhost:{server.port}/ has a certificate that is not valid: "
        )
        assert not server.requests

    @pytest.mark.usefixtures("trusted")
    def test_a_certificate_for_another_host_is_refused(
        self, verifier: EvidenceVerifier, context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", lambda host, port, **more: real("127.0.0.1", port, **more))
        with serving(OK, context=context) as server:
            error = error_of(verifier, {"url": f"https://other.example.com:{server.port}/", "status": 200})
        assert "has a certificate that is not valid: Hostname mismatch" in str(error)
        assert not server.requests

    @pytest.mark.usefixtures("trusted")
    def test_a_server_that_speaks_no_tls_is_refused(self, verifier: EvidenceVerifier) -> None:
        with serving(falling_silent(b"220 mail.example.com ESMTP\r\n"), listens=False) as server:
            url = f"https://localhost:{server.port}/"
            assert error_of(verifier, {"url": url, "status": 200}) == f"mismatch: {url} cannot agree on TLS"

    @pytest.mark.usefixtures("trusted")
    @pytest.mark.parametrize(
        "behave", [falling_silent(), dripping(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc\x03\x03", b"x")]
    )
    def test_a_handshake_that_does_not_end_is_waited_for_until_the_deadline(
        self, verifier: EvidenceVerifier, behave: Behave
    ) -> None:
        def ignore_what_is_said(client: socket.socket) -> None:
            client.recv(65536)
            behave(client)

        with serving(ignore_what_is_said, listens=False) as server:
            url = f"https://127.0.0.1:{server.port}/"
            error = error_of(verifier, {"url": url, "status": 200, "timeout": 0.2})
        assert error == f"mismatch: {url} gave no answer in time"

    @pytest.mark.usefixtures("trusted")
    def test_an_answer_over_tls_that_drips_is_waited_for_until_the_deadline(
        self, verifier: EvidenceVerifier, context: ssl.SSLContext
    ) -> None:
        with serving(dripping(HEAD, b"X: y\r\n"), context=context) as server:
            url = f"https://127.0.0.1:{server.port}/"
            error = error_of(verifier, {"url": url, "status": 200, "timeout": 0.3})
        assert error == f"mismatch: {url} gave no answer in time"

    @pytest.mark.usefixtures("trusted")
    def test_an_answer_that_was_cut_off_does_not_look_whole(
        self, verifier: EvidenceVerifier, context: ssl.SSLContext
    ) -> None:
        """The end of the connection is the end of the answer only where TLS says so."""

        def cut(client: socket.socket) -> None:
            client.sendall(HEAD + b"\r\nhello")
            with socket.socket(fileno=os.dup(client.fileno())) as below:
                below.shutdown(socket.SHUT_RDWR)

        with serving(cut, context=context) as server:
            url = f"https://localhost:{server.port}/"
            error = error_of(verifier, {"url": url, "status": 200, "contains": "hello"})
        assert error == f"mismatch: {url} broke the connection off"


class TestSecrets:
    @pytest.mark.parametrize(
        "data",
        [
            OK,
            b"",
            b"nonsense\r\n",
            answer(b"", status="404 Not Found"),
            answer(b"", status="503 Away"),
            chunked(bytes(MAX_BODY), b"x"),
        ],
    )
    def test_no_error_tells_what_stands_in_the_query(self, verifier: EvidenceVerifier, data: bytes) -> None:
        """D10"""
        query = f"q={CANARY}&{CANARY}&token={CANARY}&empty=&&x={CANARY}={CANARY}"
        with serving(data) as server:
            for path in ("/a", "/"):
                claim = {"url": f"{server.url}{path}?{query}#{CANARY}", "status": 201, "contains": CANARY}
                error = error_of(verifier, claim)
                assert error is not None
                assert CANARY not in error
        if b"404" in data:
            masked = "q=[redacted]&[redacted]&token=[redacted]&empty=&&x=[redacted]"
            assert error == f"mismatch: {server.url}/?{masked} answered with 404, not 201"

    @pytest.mark.parametrize(
        "url",
        [
            f"http://user:{CANARY}@127.0.0.1/",
            f"https://{CANARY}@127.0.0.1/",
            f"http://@127.0.0.1:80/{CANARY}",
            f"http://example.com@{CANARY}/",
            f"http://127.0.0.1\\@{CANARY}/",
            f"http://{CANARY}:@127.0.0.1:80@example.com/",
        ],
    )
    def test_credentials_in_a_url_are_refused_and_not_told(self, verifier: EvidenceVerifier, url: str) -> None:
        with watching() as seen:
            error = error_of(verifier, {"url": url, "status": 200})
        assert error == "check_error: the claim's url holds credentials, which evidence never sends"
        assert not seen

    def test_what_the_server_says_is_not_told(self, verifier: EvidenceVerifier) -> None:
        said = answer(f'{{"a": "{CANARY}"}}'.encode(), f"X-Key: {CANARY}", status=f"200 {CANARY}")
        with serving(said) as server:
            for condition in ({"json": {"a": 1}}, {"json": {"b": 1}}, {"contains": "x"}, {"status": 201}):
                assert CANARY not in str(error_of(verifier, {"url": server.url, "status": 200} | condition))

    def test_a_token_in_the_query_is_not_stored(self, tmp_path: Path) -> None:
        """D10: it is checked with its secret, kept without, and cannot be checked again."""
        with serving(OK) as server, lastgood.open(tmp_path / "store", network="any") as store:
            claim = Evidence("api_response", "it is up", {"url": f"{server.url}/?token={CANARY}", "status": 200})
            saved = store.task("t").save({}, evidence=EvidencePack([claim]))
            assert saved.verified
            assert server.requests[0].startswith(f"GET /?token={CANARY} ".encode())
            assert not store.verify_checkpoint(saved.id)
            assert store.find_checkpoint(saved.id).evidence_pack.evidence_list[0].verification_status == "stale"
        for file in tmp_path.rglob("*"):
            assert not file.is_file() or CANARY.encode() not in file.read_bytes()

    def test_services_are_asked_anew_each_time(self, tmp_path: Path) -> None:
        """D11"""
        with lastgood.open(tmp_path / "store", network="any") as store, serving(OK, answer(b"")) as server:
            (tmp_path / "work").mkdir()
            task = store.task("t", workspace=tmp_path / "work")
            claim = Evidence("api_response", "it is up", {"url": server.url, "status": 200, "contains": "hello"})
            saved = task.save({}, evidence=EvidencePack([claim]))
            assert saved.verified
            assert not store.verify_checkpoint(saved.id)
            assert len(server.requests) == 2


URL = "http://127.0.0.1/"
WRONG: dict[str, list[Any]] = {
    "url": [
        *("", "127.0.0.1", "//127.0.0.1/", "ftp://127.0.0.1/", "file:///etc/passwd", "http:/127.0.0.1/"),
        *("http://", "http:///x", "http://:80/", "http://127.0.0.1:0/", "http://127.0.0.1:65536/"),
        *("http://127.0.0.1:/x y", "http://127.0.0.1/\r\nX: y", "http://127.0.0.1/é", " http://127.0.0.1/"),
        *("http://127.0.0.1/\t", "http://127.0.0.1:-1/", "http://127.0.0.1:+80/", "http://127.0.0.1:٨٠/"),
        *("http://[::1/", "http://::1/", "http://[::1]x/", "http://[v1.x]/", "http://[fe80::1%25lo]/"),
        *("http://0x7f.1/", "http://2130706433/", "http://127.1/", "http://0177.0.0.1/", "http://%31/"),
        *("http://ⅼocalhost/", "http+unix://x/", "http://a b/", URL + "x" * 9000, 7, None, b"http://x/"),
    ],
    "status": [None, 0, 99, 600, "200", True, 200.0, [], [200, "x"], {}, [[]], [200] * 101],
    "json": [{}, [], "x", {1: 1}, {"": 1}, dict.fromkeys(map(str, range(101)))],
    "contains": ["", 1, b"x", "\ud800", "x" * 10_000],
    "timeout": [0, -1, "1", True, float("nan")],
    "contians": ["hello"],
    "method": ["POST"],
}


class TestClaims:
    @pytest.mark.parametrize(
        "expected",
        [
            {},
            {"url": URL},
            {"status": 200},
            *({"url": URL, "status": 200} | {field: value} for field, values in WRONG.items() for value in values),
        ],
    )
    def test_a_claim_that_is_wrongly_shaped_connects_to_nothing(
        self, verifier: EvidenceVerifier, expected: Any
    ) -> None:
        """D1, D2"""
        with watching() as seen:
            error = str(error_of(verifier, expected))
        assert error.startswith("check_error: ")
        assert "the check failed" not in error
        assert not seen

    @given(
        st.from_regex(r"(?i)https?://[^/]{0,20}(/.{0,10})?", fullmatch=True)
        | st.from_regex(r"https?://[a-z0-9.:@\[\]%#?\\-]{1,20}[/?#\\]?.{0,10}", fullmatch=True)
        | st.text(string.printable, max_size=30).map("http://".__add__)
    )
    @example("http://example.com")
    @example("http://example.com:8080?x#y")
    @example("http://example.com#@evil.com/")
    @example("http://example.com?@evil.com/")
    @example("http://example.com/@evil.com/")
    def test_only_the_host_that_others_would_ask_is_looked_up(self, url: str) -> None:
        """What one reader takes for the host, another may take for something else: nothing of that kind is asked."""
        asked = []

        def look_up(host: bytes, port: int, **_: Any) -> list[Any]:
            asked.append((host.decode(), port))
            raise socket.gaierror(socket.EAI_NONAME, "")

        with (
            pytest.MonkeyPatch.context() as monkeypatch,
            watching() as seen,
            EvidenceVerifier(network="any", attempts=1) as verifier,
        ):
            monkeypatch.setattr(socket, "getaddrinfo", look_up)
            error = str(error_of(verifier, {"url": url, "status": 200}))
        assert "the check failed" not in error
        assert not seen
        if asked:
            parts = urlsplit(url)
            assert parts.username is None
            assert parts.scheme in ("http", "https")
            assert [(str(parts.hostname), parts.port or {"http": 80, "https": 443}[parts.scheme])] == asked

    @given(
        st.dictionaries(
            st.sampled_from(["url", "method", "status", "json", "contains", "timeout"]),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(URL),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            ),
        )
    )
    def test_whatever_is_claimed_is_answered(self, expected: dict[str, Any]) -> None:
        """D2"""
        with EvidenceVerifier(network="off") as verifier:
            error = str(error_of(verifier, expected))
            full = str(error_of(verifier, {"url": URL, "status": 200} | expected))
        assert error.startswith("check_error: ")
        assert full.startswith(("check_error: ", "evidence makes no connections here"))
        assert "the check failed" not in error + full
