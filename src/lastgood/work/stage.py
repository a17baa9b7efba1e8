"""Stages: named pieces of work, how each is retried, and the plan that a pipeline makes of them. Values; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

import msgspec

from lastgood.engine.step import OnError
from lastgood.errors import InvalidError
from lastgood.model.identity import check_name, check_number
from lastgood.work.clock import check_seconds

if TYPE_CHECKING:
    from lastgood.work.context import StageContext

OnInvalid = Literal["restart", "refuse"]
Work = Callable[["StageContext"], Any]
"""Changes `ctx.state`. What it returns does not matter, unless it can be awaited: then it is."""

MAX_BACKOFF_SECONDS = 60.0
MAX_STAGES = 1000
"""Their names stand in each checkpoint of a pipeline, and must find room there."""


class Stage:
    """A piece of work with its name. Calling it does the work, so that it can be tried alone.

    It is tried `retries` more times when it fails: after `backoff` seconds, then after twice as long each time, up to a
    minute; up to half of each wait is left out by chance, so that many failures at once are not retried at once. An
    attempt that takes longer than `timeout` seconds fails. `undo` takes back what it did, when a pipeline is rolled
    back. With `on_error="restore"` a failed attempt leaves the files of the workspace as they were before.
    """

    __slots__ = ("backoff", "name", "on_error", "retries", "timeout", "undo", "work")

    def __init__(
        self,
        work: Work,
        *,
        name: str | None = None,
        retries: int = 0,
        backoff: float = 1.0,
        timeout: float | None = None,
        undo: Work | None = None,
        on_error: OnError = "keep",
    ) -> None:
        for given in (work, undo):
            if given is not None and not callable(given):
                raise InvalidError("what a stage does cannot be called", hint="give a function of one argument, ctx")
        self.work = work
        self.name = check_name("stage", _name_of(work) if name is None else name)
        self.retries = check_number("retries", retries)
        if type(backoff) not in (int, float) or not 0 <= backoff <= 1e9:
            raise InvalidError("backoff is not a number of seconds", hint="give 0 or more", field="backoff")
        self.backoff = backoff
        self.timeout = None if timeout is None else check_seconds("timeout", timeout, below=1e9)
        self.undo = undo
        if on_error not in get_args(OnError):
            raise InvalidError(f"on_error cannot be {str(on_error)[:80]!r}", hint="one of keep, restore")
        self.on_error: OnError = on_error

    def delay(self, failures: int, chance: float) -> float:
        """Return the wait after so many failures in a row (from 1); `chance` is random, from 0 to 1."""
        whole = min(self.backoff * 2.0 ** min(failures - 1, 60), max(self.backoff, MAX_BACKOFF_SECONDS))
        return whole * (1 - chance / 2)

    def __call__(self, ctx: StageContext) -> Any:
        return self.work(ctx)

    def __repr__(self) -> str:
        return f"<Stage {self.name!r}>"


@overload
def stage(work: Work, /) -> Stage: ...


@overload
def stage(
    *,
    name: str | None = None,
    retries: int = 0,
    backoff: float = 1.0,
    timeout: float | None = None,
    undo: Work | None = None,
    on_error: OnError = "keep",
) -> Callable[[Work], Stage]: ...


def stage(work: Work | None = None, /, **how: Any) -> Stage | Callable[[Work], Stage]:
    """Make a function a stage: `@lastgood.stage(retries=3, timeout=60, undo=remove)`. See `Stage`."""
    return (lambda function: Stage(function, **how)) if work is None else Stage(work)


class StagePlan(msgspec.Struct, frozen=True):
    """A pipeline's stages and rules."""

    name: str
    stages: tuple[Stage, ...]
    rounds: int
    ttl: float | None
    on_invalid: OnInvalid

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.stages)

    def job_of(self, index: int) -> StageJob:
        return StageJob(self.stages[index], index, self.stages[index].work, "stage_succeeded")

    def undo_of(self, index: int) -> StageJob | None:
        """Return the job that undoes a stage; None: it has no `undo`."""
        undo = self.stages[index].undo
        return None if undo is None else StageJob(self.stages[index], index, undo, "stage_undone")

    def following(self, job: StageJob) -> StageJob | None:
        """Return the next job of the same round; None: it is not known before this one is done."""
        is_last = job.index == len(self.stages) - 1
        return None if is_last or job.type == "stage_undone" else self.job_of(job.index + 1)


class StageJob(msgspec.Struct, frozen=True):
    """A stage to be run, or to be undone; `type` is that of its checkpoint."""

    stage: Stage
    index: int
    work: Work
    type: Literal["stage_succeeded", "stage_undone"]


def as_stages(stages: Iterable[Any]) -> tuple[Stage, ...]:
    """Return stages of what was given: stages, functions, or objects with `run(ctx)` and perhaps `undo(ctx)`."""
    plan = tuple(map(_as_stage, stages))
    if not 0 < len(plan) <= MAX_STAGES:
        raise InvalidError(f"a pipeline has 1 to {MAX_STAGES} stages, not {len(plan)}", field="stages")
    names = [one.name for one in plan]
    for name in names:
        if names.count(name) > 1:
            raise InvalidError(f"two stages are named {name!r}", hint="name them: @lastgood.stage(name=…)")
    return plan


def _as_stage(given: Any) -> Stage:
    if isinstance(given, Stage):
        return given
    if callable(getattr(given, "run", None)) and not isinstance(given, type):
        name = getattr(given, "name", None)
        return Stage(given.run, name=type(given).__name__ if name is None else name, undo=getattr(given, "undo", None))
    return Stage(given)


def _name_of(work: Work) -> str:
    name = getattr(work, "__name__", None)
    if not isinstance(name, str):
        raise InvalidError("a stage has no name", hint="name it: lastgood.stage(name=…)(work)", field="stage")
    return name
