"""What a pipeline is, what it does one by one, and how a run of it ended: values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from lastgood.work.stage import Stage, Work

if TYPE_CHECKING:
    from lastgood.engine.checkpoint import Checkpoint

OnInvalid = Literal["restart", "refuse"]


class Plan(msgspec.Struct, frozen=True):
    """A pipeline. `chance` draws from 0 to 1."""

    name: str
    stages: tuple[Stage, ...]
    rounds: int
    ttl: float | None
    on_invalid: OnInvalid
    chance: Callable[[], float]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.stages)

    def doing(self, index: int) -> Job:
        return Job(self.stages[index], index, self.stages[index].work, "stage_succeeded")

    def undoing(self, index: int) -> Job | None:
        """None: that stage has nothing to take back."""
        undo = self.stages[index].undo
        return None if undo is None else Job(self.stages[index], index, undo, "stage_undone")

    def following(self, job: Job) -> Job | None:
        """What comes after it in the same round; None: that is not known before."""
        is_last = job.index == len(self.stages) - 1
        return None if is_last or job.type == "stage_undone" else self.doing(job.index + 1)


class Job(msgspec.Struct, frozen=True):
    """A stage to be done, or to be taken back; `type` is that of its checkpoint."""

    stage: Stage
    index: int
    work: Work
    type: Literal["stage_succeeded", "stage_undone"]


class Outcome(msgspec.Struct, frozen=True):
    """How a run ended. `stopped` says why it ended early ("stopped", "cancelled", "interrupted"); None: it is done."""

    state: Any
    checkpoint: Checkpoint
    stopped: str | None = None
