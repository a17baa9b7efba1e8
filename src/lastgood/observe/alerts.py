"""Alerts: what a person should know now, where it goes, and the thresholds that raise some of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from lastgood.errors import InvalidError
from lastgood.local.process import renew_after_fork
from lastgood.model.identity import check_number, moment, now
from lastgood.observe.log import current_correlation, log_error

if TYPE_CHECKING:
    from lastgood.observe.meter import Meter

Severity = Literal["warning", "error", "critical"]
MEBIBYTE = 1 << 20
LEFT = 0.9
"""A threshold is left at this share of it: what goes up and down around it is one alert, not many."""


class Alert(msgspec.Struct, frozen=True):
    """A message that a person should read now. `code` is stable; docs/reference/metrics.md lists them."""

    message: str
    task_id: str | None = None
    error: Exception | None = None
    code: str = "alert"
    severity: Severity = "error"
    correlation_id: str | None = None
    at: datetime = msgspec.field(default_factory=lambda: moment(now()))


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits from which on an alert is sent: once when one is crossed, and again only after it was left. None: never.

    `save_failures` in a row; `spool_checkpoints` and `spool_bytes` that wait for the backend; `cache_bytes` in memory
    (None: the option `cache_alert_bytes` says); `quota_share` of `max_bytes`, which none is set for, because a store
    that keeps to its limit by itself is always near it.
    """

    save_failures: int | None = 3
    spool_checkpoints: int | None = 100
    spool_bytes: int | None = 64 * MEBIBYTE
    cache_bytes: int | None = None
    quota_share: float | None = None

    def __post_init__(self) -> None:
        for name in ("save_failures", "spool_checkpoints", "spool_bytes", "cache_bytes"):
            if (value := getattr(self, name)) is not None:
                check_number(name, value, low=1 if name == "save_failures" else 0)
        share: object = self.quota_share
        if share is not None and not (isinstance(share, int | float) and type(share) is not bool and 0 < share <= 1):
            raise InvalidError("quota_share is no share", hint="give a number above 0, up to 1", field="quota_share")


class Watermark:
    """A limit that a value crosses once, and again only after it has left it. None: there is no limit."""

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self.is_above = False

    def crosses(self, value: float) -> bool:
        """Say whether `value` has just come above the limit."""
        if self.limit is None:
            return False
        crossed = value > self.limit and not self.is_above
        if crossed or value <= self.limit * LEFT:
            self.is_above = crossed
        return crossed


class Alarms:
    """A store's alerts: sent to the log and to `on_alert`, and raised when a threshold is crossed.

    What `on_alert` raises is logged. It takes the time of the thread that raises the alert.
    """

    def __init__(
        self,
        meter: Meter,
        thresholds: Thresholds,
        on_alert: Callable[[Alert], None] | None,
        redact: Callable[[str], str],
        max_bytes: int | None,
    ) -> None:
        self._meter = meter
        self._on_alert = on_alert
        self._redact = redact
        self._max_bytes = max_bytes
        self._calling = threading.local()
        most, share = thresholds.save_failures, thresholds.quota_share
        self._failures = Watermark(None if most is None else most - 1)
        self._depth = Watermark(thresholds.spool_checkpoints)
        self._bytes = Watermark(thresholds.spool_bytes)
        self._quota = Watermark(None if max_bytes is None or share is None else max_bytes * share)
        meter.on_failure = self._check_failures
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        self._lock = threading.RLock()

    def send(
        self, message: str, task_id: str | None, error: Exception | None, code: str, severity: Severity = "error"
    ) -> None:
        """Log an alert, count it, and call `on_alert` with it."""
        message = self._redact(message)
        alert = Alert(message, task_id, error, code, severity, current_correlation())
        log_error(message, task_id=task_id, correlation_id=alert.correlation_id, code=code, severity=severity)
        self._meter.count("alerts", {"code": code})
        self._call(alert)

    # --- thresholds ----------------------------------------------------------------------------------------

    def check_spool(self, checkpoints: int, size: int) -> None:
        """Alert if too many checkpoints, or bytes, wait for the backend."""
        if self._crosses(self._depth, checkpoints):
            self.send(f"{checkpoints:,} checkpoints wait in the spool for the backend", None, None, "spool_depth")
        if self._crosses(self._bytes, size):
            self.send(f"{size:,} bytes wait in the spool for the backend", None, None, "spool_bytes")

    def warn_of_cache(self, size: int, limit: int) -> None:
        """Alert that checkpoints in memory take too many bytes."""
        message = f"{size:,} bytes of checkpoints are held in memory, more than {limit:,}"
        self.send(message, None, None, "cache_memory", "warning")

    def check_size(self, size: int) -> None:
        """Alert if the store takes too many bytes on disk."""
        if self._crosses(self._quota, size):
            message = f"the store takes {size:,} bytes of the {self._max_bytes:,} allowed"
            self.send(message, None, None, "quota", "warning")

    def _check_failures(self, failing: int) -> None:
        if failing == 1:  # one was stored before it
            self._failures.is_above = False
        if self._crosses(self._failures, failing):
            message = f"{failing} checkpoints in a row were not stored"
            self.send(message, None, None, "saves_failing", "critical")

    def _crosses(self, mark: Watermark, value: float) -> bool:
        with self._lock:
            return mark.crosses(value)

    # --- hooks ---------------------------------------------------------------------------------------------

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
