"""The control states of a branch, and the lineage of a checkpoint."""

from __future__ import annotations

from typing import Literal, get_args

ControlState = Literal["idle", "running", "waiting_for_input", "paused", "stopped", "completed", "failed"]
Lineage = Literal["automatic", "manual", "restored", "forked", "imported"]

CONTROL_STATES: tuple[str, ...] = get_args(ControlState)
LINEAGES: tuple[str, ...] = get_args(Lineage)
