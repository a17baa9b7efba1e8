"""Evidence on its way into a checkpoint: copied, checked, and kept as claims and results without secrets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.errors import InvalidError
from lastgood.model.checkpoint import Attestation, encode_plain
from lastgood.model.evidence import Evidence, EvidencePack, VerificationStatus
from lastgood.model.identity import MAX_TEXT_BYTES, is_text, moment
from lastgood.secrets.redaction import Redaction

if TYPE_CHECKING:
    from lastgood.evidence.verifier import EvidenceVerifier

MAX_EVIDENCE = 10_000
MAX_PARTS, MAX_NESTING = 10_000, 32
LOST = "lastgood_lost"
"""In a claim's metadata: a part of it could not be recorded, so it can never hold."""
STALE = "lastgood_stale"
"""In a claim's metadata: what happened since to the files that it was about, so it can neither hold nor fail."""
UNUSABLE = "check_error: a part of this evidence cannot be recorded"

_CONTAINERS = (dict, list, tuple)
_EPOCH, _MICROSECOND = moment(0), timedelta(microseconds=1)
_MASKED = "description", "expected", "metadata", "verification_error"
_STATUSES = tuple(VerificationStatus)


class Proof:
    """Evidence on its way into a checkpoint, without secrets. The claims are known at once, what checking them gives
    when `finish` returns; `pack` has both then."""

    def __init__(self, own: EvidencePack, redaction: Redaction, check: Callable[[], None] | None) -> None:
        self.pack = without_secrets(own, redaction)
        self.claims = self.pack.to_claims()
        self._own = own
        self._redaction = redaction
        self._check = check
        self._data: dict[str, Any] | None = None
        if len(encode_plain(self.claims)) > MAX_TEXT_BYTES:
            raise InvalidError(
                f"the evidence takes more than {MAX_TEXT_BYTES} bytes", hint="keep large values in the state"
            )

    def outdate(self, index: int, why: str) -> None:
        """Mark the claim of this number as stale, now and whenever it is checked again."""
        for pack in (self._own, self.pack):
            evidence = pack.evidence_list[index]
            evidence.metadata = {**evidence.metadata, STALE: self._redaction.text(why)}
        self.claims = self.pack.to_claims()

    def finish(self) -> dict[str, Any] | None:
        """Wait for the check and return what it gave, as an attestation keeps it; None without a check."""
        if self._check is not None:
            check, self._check = self._check, None
            check()
            outdate_marked(self._own)
            for shown, checked in zip(self.pack.evidence_list, self._own.evidence_list, strict=True):
                _take_result(shown, checked, self._redaction)
            self._data = to_data(self.pack)
        return self._data


@contextmanager
def proving(
    pack: EvidencePack, verifier: Callable[[], EvidenceVerifier] | None, snapshot: object, redaction: Redaction
) -> Iterator[Proof]:
    """Begin to check what is claimed, with the secrets in it. The caller's pack is left untouched."""
    own, unusable = copy_pack(pack)
    if not own.evidence_list or verifier is None:
        yield Proof(own, redaction, None)
        return
    with verifier().checking(own.evidence_list, snapshot) as finish:

        def check() -> None:
            finish()
            for index in unusable:
                fail(own.evidence_list[index], UNUSABLE)

        yield Proof(own, redaction, check)


def to_data(pack: EvidencePack) -> dict[str, Any]:
    """Return what checking gave, as an attestation keeps it."""
    results = [
        [str(evidence.verification_status), evidence.verification_error, _microseconds(evidence.verified_at)]
        for evidence in pack.evidence_list
    ]
    return {"verified": pack.is_verified, "results": results}


def apply_data(pack: EvidencePack, attestation: Attestation) -> None:
    """Set onto `pack` what an attestation says of it."""
    results = attestation.data.get("results")
    if not isinstance(results, list) or len(results) != len(pack.evidence_list):
        return
    for evidence, (status, error, at) in zip(pack.evidence_list, results, strict=True):
        evidence.verification_status = VerificationStatus(status if status in _STATUSES else "pending")
        evidence.verified = status == "verified"
        evidence.verification_error = error
        evidence.verified_at = None if at is None else moment(at)


def copy_pack(pack: object) -> tuple[EvidencePack, list[int]]:
    """Return a copy that can be stored whatever was in it, and which of its evidence lost something by that."""
    if not isinstance(pack, EvidencePack) or not isinstance(pack.evidence_list, list | tuple):
        raise InvalidError(f"{type(pack).__name__} is not an EvidencePack", hint="give EvidencePack([Evidence(…), …])")
    if len(pack.evidence_list) > MAX_EVIDENCE:
        raise InvalidError(f"an evidence pack cannot hold more than {MAX_EVIDENCE:,}", hint="make several checkpoints")
    rule: tuple[object, ...] = (pack.require_all, pack.allow_partial, pack.min_verified)
    if [type(part) for part in rule] != [bool, bool, int]:
        raise InvalidError("the rule of an evidence pack is two flags and a number", hint="see EvidencePack")
    own, unusable = EvidencePack([], pack.require_all, pack.allow_partial, pack.min_verified), []
    for index, evidence in enumerate(pack.evidence_list):
        if not isinstance(evidence, Evidence):
            raise InvalidError(f"evidence_list[{index}] is {type(evidence).__name__}, not Evidence")
    own.evidence_list = _copy_plain(pack.evidence_list) or []
    for index, evidence in enumerate(pack.evidence_list if not own.evidence_list else ()):
        if copies := _copy_plain([evidence]):
            claim = copies[0]
        else:
            parts = _Parts()
            claim = Evidence(
                parts.text(evidence.evidence_type),
                parts.text(evidence.description),
                parts.dict(evidence.expected),
                parts.dict(evidence.metadata),
            )
            if parts.lost:
                unusable.append(index)
                claim.metadata[LOST] = True
        own.evidence_list.append(claim)
    return own, unusable


def _copy_plain(pieces: Sequence[Evidence]) -> list[Evidence] | None:
    """Copy by way of JSON, which is what most evidence is made of; None when it comes back as something else."""
    claims = [[one.evidence_type, one.description, one.expected, one.metadata] for one in pieces]
    try:
        data = msgspec.json.encode(claims)
        if len(data) > MAX_PARTS or data.count(b"[") + data.count(b"{") > MAX_NESTING + 3 * len(claims):
            return None
        copies = msgspec.json.decode(data)
        is_same = copies == claims and bool(encode_plain(copies))  # which takes no integers beyond 64 bits
    except Exception:  # whatever a class of the caller's does when it is looked at
        return None
    if not is_same or any([type(part) for part in copy] != [str, str, dict, dict] for copy in copies):
        return None
    return [Evidence(*copy) for copy in copies]


class _Parts:
    """Values of one piece of evidence made plain: what JSON has. Paths and the like become text."""

    def __init__(self) -> None:
        self.lost = False
        self._seen = 0

    def text(self, value: object) -> str:
        return str(self.plain(value))

    def dict(self, value: object) -> dict[str, Any]:
        plain = self.plain(value)
        if isinstance(plain, dict):
            return plain
        self.lost = True
        return {}

    def plain(self, value: object) -> Any:
        try:
            return self._plain(value, 0)
        except Exception as error:  # whatever a class of the caller's does when it is looked at
            return self._lose(type(error).__name__)

    def _plain(self, value: object, depth: int) -> Any:
        kind = type(value)
        if isinstance(value, str):
            plain = value if kind is str else str.__str__(value)
            return plain if is_text(plain) else self._lose("text that is not Unicode")
        if value is None or kind is bool:
            return value
        if isinstance(value, float):
            return float(value) if value == value else self._lose("not a number")
        if isinstance(value, int):
            return int(value) if -(1 << 63) <= value < 1 << 64 else self._lose("an integer beyond 64 bits")
        if isinstance(value, _CONTAINERS):
            return self._contained(value, depth)
        if isinstance(value, os.PathLike):
            path = os.fspath(value)
            return path if isinstance(path, str) and is_text(path) else self._lose("a path that is not text")
        return self._lose(kind.__name__)

    def _contained(self, value: Mapping[Any, Any] | Sequence[Any], depth: int) -> Any:
        self._seen += len(value)
        if self._seen > MAX_PARTS:
            return self._lose("too much")
        if depth >= MAX_NESTING:
            return self._lose("something nested too deeply")
        if not isinstance(value, dict):
            return [self._plain(item, depth + 1) for item in value]
        plain = {}
        for key, item in value.items():
            if not isinstance(key, str) or not is_text(key):
                return self._lose(type(value).__name__)
            plain[str(key)] = self._plain(item, depth + 1)
        return plain

    def _lose(self, what: str) -> str:
        self.lost = True
        return f"<{what}>"


def without_secrets(pack: EvidencePack, redaction: Redaction) -> EvidencePack:
    """Return the pack with secrets masked; the same object when there is none."""
    claims = [{name: getattr(one, name) for name in _MASKED} for one in pack.evidence_list]
    if (masked := redaction.plain(claims)) is claims:
        return pack
    pieces = zip(pack.evidence_list, masked, strict=True)
    return replace(pack, evidence_list=[replace(one, **fields) for one, fields in pieces])


def _take_result(shown: Evidence, checked: Evidence, redaction: Redaction) -> None:
    error = checked.verification_error
    shown.verified = checked.verified
    shown.verification_status = checked.verification_status
    shown.verification_error = None if error is None else redaction.text(error)
    shown.verified_at = checked.verified_at


def fail(evidence: Evidence, error: str) -> None:
    evidence.verified, evidence.verification_status, evidence.verification_error = (
        False,
        VerificationStatus.FAILED,
        error,
    )


def outdate_marked(pack: EvidencePack) -> None:
    for evidence in pack.evidence_list:
        if isinstance(why := evidence.metadata.get(STALE), str):
            outdate(evidence, why)


def outdate(evidence: Evidence, why: str) -> None:
    evidence.verified, evidence.verification_status, evidence.verification_error = False, VerificationStatus.STALE, why


def _microseconds(at: datetime | None) -> int | None:
    return None if at is None else (at - _EPOCH) // _MICROSECOND
