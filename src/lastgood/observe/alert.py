"""What a person should know now, and from where on."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from lastgood.errors import InvalidError
from lastgood.model.identity import check_number, moment, now

Severity = Literal["warning", "error", "critical"]
MEBIBYTE = 1 << 20

CODES = {
    "save_failed": "a checkpoint was not stored",
    "saves_failing": "so many in a row were not stored (`save_failures`)",
    "spool_depth": "so many checkpoints wait in the spool (`spool_checkpoints`)",
    "spool_bytes": "so many bytes wait in the spool (`spool_bytes`)",
    "store_away": "the store does not answer; checkpoints go into the spool until it does",
    "spool_nearly_full": "the spool has taken most of what it may (`spool_bytes` when opening)",
    "spool_lost": "checkpoints were in memory alone, and are gone with the process",
    "spool": "what is spooled cannot be brought into the store, or the spool itself is damaged or has no room",
    "cache_memory": "checkpoints in memory take so many bytes (`cache_bytes`, or `cache_alert_bytes`)",
    "quota": "the store takes so much of `max_bytes` (`quota_share`)",
    "quota_exceeded": "it takes more than it may, and nothing more can go by itself",
    "collect_failed": "what nobody needs could not be removed",
    "pack_damaged": "a pack could not be rewritten, because it is damaged",
    "restore_interrupted": "a restore of files had been interrupted; it was finished or taken back",
    "restore_incomplete": "files could not be put back",
    "step_unsettled": "a failed step was not recorded as failed, or its files were not put back",
    "session": "a session could not renew its lease, save by itself, or record how it ended",
    "watch_lost": "a folder cannot be watched any more; saves look at all of it",
    "alert": "anything else",
}


class Alert(msgspec.Struct, frozen=True):
    """Something a person should know now. `code` is stable and for programs; docs/metrics.md lists them."""

    message: str
    task_id: str | None = None
    error: Exception | None = None
    code: str = "alert"
    severity: Severity = "error"
    correlation_id: str | None = None
    at: datetime = msgspec.field(default_factory=lambda: moment(now()))


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """From where on an alert is sent: once when it is crossed, and again only after it was left. None: never.

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
