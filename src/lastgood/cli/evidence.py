"""Evidence and what checking it gave, as commands print it."""

from __future__ import annotations

from typing import Any

from lastgood.cli.output import printable
from lastgood.model.evidence import Evidence, EvidencePack

_WORDS = {"verified": "holds", "failed": "FAILED", "stale": "stale", "pending": "not checked"}


def evidence_lines(pack: EvidencePack) -> list[str]:
    """One line for each piece, in the columns of `lastgood show`."""
    lines = [f"{'evidence' if not index else '':<12} {said(one)}" for index, one in enumerate(pack.evidence_list)]
    if lines and not pack.require_all:
        lines.append(f"{'':<12} {max(1, pack.min_verified)} of {len(pack.evidence_list)} must hold")
    return lines


def said(evidence: Evidence) -> str:
    """What is claimed, whether it holds, and why not."""
    reason = f": {printable(evidence.verification_error)}" if evidence.verification_error else ""
    return f"{_WORDS[evidence.verification_status]:<11} {printable(evidence.description)}{reason}"


def described(evidence: Evidence) -> dict[str, Any]:
    """For programs."""
    return {
        "evidence_type": str(evidence.evidence_type),
        "description": evidence.description,
        "status": evidence.verification_status,
        "error": evidence.verification_error,
    }
