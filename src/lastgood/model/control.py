"""The control states of a branch, which moves between them are allowed, and the lineage of a checkpoint (A15)."""

from __future__ import annotations

from typing import Literal, get_args

from lastgood.errors import ControlError

ControlState = Literal["idle", "running", "waiting_for_input", "paused", "stopped", "completed", "failed"]
Lineage = Literal["automatic", "manual", "restored", "forked", "imported"]

CONTROL_STATES: tuple[str, ...] = get_args(ControlState)
LINEAGES: tuple[str, ...] = get_args(Lineage)

MOVES: dict[str, tuple[str, ...]] = {
    "idle": ("running",),
    "running": ("waiting_for_input", "paused", "stopped", "completed", "failed"),
    "waiting_for_input": ("running", "stopped", "failed"),
    "paused": ("running", "stopped", "failed"),
    "stopped": ("running",),
    "failed": ("running",),
    "completed": ("running",),
}
"""From `completed` only by a session, which sees to it that there are more rounds, or that a restart is meant."""


def check_move(before: str, after: str) -> None:
    """Raise ControlError for a move that is not allowed. Staying in a state always is."""
    allowed = MOVES.get(before, ())
    if before != after and after not in allowed:
        raise ControlError(
            f"work that is {describe(before)} cannot become {describe(after)}",
            hint=f"it can become {' or '.join(map(describe, allowed))}",
            state=before,
            wanted=after,
        )


def refuse_restart(before: str, after: str | None) -> None:
    """Raise ControlError for a save outside of a session that would make completed work run."""
    if before == "completed" and after == "running":
        raise ControlError(
            "work that is completed cannot become running by a save",
            hint="add rounds, or begin a session with restart=True",
            state=before,
            wanted=after,
        )


def describe(state: str) -> str:
    return state.replace("_", " ")
