"""A checkpoint as every command prints it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from lastgood.cli.output import local_time, printable, short_id
from lastgood.engine.checkpoint import Checkpoint


def summary(checkpoint: Checkpoint) -> dict[str, Any]:
    """For programs. Of a damaged record only id and place are known."""
    return {
        "id": checkpoint.id,
        "task_id": checkpoint.task_id,
        "branch_id": checkpoint.branch_id,
        "sequence": checkpoint.sequence,
        "status": checkpoint.status,
        "parent_id": checkpoint.parent_id,
        "lineage": checkpoint.lineage,
        "type": checkpoint.type,
        "step_id": checkpoint.step_id,
        "iteration": checkpoint.iteration,
        "iteration_state": checkpoint.iteration_state,
        "control_state": checkpoint.control_state,
        "message": checkpoint.message,
        "created_at": moment_text(checkpoint.created_at),
        "created_by": checkpoint.created_by,
        "correlation_id": checkpoint.correlation_id,
        "work_item_id": checkpoint.work_item_id,
        "key": checkpoint.key,
        "metadata": checkpoint.metadata,
        "tags": list(checkpoint.tags),
        "verified": checkpoint.verified,
        "verification": verification(checkpoint),
        "last_verified_at": moment_text(checkpoint.last_verified_at),
        "deleted": checkpoint.deleted,
        "integrity_ok": checkpoint.integrity_ok,
        "state_size": checkpoint.state_size,
        "file_count": checkpoint.file_count,
        "checksum": checkpoint.checksum,
    }


Standing = Literal["verified", "failed", "unverified", "damaged"]
MARKS: dict[Standing, str] = {"verified": "v", "failed": "x", "unverified": "?", "damaged": "!"}


def verification(checkpoint: Checkpoint) -> Standing:
    """How it stands by what is recorded. Without evidence, or with evidence that cannot be said of now: unverified."""
    if not checkpoint.integrity_ok:
        return "damaged"
    if checkpoint.verified:
        return "verified"
    if checkpoint.last_verified_at is None:
        return "unverified"
    return "unverified" if checkpoint.evidence_pack.is_undecided else "failed"


def row(checkpoint: Checkpoint, head_id: str | None) -> list[str]:
    """For people, in a table."""
    place = f"{'*' if checkpoint.id == head_id else ' '} {place_text(checkpoint)}"
    mark = MARKS[verification(checkpoint)]
    if not checkpoint.integrity_ok:
        return [place, mark, short_id(checkpoint.id), "", "", "(damaged)"]
    when = local_time(checkpoint.created_at)
    return [place, mark, short_id(checkpoint.id), when, checkpoint.type, tagged_message(checkpoint)]


ROW_HEAD = ("  seq", "", "id", "time", "type", "message")


def tagged_message(checkpoint: Checkpoint) -> str:
    """Its tags, and the first line of its message."""
    tags = "".join(f"[{printable(tag)}] " for tag in checkpoint.tags)
    return (tags + printable(checkpoint.message.partition("\n")[0])).rstrip()


def line(checkpoint: Checkpoint) -> str:
    """For people, alone."""
    when = local_time(checkpoint.created_at)
    where = place_text(checkpoint)
    return f"{where} {checkpoint.id} {when} {checkpoint.type} {tagged_message(checkpoint)}".rstrip()


def place_text(checkpoint: Checkpoint) -> str:
    """Its place in the task; one that waits for the store has none."""
    return checkpoint.status if checkpoint.sequence is None else f"@{checkpoint.sequence}"


def moment_text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
