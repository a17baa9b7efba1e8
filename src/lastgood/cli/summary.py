"""Checkpoints as lines for people: in tables, alone, and with their evidence, artifacts, decisions and guidance."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lastgood.cli.output import counted, few, local_time, printable, short_id, shortened, value_text
from lastgood.views.checkpoint import VerificationState, holds_whole_folders, inherited_from, verification

if TYPE_CHECKING:
    from lastgood import Checkpoint, Evidence, EvidencePack

MARKS: dict[VerificationState, str] = {"verified": "v", "failed": "x", "unverified": "?", "damaged": "!"}
STYLES: dict[VerificationState, dict[str, Any]] = {
    "verified": {"fg": "green"},
    "failed": {"fg": "red"},
    "damaged": {"fg": "red"},
    "unverified": {"dim": True},
}
PREVIEW = 200
_EVIDENCE = {"verified": "ok", "failed": "FAILED", "stale": "stale", "pending": "not checked"}


def mark_of(checkpoint: Checkpoint) -> str:
    """Return the mark of what is known of it; in brackets when that is inherited."""
    mark = MARKS[verification(checkpoint)]
    return mark if inherited_from(checkpoint) is None else f"({mark})"


def tagged_message(checkpoint: Checkpoint) -> str:
    """Return its tags, the first line of its message, and whether it holds only files that were listed."""
    tags = "".join(f"[{printable(tag)}] " for tag in checkpoint.tags)
    listed = ""
    if checkpoint.integrity_ok and checkpoint.record.files and not holds_whole_folders(checkpoint):
        listed = f" (only {counted(checkpoint.file_count, 'listed file')})"
    return (tags + printable(checkpoint.message.partition("\n")[0]) + listed).strip()


def line(checkpoint: Checkpoint) -> str:
    """Return a checkpoint on a line."""
    when = local_time(checkpoint.created_at)
    where = place_text(checkpoint)
    return f"{where} {short_id(checkpoint.id)} {when} {checkpoint.type} {tagged_message(checkpoint)}".rstrip()


def age_text(past: timedelta) -> str:
    """Return how long ago something was, in the largest unit that fits."""
    seconds = past.total_seconds()
    for size, unit in ((31_557_600, "y"), (604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return "now"


def place_text(checkpoint: Checkpoint) -> str:
    """Return its place in the task; one that waits for the store has none."""
    return checkpoint.status if checkpoint.sequence is None else f"@{checkpoint.sequence}"


def evidence_lines(pack: EvidencePack) -> list[str]:
    """Return one line for each piece of evidence, in the columns of `lastgood show`."""
    pieces = enumerate(pack.evidence_list)
    lines = [f"{'evidence' if not index else '':<12} {evidence_text(one)}" for index, one in pieces]
    if lines and not pack.require_all:
        lines.append(f"{'':<12} {max(1, pack.min_verified)} of {len(pack.evidence_list)} must hold")
    return lines


def evidence_text(evidence: Evidence) -> str:
    """Return whether it holds, what is claimed, and why not; of a command, how it exited."""
    word = _EVIDENCE[evidence.verification_status]
    if (exited := _exit_text(evidence)) is not None:
        return f"{word}: {exited}"
    reason = f": {printable(evidence.verification_error)}" if evidence.verification_error else ""
    return f"{word}: {printable(evidence.description)}{reason}"


def _exit_text(evidence: Evidence) -> str | None:
    """Return how the command of a step exited; None where that does not say whether its evidence holds."""
    wanted = evidence.expected.get("exit_code")
    command, plain, _ = evidence.description.rpartition(f" ends with {wanted}")
    ended = evidence.metadata.get("actual_exit_code", evidence.metadata.get("exit_code"))
    says = "verified" if ended == wanted else "failed"
    if not plain or not isinstance(ended, int) or evidence.verification_status != says:
        return None
    return f"`{printable(command)}` exited {ended}" + ("" if ended == wanted else f" (expected {wanted})")


def companion_lines(checkpoint: Checkpoint) -> list[str]:
    """Return artifacts, decisions and guidance, in the columns of `lastgood show`."""
    lines = []
    for name, singular, build in (
        ("artifacts", "artifact", _artifact),
        ("decisions", "decision", _decision),
        ("guidance", "guidance", _guidance),
    ):
        texts = few([shortened(printable(build(one)), PREVIEW) for one in getattr(checkpoint, name)])
        lines += [f"{singular:<12} {text}" for text in texts]
    return lines


def _artifact(one: Any) -> str:
    if not isinstance(one, dict) or not (one.get("name") or one.get("id")):
        return value_text(one)
    version = f" (version {one['version']})" if "version" in one else ""
    return f"{one.get('name') or one.get('id')}{version}"


def _decision(one: Any) -> str:
    if not isinstance(one, dict) or "question" not in one:
        return value_text(one)
    return f"{one['question']} {one.get('answer')}{_by(one)}"


def _guidance(one: Any) -> str:
    if isinstance(one, dict) and "text" in one:
        return f"{one['text']}{_by(one)}"
    if isinstance(one, dict) and "rounds" in one:
        return f"{one['rounds']} more rounds{_by(one)}"
    return value_text(one)


def _by(one: dict[str, Any]) -> str:
    return f" (by {one['by']})" if "by" in one else ""
