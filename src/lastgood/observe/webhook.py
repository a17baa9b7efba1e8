"""Alerts sent to a URL, as JSON, by a thread of their own: whoever raises one never waits for the network.

A URL of this kind often holds a secret, so it stands in no message and no log.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from lastgood.errors import CheckpointError, InvalidError
from lastgood.local.fork import renew_after_fork
from lastgood.observe.alert import Alert
from lastgood.observe.log import log_warning
from lastgood.secrets.redaction import Redaction

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

MOST = 100
TIMEOUT_SECONDS = 5.0
PAUSES = (1.0, 4.0)
"""Before the second and the third attempt; up to half as long again, so that not everybody comes back at once."""
IDLE_SECONDS = 30.0
CLOSE_SECONDS = 5.0
PASSING = frozenset((408, 425, 429))
"""Refusals that say: later. Others, and redirects, are final."""


def check_webhook(url: object) -> None:
    """A URL of http or https, without a name or password in it. InvalidError; it does not repeat the URL."""
    from urllib.parse import urlsplit

    parts = None
    with suppress(ValueError):
        if isinstance(url, str) and url.isascii() and url.isprintable() and " " not in url:
            found = urlsplit(url)
            parts = found if found.scheme in ("http", "https") and found.hostname and found.port != 0 else None
    if parts is None:
        hint = "give an http or https URL, as in https://alerts.example/hook"
        raise InvalidError("alert_webhook is not such a URL", hint=hint, field="alert_webhook")
    if parts.username is not None or parts.password is not None:
        hint = "leave them out; most receivers take a token in the path or the query"
        raise InvalidError("alert_webhook has a name or password in it", hint=hint, field="alert_webhook")


def body_of(alert: Alert, redaction: Redaction) -> bytes:
    """What is sent. Of an error only what kind it is: its words are in the message, redacted."""
    error = alert.error
    told = {
        "source": "lastgood",
        "code": alert.code,
        "severity": alert.severity,
        "message": alert.message,
        "task_id": alert.task_id,
        "correlation_id": alert.correlation_id,
        "at": alert.at.isoformat(),
        "error": error.code if isinstance(error, CheckpointError) else error and type(error).__name__,
    }
    return msgspec.json.encode(redaction.plain(told))


class Webhook:
    """Sends what is `put`, in order. `count` is told of each what became of it: sent, failed or dropped.

    At most 100 wait; then the oldest is dropped. The thread is a daemon, begins with the first alert and ends when
    there was none for a while. A forked child sends its own only.
    """

    def __init__(self, url: str, count: Callable[[str], None]) -> None:
        self._url = url
        self._count = count
        self._closing = False
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[bytes] = deque()
        self._thread: threading.Thread | None = None

    def put(self, body: bytes) -> None:
        """Never waits for anything but a moment of the other thread's."""
        with self._changed:
            dropped = self._closing or len(self._waiting) >= MOST
            if not self._closing:
                if dropped:
                    self._waiting.popleft()
                self._waiting.append(body)
                self._changed.notify_all()
                self._start()
        if dropped:
            self._count("dropped")

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Each that waits is tried once more; what is left after so many seconds is dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)
        with self._changed:
            left = len(self._waiting)
            self._waiting.clear()
        for _ in range(left):
            self._count("dropped")
        if left:
            log_warning(f"{left} alert(s) were not sent to the webhook before the store was closed")

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="lastgood webhook", daemon=True)
            with suppress(RuntimeError):  # no thread can be had now: the next alert tries again
                thread.start()
                self._thread = thread

    def _work(self) -> None:
        while (body := self._next()) is not None:
            self._deliver(body)

    def _next(self) -> bytes | None:
        """The next to be sent; None when there is none for a while, or no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing, IDLE_SECONDS)
            if self._waiting:
                return self._waiting.popleft()
            self._thread = None
            return None

    def _deliver(self, body: bytes) -> None:
        for pause in (*PAUSES, None):
            status, what = self._post(body)
            if 200 <= status < 300:
                self._count("sent")
                return
            is_final = 300 <= status < 500 and status not in PASSING
            if pause is None or is_final or self._is_closing_after(pause):
                break
        self._count("failed")
        log_warning(f"an alert could not be sent to the webhook: {what}")

    def _is_closing_after(self, pause: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._closing, pause * (1 + random.random() / 2))  # noqa: S311

    def _post(self, body: bytes) -> tuple[int, str]:
        """The status of the answer, 0 when there was none; and that in words."""
        from urllib.error import HTTPError
        from urllib.request import Request

        headers = {"Content-Type": "application/json", "User-Agent": "lastgood"}
        request = Request(self._url, body, headers, method="POST")  # noqa: S310
        try:
            with _opener().open(request, timeout=TIMEOUT_SECONDS) as answer:
                return answer.status, f"HTTP {answer.status}"
        except HTTPError as error:
            error.close()
            return error.code, f"HTTP {error.code}"
        except Exception as error:  # whatever a network, a proxy or a server can do
            return 0, type(getattr(error, "reason", error)).__name__


def _opener() -> OpenerDirector:
    """For http and https alone, through the proxy that the environment names; it follows no redirect."""
    from urllib import request

    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler(),
        request.HTTPHandler(),
        request.HTTPSHandler(),
        request.HTTPDefaultErrorHandler(),
        request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener
