"""Whether a checkpoint is what was saved, down to the last byte, and whether its evidence holds now."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import msgspec

from lastgood.catalog.values import StoredCheckpoint
from lastgood.engine.engine import Engine, acting
from lastgood.engine.load import log_evidence, log_on, wrap
from lastgood.errors import CheckpointError, IntegrityError
from lastgood.model.checkpoint import VALUES, Record, decode_record
from lastgood.secrets.redaction import MASK

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.content import FilesCheck
    from lastgood.model.evidence import EvidencePack

Recording = Literal["always", "changed", "never"]
FilesDepth = Literal["none", "exist", "read"]
"""How much of the files is checked: nothing, that all of them is there, or every byte."""
MOST_PROBLEMS = 20
REDACTED = "a part of this evidence was redacted, so it cannot be checked again"


class Verification(msgspec.Struct, frozen=True):
    """A checkpoint checked again. `problems` are with its bytes; `pack` has what each piece of evidence gave.
    `inherited_from`: the evidence is that of this checkpoint, which has the same state and files."""

    checkpoint_id: str
    problems: list[str]
    pack: EvidencePack
    inherited_from: str | None = None

    @property
    def intact(self) -> bool:
        return not self.problems

    @property
    def verified(self) -> bool:
        """Intact, with evidence, and the evidence holds."""
        return self.intact and self.pack.is_verified

    @property
    def bad(self) -> bool:
        """Damaged, or it cannot be said now that its evidence holds. One without evidence is neither good nor bad."""
        return not self.intact or (bool(self.pack.evidence_list) and not self.pack.is_verified)

    @property
    def refusal(self) -> str | None:
        """Why it cannot be said here whether the evidence holds; None when this process was allowed to look."""
        if not self.pack.is_refused:
            return None
        first = next(piece for piece in self.pack.evidence_list if piece.verification_status == "pending")
        return f"{first.description} ({first.verification_error})"


def verify_stored(
    engine: Engine,
    user: str,
    stored: StoredCheckpoint,
    record: Recording = "always",
    *,
    files: FilesDepth = "none",
    check: FilesCheck | None = None,
    live: bool = False,
) -> Verification:
    """Check a stored checkpoint: its bytes, then its evidence as the world is now; record what it gave.

    "changed": only when it differs from what was recorded last. What hangs on evidence that this process may not look
    at is not recorded: somebody who may has perhaps found that it holds. Where damage is recorded every byte is read,
    whatever `files` says: nothing else clears it. Evidence about files that it captured is checked against these,
    because they are what comes back; with `live`, against the disk, and then nothing is recorded.
    """
    with engine.meter.span("verify", task_id=stored.task_id, checkpoint_id=stored.id) as describe:
        from lastgood.engine.proof import to_data
        from lastgood.model.evidence import EvidencePack

        damage = recorded_damage(engine, stored)
        problems = examine(engine, stored, files="read" if damage else files, check=check)
        checkpoint = None if problems or stored.data is None else wrap(engine, stored)
        judge = checkpoint.judge() if checkpoint else None
        pack = _recheck(engine, judge or checkpoint, live) if checkpoint else EvidencePack()
        result = Verification(stored.id, problems, pack, judge.id if judge else None)
        is_news = bool(problems or damage) or (not judge and pack.evidence_list and not pack.is_refused)
        if is_news and record != "never" and not live and not stored.deleted:
            own = EvidencePack() if judge else pack
            with suppress(CheckpointError):  # what was found is said all the same, in a store that takes no more, too
                if (record == "always" and not problems) or not _is_recorded(engine, stored, result):
                    data = {"verified": False, "problems": problems[:MOST_PROBLEMS]} if problems else to_data(own)
                    engine.catalog.attest(stored.owner, [stored.id], "verification", data, acting(user))
        engine.meter.count_verification(pack, intact=result.intact)
        about = {"checkpoint_id": stored.id, "verified": result.verified, "intact": result.intact}
        log_on(engine, user, stored.owner, stored.task_id, "verify", **about)
        log_evidence(engine, user, stored.owner, stored, pack)
        return describe(result)


def check_bytes(engine: Engine, stored: StoredCheckpoint) -> Verification:
    """Check every stored byte of a checkpoint, and nothing else."""
    from lastgood.model.evidence import EvidencePack

    return Verification(stored.id, examine(engine, stored, files="read"), EvidencePack())


def recorded_damage(engine: Engine, stored: StoredCheckpoint) -> list[str]:
    """Return what was recorded last as wrong with its bytes; nothing for a tombstone."""
    try:
        return [] if stored.data is None else wrap(engine, stored).damage
    except IntegrityError:
        return []


def _is_recorded(engine: Engine, stored: StoredCheckpoint, found: Verification) -> bool:
    if (damage := recorded_damage(engine, stored)) or not found.intact:
        return damage == found.problems[:MOST_PROBLEMS]
    if stored.verified_at is None or stored.verified != found.verified:
        return False
    # What was pending when it was saved is not known to be bad before it was looked at.
    return found.verified or not wrap(engine, stored).evidence_pack.is_refused


def _recheck(engine: Engine, checkpoint: Checkpoint, live: bool) -> EvidencePack:
    from lastgood.engine.proof import LOST, UNUSABLE, fail, outdate, outdate_marked, without_secrets
    from lastgood.model.evidence import EvidencePack

    if (claims := checkpoint.record.evidence) is None:
        return EvidencePack()
    pack, captured = EvidencePack.from_claims(claims), None
    if checkpoint.record.files and not live:
        from lastgood.engine.browse import find_captured

        captured = find_captured(engine.blobs, checkpoint.record.files)
    engine.verifier().verify_evidence_pack(pack, checkpoint.plain_state, captured=captured)
    for evidence in pack.evidence_list:
        if evidence.metadata.get(LOST) is True:
            fail(evidence, UNUSABLE)
        if _holds(evidence.expected, MASK):
            outdate(evidence, REDACTED)
    outdate_marked(pack)
    return without_secrets(pack, engine.options.redaction)


def _holds(value: object, text: str) -> bool:
    if isinstance(value, str):
        return text in value
    if isinstance(value, dict):
        return any(_holds(item, text) for item in value.values())
    return isinstance(value, list) and any(_holds(item, text) for item in value)


def examine(
    engine: Engine, stored: StoredCheckpoint, *, files: FilesDepth = "none", check: FilesCheck | None = None
) -> list[str]:
    """List what is wrong, in words; nothing when all is well. Of a tombstone only its place is checked.

    All bytes of the state and of what belongs to it are read; those of files as `files` says, by `check`, if it is
    given.
    """
    catalog, problems = engine.catalog, list[str]()
    if stored.placement.digest(stored.checksum) != stored.placement_digest:
        problems.append("its place (branch, sequence) does not match its digest")
    problems += _examine_attestations(catalog, stored)
    if stored.data is None:
        return problems
    try:
        record = decode_record(stored.data, stored.checksum, "it")
    except IntegrityError:
        return [*problems, "its record does not match its checksum"]
    problems += _examine_lineage(catalog, stored, record) + examine_values(engine, stored, record)
    if files != "none" and record.files:
        from lastgood.engine.content import FilesCheck

        problems += (check or FilesCheck(engine)).list_problems(record, read=files == "read")
    return problems


def _examine_attestations(catalog: Catalog, stored: StoredCheckpoint) -> list[str]:
    try:
        found = catalog.attestations(stored.owner, stored.id)
    except IntegrityError as error:
        return [str(error)]
    return [
        f"attestation {attestation.number} ({attestation.kind}) does not match its digest"
        for attestation, digest in found
        if attestation.digest(stored.checksum) != digest
    ]


def _examine_lineage(catalog: Catalog, stored: StoredCheckpoint, record: Record) -> list[str]:
    if record.parent_id is None:
        return []
    parent = catalog.checkpoint(stored.owner, record.parent_id)
    if parent is None:
        return ["its parent is gone without a tombstone"]
    return [] if parent.checksum == record.parent_checksum else ["its parent is not the one it was made from"]


def examine_values(engine: Engine, stored: StoredCheckpoint, record: Record) -> list[str]:
    """List what is wrong with the state, and with what belongs to it, in words."""
    from lastgood.engine.blobs import check_value

    problems = []
    for name in VALUES:
        try:
            check_value(engine.blob_id, engine.catalog, stored, record, name)
        except IntegrityError as error:
            problems.append(str(error))
    return problems
