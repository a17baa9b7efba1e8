"""Alerts: what a person should know now, and where it goes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from lastgood.model.identity import moment, now
from lastgood.observe.log import current_correlation, log_error

if TYPE_CHECKING:
    from lastgood.observe.meter import Meter

Severity = Literal["warning", "error", "critical"]
MEBIBYTE = 1 << 20
LEFT = 0.9
"""A limit is left at this share of it: what goes up and down around it is one alert, not many."""


class Alert(msgspec.Struct, frozen=True):
    """A message that a person should read now. `code` is stable; docs/reference/metrics.md lists them."""

    message: str
    task_id: str | None = None
    error: Exception | None = None
    code: str = "alert"
    severity: Severity = "error"
    correlation_id: str | None = None
    at: datetime = msgspec.field(default_factory=lambda: moment(now()))


class Alarms:
    """A store's alerts: sent to the log and to `on_alert`.

    What `on_alert` raises is logged. It takes the time of the thread that raises the alert.
    """

    def __init__(self, meter: Meter, on_alert: Callable[[Alert], None] | None, redact: Callable[[str], str]) -> None:
        self._meter = meter
        self._on_alert = on_alert
        self._redact = redact
        self._calling = threading.local()

    def send(
        self, message: str, task_id: str | None, error: Exception | None, code: str, severity: Severity = "error"
    ) -> None:
        """Log an alert, count it, and call `on_alert` with it."""
        message = self._redact(message)
        alert = Alert(message, task_id, error, code, severity, current_correlation())
        log_error(message, task_id=task_id, correlation_id=alert.correlation_id, code=code, severity=severity)
        self._meter.count("alerts", {"code": code})
        self._call(alert)

    def warn_of_cache(self, size: int, limit: int) -> None:
        """Alert that checkpoints in memory take too many bytes."""
        message = f"{size:,} bytes of checkpoints are held in memory, more than {limit:,}"
        self.send(message, None, None, "cache_memory", "warning")

    def _call(self, alert: Alert) -> None:
        """Call `on_alert` in this thread, unless the alert was raised inside it."""
        if self._on_alert is None or getattr(self._calling, "now", False):
            return
        self._calling.now = True
        try:
            self._on_alert(alert)
        except Exception as error:
            log_error(f"on_alert raised {type(error).__name__} for an alert", code=alert.code)
        finally:
            self._calling.now = False
