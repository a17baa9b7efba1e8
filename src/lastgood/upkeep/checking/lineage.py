"""Checkpoints one by one: record, place, parent, what was said of them, and whether one is gone."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.catalog.upkeep import STORE
from lastgood.upkeep.checking.ledger import Known, Ledger, decode_attestation
from lastgood.upkeep.checking.report import Code, Finding, Use

MAX_NAMED = 1000
"""So many that are gone are named one by one; of a whole table one sentence tells."""


def examine_lineage(ledger: Ledger) -> Iterator[Finding]:
    yield from _examine_missing(ledger)
    by_id = {(known.row.owner, known.row.id): known for known in ledger.checkpoints.values()}
    for known in ledger.checkpoints.values():
        if known.damage is not None:
            yield _finding(ledger, known, "record", known.damage)
        if not ledger.is_in_place(known):
            yield _finding(ledger, known, "placement", "its place (branch, sequence) does not match its digest")
        record = known.record
        if record is not None and record.parent_id is not None:
            parent = by_id.get((known.row.owner, record.parent_id))
            if parent is None:
                if not _may_be_unread(ledger, known):
                    yield _finding(ledger, known, "parent", "its parent is gone without a tombstone")
            elif parent.checksum != record.parent_checksum:
                yield _finding(ledger, known, "parent", "its parent is not the one it was made from")
        yield from _examine_attestations(ledger, known)


def _may_be_unread(ledger: Ledger, known: Known) -> bool:
    """Whether the parent may be one of those that are told to be gone themselves: then once is enough."""
    return any((known.row.task, sequence) not in ledger.checkpoints for sequence in range(1, known.row.sequence))


def _examine_missing(ledger: Ledger) -> Iterator[Finding]:
    for task in ledger.tasks.values():
        if task.number == STORE:
            continue
        gone = [n for n in range(1, task.last_sequence + 1) if (task.number, n) not in ledger.checkpoints]
        why = "cannot be read" if "checkpoints" in ledger.unreadable else "is gone without a tombstone"
        if len(gone) > MAX_NAMED:
            uses = tuple(Use(task.owner, task.id, sequence, None) for sequence in gone)
            sentence = f"{len(gone):,} checkpoints of {task.id!r} are gone or cannot be read"
            yield _missing(task.owner, task.id, f"@{gone[0]} to @{gone[-1]}", sentence, uses)
            continue
        for sequence in gone:
            sentence = f"checkpoint @{sequence} of {task.id!r} {why}"
            use = Use(task.owner, task.id, sequence, None)
            yield _missing(task.owner, task.id, f"@{sequence}", sentence, (use,))


def _missing(owner: str, task_id: str, name: str, sentence: str, uses: tuple[Use, ...]) -> Finding:
    return Finding(
        code="missing", kind="checkpoint", name=name, sentence=sentence, owner=owner, task_id=task_id, uses=uses
    )


def _examine_attestations(ledger: Ledger, known: Known) -> Iterator[Finding]:
    wrong: list[str] = []
    rows = sorted(ledger.attestations.get(known.number, ()), key=lambda row: row.number)
    for row in rows:
        said = decode_attestation(row)
        if said is None:
            wrong.append(f"attestation {row.number} ({row.kind}) cannot be read")
        elif said.digest(known.checksum) != row.digest:
            wrong.append(f"attestation {row.number} ({row.kind}) does not match its digest")
    if [row.number for row in rows] != list(range(1, len(rows) + 1)):
        wrong.append("an attestation is gone")
    for sentence in wrong:
        yield _finding(ledger, known, "attestation", sentence)


def _finding(ledger: Ledger, known: Known, code: Code, sentence: str) -> Finding:
    use = ledger.use(known)
    return Finding(
        code=code,
        kind="checkpoint",
        name=known.row.id,
        sentence=f"checkpoint {known.row.id}: {sentence}",
        owner=use.owner,
        task_id=use.task_id,
        uses=(use,),
    )
