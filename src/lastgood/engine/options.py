"""What can be set when a store is opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, get_args

import msgspec

from lastgood.errors import InvalidError
from lastgood.model.identity import check_flag, check_number
from lastgood.observe.alerts import Alert
from lastgood.secrets.redaction import Redaction

OnFailure = Literal["spool", "raise", "continue"]
Network = Literal["public", "any", "off"]
Collect = Literal["auto", "never"]
SecretFiles = Literal["leave", "capture"]
MEBIBYTE = 1 << 20


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults fit an agent on a laptop.

    `base_path` is where the relative paths of evidence begin (default: the working directory); without
    `auto_verify` evidence is only checked when asked for. `network` says what evidence may connect to: "public"
    addresses alone, "any", which takes in this machine and private networks, or "off", nothing.
    `redaction` says what counts as a secret. `secret_files="capture"`: files that look like secrets are captured like
    any other; refused for a store that others can read.
    `collect`: "auto" removes what nobody needs in the background when the store has grown, "never" leaves that to
    `store.collect()`.
    `max_bytes` is the most that the store may take on disk: then the oldest checkpoints go by themselves, those that
    nobody protects (`store.limit`). Not given: what the store itself was told (`store.limit(…, keep=True)`).

    `spool` is the folder in which checkpoints wait that the store could not take: None means in memory alone, not
    given means the user's state directory. It holds at most `spool_bytes`.

    Alerts go to the log and to `on_alert`, which is called in the thread that saves.
    """

    on_failure: OnFailure = "spool"
    cache_checkpoints: int = 10
    cache_alert_bytes: int = 256 * MEBIBYTE
    warn_state_bytes: int = MEBIBYTE
    max_state_bytes: int = 256 * MEBIBYTE
    on_alert: Callable[[Alert], None] | None = None
    base_path: str | os.PathLike[str] | None = None
    auto_verify: bool = True
    network: Network = "public"
    redaction: Redaction = Redaction()
    secret_files: SecretFiles = "leave"  # noqa: S105
    collect: Collect = "auto"
    max_bytes: int | None = None
    spool: str | os.PathLike[str] | msgspec.UnsetType | None = msgspec.UNSET
    spool_bytes: int = 256 * MEBIBYTE

    def __post_init__(self) -> None:
        check_on_failure(self.on_failure)
        for name in ("cache_checkpoints", "cache_alert_bytes", "warn_state_bytes", "max_state_bytes", "spool_bytes"):
            check_number(name, getattr(self, name))
        check_flag("auto_verify", self.auto_verify)
        if self.max_bytes is not None:
            check_number("max_bytes", self.max_bytes)
        if self.collect not in ("auto", "never"):
            raise InvalidError(f"collect cannot be {self.collect!r}", hint="one of auto, never", field="collect")
        if self.secret_files not in ("leave", "capture"):
            told = f"secret_files cannot be {self.secret_files!r}"
            raise InvalidError(told, hint="one of leave, capture", field="secret_files")
        if self.network not in ("public", "any", "off"):
            raise InvalidError(f"network cannot be {self.network!r}", hint="one of public, any, off", field="network")
        if not isinstance(self.redaction, Redaction):
            raise InvalidError("redaction is not a Redaction", hint="as in Redaction(keys=('pin',))", field="redaction")
        if not isinstance(self.base_path, str | os.PathLike | None):
            raise InvalidError("base_path is not a path", hint="give a folder", field="base_path")
        if self.spool is not None and self.spool is not msgspec.UNSET and not _is_path(self.spool):
            raise InvalidError("spool is not a path", hint="give a folder, or None for memory alone", field="spool")
        if self.on_alert is not None and not callable(self.on_alert):
            raise InvalidError("on_alert cannot be called", hint="give a function of one argument", field="on_alert")


def _is_path(value: object) -> bool:
    return isinstance(value, str | os.PathLike) and value != ""


def check_on_failure(value: object) -> None:
    if value not in get_args(OnFailure):
        raise InvalidError(f"on_failure cannot be {value!r}", hint=f"one of {', '.join(get_args(OnFailure))}")
