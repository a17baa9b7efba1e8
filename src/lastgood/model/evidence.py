"""Evidence: checkable claims about the world at a checkpoint, and the rule that makes a pack of them hold.

Results of checking are recorded onto these values; a checkpoint's record holds the claims alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from lastgood.errors import InvalidError
from lastgood.model.checkpoint import Claim, Claims
from lastgood.model.identity import check_number


class VerificationStatus(StrEnum):
    """What is known of a piece of evidence (D2)."""

    PENDING = "pending"
    VERIFIED = "verified"
    FAILED = "failed"
    STALE = "stale"


class EvidenceType(StrEnum):
    ARTIFACT_EXISTS = "artifact_exists"
    FILE_SHA256 = "file_sha256"
    COMMAND_EXIT = "command_exit"
    DB_ROW = "db_row"
    NETWORK_REACHABLE = "network_reachable"
    API_RESPONSE = "api_response"
    CONTAINER_RUNNING = "container_running"
    PROCESS_EXISTS = "process_exists"


@dataclass
class Evidence:
    """A claim (D2). Only the first four fields are the claim; the rest says what checking it gave."""

    evidence_type: str
    description: str
    expected: dict[str, Any]
    metadata: dict[str, Any] = field(default_factory=dict)
    verified: bool = False
    verification_status: VerificationStatus = VerificationStatus.PENDING
    verification_error: str | None = None
    verified_at: datetime | None = None

    def __repr__(self) -> str:
        why = f": {self.verification_error[:80]!r}" if self.verification_error else ""
        return f"<Evidence {str(self.evidence_type)!r} {self.description[:80]!r} {self.verification_status}{why}>"

    def to_dict(self) -> dict[str, Any]:
        at = self.verified_at.isoformat() if self.verified_at else None
        names = {"evidence_type": str(self.evidence_type), "verification_status": str(self.verification_status)}
        return {**vars(self), **names, "verified_at": at}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        try:
            at = data.get("verified_at")
            return cls(
                evidence_type=data["evidence_type"],
                description=data["description"],
                expected=data["expected"],
                metadata=data.get("metadata") or {},
                verified=data.get("verified") is True,
                verification_status=VerificationStatus(data.get("verification_status", "pending")),
                verification_error=data.get("verification_error"),
                verified_at=datetime.fromisoformat(at) if at else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidError(f"not an evidence dictionary: {error}", hint="see Evidence.to_dict") from error

    def to_claim(self) -> Claim:
        return Claim(str(self.evidence_type), self.description, self.expected, self.metadata)


@dataclass
class EvidencePack:
    """A list of evidence and the rule for it (D3). An empty pack is never verified."""

    evidence_list: list[Evidence] = field(default_factory=list)
    require_all: bool = True
    allow_partial: bool = False
    min_verified: int = 0

    def __post_init__(self) -> None:
        if self.allow_partial and self.require_all:
            raise InvalidError(
                "an evidence pack cannot both require all and allow some",
                hint="give require_all=False with allow_partial=True",
            )
        if not isinstance(self.evidence_list, list):
            raise InvalidError("the evidence of a pack is a list")
        check_number("min_verified", self.min_verified)

    @property
    def is_verified(self) -> bool:
        verified = sum(evidence.verified for evidence in self.evidence_list)
        if self.require_all:
            return 0 < verified == len(self.evidence_list)
        enough = verified >= max(1, self.min_verified)
        return enough and (self.allow_partial or not any(map(_could_not_be_checked, self.evidence_list)))

    @property
    def is_refused(self) -> bool:
        """Say whether it fails only by evidence that this process may not check; one that may can decide."""
        return self._hangs_on(_was_refused)

    @property
    def is_undecided(self) -> bool:
        """Say whether it fails only by evidence that was refused or is stale: it is neither good nor bad."""
        return self._hangs_on(lambda piece: _was_refused(piece) or piece.verification_status == "stale")

    def verification_summary(self) -> dict[str, Any]:
        return {
            "total": len(self.evidence_list),
            "verified": sum(evidence.verified for evidence in self.evidence_list),
            "failed": sum(evidence.verification_status == "failed" for evidence in self.evidence_list),
            "is_verified": self.is_verified,
        }

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "evidence_list": [evidence.to_dict() for evidence in self.evidence_list]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        if not _is_pack(data):
            raise InvalidError("not an evidence pack's dictionary", hint="see EvidencePack.to_dict")
        return cls(
            [Evidence.from_dict(item) for item in data.get("evidence_list", [])],
            require_all=data.get("require_all", True),
            allow_partial=data.get("allow_partial", False),
            min_verified=data.get("min_verified", 0),
        )

    def to_claims(self) -> Claims:
        claims = tuple(evidence.to_claim() for evidence in self.evidence_list)
        return Claims(claims, self.require_all, self.allow_partial, self.min_verified)

    @classmethod
    def from_claims(cls, claims: Claims) -> Self:
        return cls(
            [Evidence(claim.type, claim.description, claim.expected, claim.metadata) for claim in claims.claims],
            claims.require_all,
            claims.allow_partial,
            claims.min_verified,
        )

    def _hangs_on(self, chosen: Callable[[Evidence], bool]) -> bool:
        """Say whether it does not hold, and would if every piece that is chosen did."""
        if self.is_verified:
            return False
        holding = [
            replace(piece, verified=True, verification_status=VerificationStatus.VERIFIED, verification_error=None)
            if chosen(piece)
            else piece
            for piece in self.evidence_list
        ]
        return replace(self, evidence_list=holding).is_verified


def _could_not_be_checked(evidence: Evidence) -> bool:
    return _was_refused(evidence) or (evidence.verification_error or "").startswith("check_error")


def _was_refused(evidence: Evidence) -> bool:
    """Say whether it was to be checked, and that was not allowed."""
    return evidence.verification_status == "pending" and bool(evidence.verification_error)


def _is_pack(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("evidence_list", []), list)
