"""Alerts by HTTP: they arrive, and nobody ever waits for them (A8)."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood import InvalidError, Store, UnavailableError
from lastgood.observe import webhook as webhooks
from lastgood.observe.webhook import Webhook, check_webhook

PATIENCE = 30


class Receiver(ThreadingHTTPServer):
    """Notes what it is sent; answers with `statuses`, the last one for ever; while `closed`, not at all."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server_port}/hook/s3cr3t-path"
        self.statuses = [200]
        self.got: list[Any] = []
        self.paths: list[str] = []
        self.headers: list[Any] = []
        self.came, self.opened = threading.Semaphore(0), threading.Event()
        self.opened.set()

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.came.acquire(timeout=PATIENCE)

    def messages(self) -> list[str]:
        return [body["message"] for body in self.got]


class Answer(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.server.paths.append(self.path)
        self.server.headers.append(self.headers)
        status = self.server.statuses.pop(0) if len(self.server.statuses) > 1 else self.server.statuses[0]
        self.server.came.release()
        assert self.server.opened.wait(PATIENCE)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        """Where a redirect would lead."""
        self.server.paths.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(webhooks, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(webhooks, "CLOSE_SECONDS", float(PATIENCE))
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.opened.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def opened(tmp_path: Path, receiver: Receiver) -> Callable[..., Store]:
    return lambda **options: lastgood.open(
        tmp_path / "store", **{"alert_webhook": receiver.url, "on_failure": "raise", **options}
    )


def delivered(store: Store, outcome: str) -> float:
    return store.metrics().value("alert_deliveries", outcome=outcome)


# --- what arrives ----------------------------------------------------------------------------------------------


def test_an_alert_arrives_as_json(opened: Callable[..., Store], receiver: Receiver) -> None:
    """A7, A8"""

    def fail(*_: Any) -> Any:
        raise UnavailableError("the disk reported an error; nothing was saved")

    with opened() as store, lastgood.correlation("c-1"):
        vars(store.catalog)["commit"] = fail
        with pytest.raises(UnavailableError):
            store.task("t").save({})
    (body,) = receiver.got
    assert body.pop("at")[:2] == "20"
    assert body == {
        "source": "lastgood",
        "code": "save_failed",
        "severity": "error",
        "message": "a checkpoint of 't' was not saved: the disk reported an error; nothing was saved",
        "task_id": "t",
        "correlation_id": "c-1",
        "error": "unavailable",
    }
    assert receiver.paths == ["/hook/s3cr3t-path"]
    assert receiver.headers[0]["Content-Type"] == "application/json"
    assert delivered(store, "sent") == 1


def test_nothing_secret_is_sent(opened: Callable[..., Store], receiver: Receiver) -> None:
    """Neither what the message says, nor what stands beside it; of an error only its kind."""
    token = "ghp_" + "a1B2" * 9
    redaction = lastgood.Redaction(patterns=("canary-[0-9]+",))
    with opened(redaction=redaction) as store:
        told = f"password=hunter2hunter2 and canary-1 and {token}"
        store.alert(told, "task of canary-2", ValueError("canary-3 at /internal/path"))
    (body,) = receiver.got
    assert body["error"] == "ValueError"
    assert not [secret for secret in ("hunter2", "canary-", token, "internal") if secret in json.dumps(body)]


def test_alerts_arrive_in_order_and_are_all_there_when_the_store_is_closed(
    opened: Callable[..., Store], receiver: Receiver
) -> None:
    with opened() as store:
        for n in range(20):
            store.alert(f"alert {n}")
    assert receiver.messages() == [f"alert {n}" for n in range(20)]
    assert delivered(store, "sent") == 20


# --- when it does not ------------------------------------------------------------------------------------------


def test_nobody_waits_for_a_receiver_that_does_not_answer(opened: Callable[..., Store], receiver: Receiver) -> None:
    """The save has returned while the receiver still holds its answer back."""
    receiver.opened.clear()
    with opened(on_failure="continue") as store:
        store.alert("held back")
        receiver.wait()
        saved = store.task("t").save({})
        store.alert("behind it")
        assert saved.status == "stored"
        assert receiver.messages() == ["held back"]
        receiver.opened.set()
    assert receiver.messages() == ["held back", "behind it"]


def test_of_too_many_the_oldest_are_dropped_and_that_is_counted(
    opened: Callable[..., Store], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MOST", 3)
    receiver.opened.clear()
    with opened() as store:
        store.alert("under way")
        receiver.wait()
        for n in range(5):
            store.alert(f"alert {n}")
        assert delivered(store, "dropped") == 2
        receiver.opened.set()
    assert receiver.messages() == ["under way", "alert 2", "alert 3", "alert 4"]
    assert delivered(store, "sent") == 4


@pytest.mark.parametrize("passing", [408, 425, 429, 500, 503])
def test_what_may_pass_is_tried_twice_more(opened: Callable[..., Store], receiver: Receiver, passing: int) -> None:
    receiver.statuses = [passing, passing, 204]
    with opened() as store:
        store.alert("told")
        receiver.wait(3)
    assert receiver.messages() == ["told"] * 3
    assert (delivered(store, "sent"), delivered(store, "failed")) == (1, 0)


def test_after_that_it_is_given_up_and_said_without_the_url(
    opened: Callable[..., Store], receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.statuses = [500]
    with opened() as store:
        store.alert("told")
        receiver.wait(3)
    assert receiver.messages() == ["told"] * 3
    assert (delivered(store, "sent"), delivered(store, "failed")) == (0, 1)
    assert "could not be sent to the webhook: HTTP 500" in caplog.text
    assert "s3cr3t" not in caplog.text


@pytest.mark.parametrize("final", [302, 400, 404, 410])
def test_a_refusal_is_final_and_a_redirect_is_not_followed(
    opened: Callable[..., Store], receiver: Receiver, final: int
) -> None:
    receiver.statuses = [final, 200]
    with opened() as store:
        store.alert("told")
        receiver.wait()
        store.alert("the next")
    assert receiver.messages() == ["told", "the next"]
    assert set(receiver.paths) == {"/hook/s3cr3t-path"}
    assert (delivered(store, "sent"), delivered(store, "failed")) == (1, 1)


def test_a_receiver_that_is_not_there_harms_nobody(
    opened: Callable[..., Store], receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    import socket

    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, and not listening
        with opened(alert_webhook=f"http://127.0.0.1:{nobody.getsockname()[1]}/s3cr3t") as store:
            store.alert("told")
            assert store.task("t").save({}).status == "stored"
    assert delivered(store, "failed") == 1
    assert "ConnectionRefusedError" in caplog.text
    assert "s3cr3t" not in caplog.text


# --- closing, forking ------------------------------------------------------------------------------------------


def test_closing_does_not_wait_for_the_next_attempt(
    opened: Callable[..., Store], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "PAUSES", (3600.0,))
    receiver.statuses = [500]
    with opened() as store:
        store.alert("told")
        receiver.wait()
    assert receiver.messages() == ["told"]
    assert (delivered(store, "failed"), delivered(store, "dropped")) == (1, 0)


def test_closing_has_a_deadline(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """What is left then is dropped, counted and said."""
    counted: list[str] = []
    hook = Webhook(receiver.url, counted.append)
    receiver.opened.clear()
    for message in (b'{"message": "under way"}', b'{"message": "left"}'):
        hook.put(message)
    receiver.wait()
    thread = hook._thread
    assert thread is not None
    assert thread.daemon
    hook.close(0)
    assert counted == ["dropped"]
    assert "1 alert(s) were not sent" in caplog.text
    hook.put(b'{"message": "too late"}')
    assert counted == ["dropped", "dropped"]
    receiver.opened.set()
    thread.join(PATIENCE)
    assert receiver.messages() == ["under way"]
    assert counted == ["dropped", "dropped", "sent"]
    hook.close()


def test_a_thread_without_alerts_ends_and_the_next_alert_begins_another(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "IDLE_SECONDS", 0.0)
    hook = Webhook(receiver.url, lambda outcome: None)
    for message in ("first", "second"):
        hook.put(json.dumps({"message": message}).encode())
        thread = hook._thread
        if thread is not None:
            thread.join(PATIENCE)
        assert hook._thread is None
    assert receiver.messages() == ["first", "second"]
    hook.close()


def test_a_store_that_has_nothing_to_say_has_no_thread(opened: Callable[..., Store], receiver: Receiver) -> None:
    with opened() as store:
        store.task("t").save({})
        assert not [thread for thread in threading.enumerate() if thread.name == "lastgood webhook"]
    assert receiver.got == []


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_a_forked_child_sends_its_own_alerts_only(opened: Callable[..., Store], receiver: Receiver) -> None:
    receiver.opened.clear()
    store = opened()
    store.alert("under way")
    receiver.wait()
    store.alert("the parent's")
    pid = os.fork()
    if pid == 0:
        try:
            store.alert("the child's")
            store.alarms.close()
        finally:
            os._exit(0)
    receiver.wait()
    receiver.opened.set()
    assert os.waitpid(pid, 0)[1] == 0
    store.close()
    assert receiver.messages() == ["under way", "the child's", "the parent's"]


# --- which URLs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        *("", "alerts.example", "ftp://alerts.example/s3cr3t", "file:///etc/s3cr3t", "https://", "https:///s3cr3t"),
        *("HTTPS", "http://[::1/s3cr3t", "http://host:port/s3cr3t", "http://host:0/", "http://host:99999/s3cr3t"),
        *("http://host/s3cr3t\r\nX: y", "http://host/s3cr3t path", "http://höst/s3cr3t", "http://me:s3cr3t@host/"),
        *("http://s3cr3t@host/", "data:text/plain,s3cr3t", 5, b"http://host/", ["http://host/"], True),
    ],
    ids=repr,
)
def test_what_is_no_such_url_is_refused_and_not_repeated(tmp_path: Path, url: Any) -> None:
    with pytest.raises(InvalidError, match="alert_webhook") as caught:
        lastgood.open(tmp_path / "store", alert_webhook=url)
    assert "s3cr3t" not in f"{caught.value}{caught.value.hint}{caught.value.details}"
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("url", ["http://host", "https://host:8443/a/b?token=c#d", "http://[::1]:80/", "HTTPS://Host/"])
def test_what_is_one_is_taken(url: str) -> None:
    check_webhook(url)
