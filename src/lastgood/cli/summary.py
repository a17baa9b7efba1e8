"""A checkpoint as every command prints it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lastgood.cli.output import local_time, printable, short_id
from lastgood.engine.checkpoint import Checkpoint


def summary(checkpoint: Checkpoint) -> dict[str, Any]:
    """For programs. Of a damaged record only id and place are known."""
    return {
        "id": checkpoint.id,
        "task_id": checkpoint.task_id,
        "branch_id": checkpoint.branch_id,
        "sequence": checkpoint.sequence,
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
        "last_verified_at": moment_text(checkpoint.last_verified_at),
        "deleted": checkpoint.deleted,
        "integrity_ok": checkpoint.integrity_ok,
        "state_size": checkpoint.state_size,
        "file_count": checkpoint.file_count,
        "checksum": checkpoint.checksum,
    }


def row(checkpoint: Checkpoint, head_id: str | None) -> list[str]:
    """For people, in a table."""
    marker = "*" if checkpoint.id == head_id else " "
    place = f"{marker} @{checkpoint.sequence}"
    if not checkpoint.integrity_ok:
        return [place, short_id(checkpoint.id), "", "", "(damaged)"]
    first_line = checkpoint.message.partition("\n")[0]
    tags = "".join(f"[{printable(tag)}] " for tag in checkpoint.tags)
    text = (tags + printable(first_line)).rstrip()
    return [place, short_id(checkpoint.id), local_time(checkpoint.created_at), checkpoint.type, text]


ROW_HEAD = ("  seq", "id", "time", "type", "message")


def moment_text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
