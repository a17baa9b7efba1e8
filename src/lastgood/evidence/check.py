"""What a check of evidence works with: the fields of its claim, the files and databases that it may look at, and the
world outside, by the rules of its verifier (D8, D9)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from lastgood.errors import ForbiddenError, InvalidError
from lastgood.evidence.files import Later
from lastgood.local.paths import is_unicode, show
from lastgood.model.evidence import Evidence, EvidenceType

if TYPE_CHECKING:
    from lastgood.evidence.files import Allowance, Files
    from lastgood.evidence.helper import Helper, Question

Network = Literal["public", "any", "off"]
"""Which connections evidence may make: to public addresses alone, to any, or none at all."""

MAX_TEXT = 8192
_DIGEST = re.compile("(?:sha256:)?([0-9a-fA-F]{64})")


@dataclass(slots=True)
class Surroundings:
    """A view of the files, databases and rules that a check may use.

    It is to keep the `deadline`, on `time.monotonic`'s clock. With an `allowance` it does only what is quick and raises
    Later otherwise; `question` is what was asked meanwhile.
    """

    _files: Files
    _rows: Helper
    _database: str | None
    _snapshot: Callable[[], object]
    deadline: float
    allowance: Allowance | None
    network: Network
    confined: bool = False
    question: Question | None = None

    @property
    def base_path(self) -> str:
        """The folder that relative paths are relative to."""
        return self._files.base

    @property
    def snapshot(self) -> object:
        """The state that the evidence belongs to; None when there is none."""
        return self._snapshot()

    def remaining(self) -> float:
        """Return the seconds until the deadline: what to give a request as its timeout."""
        return max(0.0, self.deadline - time.monotonic())

    def limit(self, seconds: float | None) -> float:
        """Return the deadline, which from now on is at most so many seconds away."""
        if seconds is not None:
            self.deadline = min(self.deadline, time.monotonic() + seconds)
        return self.deadline

    def require_outside(self) -> None:
        """Raise ForbiddenError where evidence may be about nothing but files in the base folder."""
        if self.confined:
            raise ForbiddenError(
                "this store came with its folder, so its evidence looks at nothing outside it",
                hint="`lastgood trust` allows that, if you trust whoever wrote it",
            )

    def require_connections(self) -> None:
        """Raise ForbiddenError where evidence may make no connection."""
        self.require_outside()
        if self.network == "off":
            raise ForbiddenError(
                "evidence makes no connections here",
                hint='network="public" allows them, on the command line LASTGOOD_NETWORK=public',
            )

    def stat(self, path: object) -> os.stat_result | None:
        """Return the stat of what a path leads to, by the rules for paths in evidence; None when nothing is there."""
        return self._files.stat(path)

    def allow_path(self, path: object) -> str:
        """Return the path as text, by the same rules; InvalidError, ForbiddenError for one that cannot be used."""
        return self._files.require(path)

    def hash_file(self, path: object) -> str:
        """Return the hex SHA-256 of a file, cached; NotFoundError, InvalidError, ForbiddenError."""
        return self._files.hash(path, self.deadline, self.allowance)

    def find_row(self, path: object, table: str, where: dict[str, Any], values: dict[str, Any]) -> str | None:
        """Return how the SQLite database differs from having such a row; None when it has one. BusyError when locked.

        `path` None is the database of the store that the verifier belongs to.
        """
        if path is None and self._database is None:
            raise InvalidError("the claim names no database", hint='give "db_path" in expected or metadata')
        text = self._database if path is None else self._files.place(path)
        about = self._files.base, str(text), table, where, values, self.deadline
        if self.allowance is not None:
            if self._rows.is_free():
                self.question = self._rows.ask_row(*about)
            raise Later
        question, self.question = self.question or self._rows.ask_row(*about), None
        return question.answer().text or None


Check = Callable[[Evidence, Surroundings], str | None]
"""Returns None when the claim holds, a sentence when it does not, raises when that cannot be known: ForbiddenError when
this process is not to look. What is busy (an UnavailableError that is `retryable`) or NotYet is checked again."""


class NotYet(Exception):  # noqa: N818
    """The claim does not hold, and a moment later it may. Its text is the sentence that says how."""


def seconds_until(deadline: float) -> float:
    """Return the seconds that are left, more than none; TimeoutError when it has passed."""
    if (seconds := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return seconds


def require_fields(evidence: Evidence) -> dict[str, Any]:
    """Return what the evidence expects; InvalidError for anything but a dictionary."""
    if not isinstance(evidence.expected, dict):
        raise InvalidError("what the evidence expects is not a dictionary")
    return evidence.expected


def take_fields(evidence: Evidence, known: tuple[str, ...]) -> dict[str, Any]:
    """Return what the evidence expects; InvalidError for anything but a dictionary of known fields.

    A field that means nothing is refused, too: a condition that is misspelt would hold whatever happens.
    """
    expected = require_fields(evidence)
    for name in expected:
        if name not in known:
            raise InvalidError(
                f"the claim has a field {show(name)}, which means nothing", hint=f"it can have {', '.join(known)}"
            )
    return expected


def require_integer(value: object, what: str, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidError(f"the claim's {what} is missing or is not a number from {low} to {high}")
    return int(value)


def require_text(value: object, what: str) -> str:
    """Return text of ordinary length that can be encoded; InvalidError for anything else."""
    if not isinstance(value, str) or not value or len(value) > MAX_TEXT:
        raise InvalidError(f"the claim's {what} is missing, empty, too long or not text")
    if not is_unicode(value):
        raise InvalidError(f"the claim's {what} is not Unicode")
    return str(value)


def take_timeout(value: object) -> float | None:
    """Return the seconds; None when the claim names none."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 3600:
        raise InvalidError("the claim's timeout is not a number of seconds, more than 0 and at most 3600")
    return float(value)


def require_digest(value: object, what: str) -> str:
    """Return the hex digits of a SHA-256, given with or without "sha256:" before them."""
    found = _DIGEST.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidError(f"the claim's {what} is missing or is not 64 hex digits")
    return found[1].lower()


def get_entry(value: object, key: str) -> object:
    """Return the value of a mapping at a key; None when it has none, or is no mapping."""
    return value.get(key) if isinstance(value, Mapping) else None


_TYPE = re.compile(r"[a-z][a-z0-9_]{0,63}")


_BUILT_IN: dict[str, tuple[str, str]] = {
    EvidenceType.ARTIFACT_EXISTS: ("artifacts", "check_artifact"),
    EvidenceType.FILE_SHA256: ("artifacts", "check_digest"),
    EvidenceType.COMMAND_EXIT: ("artifacts", "check_exit"),
    EvidenceType.DB_ROW: ("artifacts", "check_row"),
    EvidenceType.NETWORK_REACHABLE: ("network", "check_reachable"),
    EvidenceType.API_RESPONSE: ("network", "check_response"),
    EvidenceType.CONTAINER_RUNNING: ("machine", "check_container"),
    EvidenceType.PROCESS_EXISTS: ("machine", "check_process"),
}
"""Modules and functions, which are loaded when they are first needed."""
_checks: dict[str, Check] = {}
"""Those that were registered, which may replace built-in ones."""


def register_evidence(type: str, check: Check, *, replace: bool = False) -> None:
    """Add a type of evidence to every verifier of this process.

    `check(evidence, surroundings)` returns None when the claim holds and a sentence saying how it does not when it
    does not; it raises when that cannot be known (a `lastgood.UnavailableError` whose `retryable` is true, such as
    `BusyError`, is tried again; after a `lastgood.ForbiddenError`, this process is not to look, it stays pending). It
    may be called from several threads at once.

        def check_line(evidence, surroundings):
            text = Path(surroundings.base_path, evidence.expected["path"]).read_text()
            return None if evidence.expected["line"] in text.splitlines() else "the line is not there"

        lastgood.register_evidence("has_line", check_line)

    The sentence, and those of lastgood's own errors, are kept with the checkpoint: put no secrets in them. Of any
    other exception only its type is kept.
    """
    if not _TYPE.fullmatch(type):
        raise InvalidError("not a name for a type of evidence", hint="use small letters, digits and underscores")
    if not callable(check):
        raise InvalidError(f"the check for {type} cannot be called", hint="give a function of two arguments")
    if not replace and (type in _checks or type in _BUILT_IN):
        raise InvalidError(f"there already is evidence of type {type}", hint="replace=True puts yours in its place")
    _checks[str(type)] = check


def find_check(type: object) -> Check:
    """Return the check of a type; InvalidError when there is none."""
    if isinstance(type, str):
        if (registered := _checks.get(type)) is not None:
            return registered
        if type in _BUILT_IN:
            module, name = _BUILT_IN[type]
            check: Check = getattr(import_module(f"lastgood.evidence.{module}"), name)
            return check
    raise InvalidError(f"there is no evidence of type {show(type)}", hint="register_evidence adds one")


def is_quick(type: str) -> bool:
    """Tell whether its check does only what is quick when it has an allowance, and so needs no thread."""
    return type not in _checks and type in _BUILT_IN and _BUILT_IN[type][0] == "artifacts"
