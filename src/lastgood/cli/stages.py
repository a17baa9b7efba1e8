"""How far a pipeline has come on a task, as its checkpoints say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.store import Store

FIELD = "progress"
BY_OTHERS = frozenset(
    ("paused", "resumed", "stopped", "cancelled", "guided", "edited", "answered", "rounds_added", "restored", "manual")
)
"""Types of checkpoints that others make of work: they may say nothing of its progress."""
FAR = 50
"""So many of them are looked past."""


def find_progress(store: Store, owner: str, head: Checkpoint) -> dict[str, Any] | None:
    """For programs. None: there is no pipeline, or it is done, or it cannot be read."""
    checkpoint = head
    for _ in range(FAR):
        if not checkpoint.integrity_ok:
            return None
        if FIELD in checkpoint.metadata:
            return _described(checkpoint.metadata[FIELD])
        stored = store.catalog.checkpoint(owner, checkpoint.parent_id) if checkpoint.parent_id else None
        if checkpoint.type not in BY_OTHERS or stored is None or stored.data is None:
            return None
        checkpoint = store.wrap(stored)
    return None


def _described(plain: Any) -> dict[str, Any] | None:
    if not isinstance(plain, dict) or plain.get("finished") is not None:
        return None
    completed, rest = plain.get("completed", []), plain.get("plan", [])
    if not (isinstance(completed, list) and isinstance(rest, list)):
        return None
    names = [str(name) for name in (*completed, *rest)]
    return {
        "pipeline": str(plain.get("pipeline", "")),
        "stages": names,
        "completed": len(completed),
        "next": names[len(completed)] if rest else None,
        "attempts": plain.get("attempts", 0),
        "round": plain.get("round", 1),
        "rounds": plain.get("rounds", 1),
    }


def progress_text(progress: dict[str, Any]) -> str:
    """For people."""
    count = len(progress["stages"])
    said = f"{progress['completed']} of {count} stages done"
    if progress["next"] is not None:
        said += f", then {progress['next']}"
    if progress["attempts"]:
        said += f" (begun {progress['attempts']} times)" if progress["attempts"] != 1 else " (begun)"
    return said + (f"; round {progress['round']} of {progress['rounds']}" if progress["rounds"] != 1 else "")
