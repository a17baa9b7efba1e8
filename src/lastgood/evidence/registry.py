"""The types of evidence: the built-in ones and those that users register (D1)."""

from __future__ import annotations

import re
from importlib import import_module
from typing import NamedTuple

from lastgood.errors import InvalidError
from lastgood.evidence.check import Check
from lastgood.local.paths import show
from lastgood.model.evidence import EvidenceType

_TYPE = re.compile(r"[a-z][a-z0-9_]{0,63}")


class _BuiltIn(NamedTuple):
    """A function of a module in kinds/, which is loaded when it is first needed. A quick one needs no thread."""

    module: str
    check: str
    is_quick: bool = False


_built_in: dict[str, _BuiltIn] = {
    EvidenceType.ARTIFACT_EXISTS: _BuiltIn("files", "check_artifact", is_quick=True),
    EvidenceType.FILE_SHA256: _BuiltIn("files", "check_digest", is_quick=True),
    EvidenceType.COMMAND_EXIT: _BuiltIn("commands", "check_exit", is_quick=True),
    EvidenceType.DB_ROW: _BuiltIn("rows", "check_row", is_quick=True),
    EvidenceType.NETWORK_REACHABLE: _BuiltIn("network", "check_reachable"),
    EvidenceType.API_RESPONSE: _BuiltIn("responses", "check_response"),
    EvidenceType.CONTAINER_RUNNING: _BuiltIn("containers", "check_container"),
    EvidenceType.PROCESS_EXISTS: _BuiltIn("processes", "check_process"),
}
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
    if not replace and (type in _checks or type in _built_in):
        raise InvalidError(f"there already is evidence of type {type}", hint="replace=True puts yours in its place")
    _checks[str(type)] = check


def find_check(type: object) -> Check:
    """Return the check of a type; InvalidError when there is none."""
    if isinstance(type, str):
        if (registered := _checks.get(type)) is not None:
            return registered
        if (built_in := _built_in.get(type)) is not None:
            check: Check = getattr(import_module(f"lastgood.evidence.kinds.{built_in.module}"), built_in.check)
            return check
    raise InvalidError(f"there is no evidence of type {show(type)}", hint="register_evidence adds one")


def is_quick(type: str) -> bool:
    """Tell whether its check does only what is quick when it has an allowance."""
    return type not in _checks and type in _built_in and _built_in[type].is_quick
