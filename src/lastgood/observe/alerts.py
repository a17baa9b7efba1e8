"""Where alerts go: the log and the program's own function. And the thresholds that raise some of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lastgood.local.fork import renew_after_fork
from lastgood.observe.alert import Alert, Severity
from lastgood.observe.log import current_correlation, log_error

if TYPE_CHECKING:
    from lastgood.engine.options import Options
    from lastgood.observe.meter import Meter

LEFT = 0.9
"""A threshold is left at this share of it: what goes up and down around it is one alert, not many."""


class Watermark:
    """Tells when a value has come above `limit`, and again only after it was left. None: there is no limit."""

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self.is_above = False

    def crosses(self, value: float) -> bool:
        if self.limit is None:
            return False
        crossed = value > self.limit and not self.is_above
        if crossed or value <= self.limit * LEFT:
            self.is_above = crossed
        return crossed


class Alarms:
    """Of one store. Nothing that a hook does reaches whoever raises an alert, except the time that `on_alert` takes."""

    def __init__(self, options: Options, meter: Meter) -> None:
        self._options = options
        self._meter = meter
        self._telling = threading.local()
        wanted, most = options.thresholds, options.max_bytes
        self._failures = Watermark(None if wanted.save_failures is None else wanted.save_failures - 1)
        self._depth = Watermark(wanted.spool_checkpoints)
        self._bytes = Watermark(wanted.spool_bytes)
        self._cache = Watermark(options.cache_alert_bytes if wanted.cache_bytes is None else wanted.cache_bytes)
        self._quota = Watermark(None if most is None or wanted.quota_share is None else most * wanted.quota_share)
        meter.on_failure = self._look_at_failures
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        self._lock = threading.RLock()

    def send(
        self, message: str, task_id: str | None, error: Exception | None, code: str, severity: Severity = "error"
    ) -> None:
        message = self._options.redaction.text(message)
        alert = Alert(message, task_id, error, code, severity, current_correlation())
        log_error(message, task_id=task_id, correlation_id=alert.correlation_id, code=code, severity=severity)
        self._meter.count("alerts", {"code": code})
        self._call(alert)

    # --- thresholds ----------------------------------------------------------------------------------------

    def look_at_spool(self, checkpoints: int, size: int) -> None:
        """So many checkpoints, and bytes, wait for the backend."""
        if self._crosses(self._depth, checkpoints):
            self.send(f"{checkpoints:,} checkpoints wait in the spool for the backend", None, None, "spool_depth")
        if self._crosses(self._bytes, size):
            self.send(f"{size:,} bytes wait in the spool for the backend", None, None, "spool_bytes")

    def look_at_cache(self, size: int) -> None:
        """Checkpoints in memory take so many bytes."""
        if self._crosses(self._cache, size):
            limit = self._cache.limit
            told = f"{size:,} bytes of checkpoints are held in memory, more than {limit:,}"
            self.send(told, None, None, "cache_memory", "warning")

    def look_at_store(self, size: int) -> None:
        """The store takes so many bytes on disk."""
        if self._crosses(self._quota, size):
            told = f"the store takes {size:,} bytes of the {self._options.max_bytes:,} allowed"
            self.send(told, None, None, "quota", "warning")

    def _look_at_failures(self, failing: int) -> None:
        if failing == 1:  # one was stored before it
            self._failures.is_above = False
        if self._crosses(self._failures, failing):
            told = f"{failing} checkpoints in a row were not stored"
            self.send(told, None, None, "saves_failing", "critical")

    def _crosses(self, mark: Watermark, value: float) -> bool:
        with self._lock:
            return mark.crosses(value)

    # --- hooks ---------------------------------------------------------------------------------------------

    def _call(self, alert: Alert) -> None:
        """The program's own function, in this thread; not for an alert that the function itself gives rise to."""
        call = self._options.on_alert
        if call is None or getattr(self._telling, "now", False):
            return
        self._telling.now = True
        try:
            call(alert)
        except Exception as error:
            log_error(f"on_alert raised {type(error).__name__} for an alert", code=alert.code)
        finally:
            self._telling.now = False
