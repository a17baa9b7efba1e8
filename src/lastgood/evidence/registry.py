"""The types of evidence: the built-in ones and those that users register (D1)."""

from __future__ import annotations

import re

from lastgood.errors import InvalidError
from lastgood.evidence.claims import check_artifact, check_digest, check_exit, check_row
from lastgood.evidence.surroundings import Check, Surroundings
from lastgood.local.paths import show
from lastgood.model.evidence import Evidence, EvidenceType

_TYPE = re.compile(r"[a-z][a-z0-9_]{0,63}")


def _check_outside(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """What looks at the world outside loads when it is first needed: that takes 20 ms, which other evidence has not."""
    match evidence.evidence_type:
        case EvidenceType.NETWORK_REACHABLE:
            from lastgood.evidence.network import check_reachable as check
        case EvidenceType.API_RESPONSE:
            from lastgood.evidence.responses import check_response as check
        case EvidenceType.CONTAINER_RUNNING:
            from lastgood.evidence.containers import check_container as check
        case _:
            from lastgood.evidence.processes import check_process as check
    return check(evidence, surroundings)


_checks: dict[str, Check] = {
    EvidenceType.ARTIFACT_EXISTS: check_artifact,
    EvidenceType.FILE_SHA256: check_digest,
    EvidenceType.COMMAND_EXIT: check_exit,
    EvidenceType.DB_ROW: check_row,
    EvidenceType.NETWORK_REACHABLE: _check_outside,
    EvidenceType.API_RESPONSE: _check_outside,
    EvidenceType.CONTAINER_RUNNING: _check_outside,
    EvidenceType.PROCESS_EXISTS: _check_outside,
}


def register_evidence(type: str, check: Check, *, replace: bool = False) -> None:
    """Teach every verifier of this process a type of evidence.

    `check(evidence, surroundings)` returns None when the claim holds and a sentence saying how it does not when it
    does not; it raises when that cannot be told (a `lastgood.UnavailableError` whose `retryable` is true, such as
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
    if not replace and type in _checks:
        raise InvalidError(f"there already is evidence of type {type}", hint="replace=True puts yours in its place")
    _checks[str(type)] = check


def find_check(type: object) -> Check:
    if not isinstance(type, str) or (check := _checks.get(type)) is None:
        raise InvalidError(f"there is no evidence of type {show(type)}", hint="register_evidence adds one")
    return check
