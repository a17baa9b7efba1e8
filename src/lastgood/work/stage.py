"""Stages: named pieces of work, and what is to be done when one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, get_args, overload

from lastgood.engine.step import OnError
from lastgood.errors import InvalidError
from lastgood.model.identity import check_name, check_number
from lastgood.work.retry import Backoff, as_backoff

if TYPE_CHECKING:
    from lastgood.work.context import StageContext

Work = Callable[["StageContext"], Any]
"""Changes `ctx.state`. What it returns does not matter, unless it can be awaited: then it is."""

MAX_STAGES = 1000
"""Their names stand in each checkpoint of a pipeline, and must find room there."""


class Stage:
    """A piece of work with its name. Calling it does the work, so that it can be tried alone.

    It is tried `retries` more times when it fails, after waiting as `backoff` says (a number: the first wait, in
    seconds). An attempt that takes longer than `timeout` seconds fails. `undo` takes back what it did, when a pipeline
    is rolled back. With `on_error="restore"` a failed attempt leaves the files of the workspace as they were before.
    """

    __slots__ = ("backoff", "name", "on_error", "retries", "timeout", "undo", "work")

    def __init__(
        self,
        work: Work,
        *,
        name: str | None = None,
        retries: int = 0,
        backoff: Backoff | float | None = None,
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
        self.backoff = as_backoff(backoff)
        if timeout is not None and (type(timeout) not in (int, float) or not 0 < timeout < 1e9):
            raise InvalidError("timeout is not a number of seconds", hint="give one above 0", field="timeout")
        self.timeout = timeout
        self.undo = undo
        if on_error not in get_args(OnError):
            raise InvalidError(f"on_error cannot be {str(on_error)[:80]!r}", hint="one of keep, restore")
        self.on_error: OnError = on_error

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
    backoff: Backoff | float | None = None,
    timeout: float | None = None,
    undo: Work | None = None,
    on_error: OnError = "keep",
) -> Callable[[Work], Stage]: ...


def stage(work: Work | None = None, /, **how: Any) -> Stage | Callable[[Work], Stage]:
    """Make a function a stage: `@lastgood.stage(retries=3, timeout=60, undo=remove)`. See `Stage`."""
    return (lambda function: Stage(function, **how)) if work is None else Stage(work)


def as_plan(stages: Iterable[Any]) -> tuple[Stage, ...]:
    """Stages as they are given: made by `stage`, functions, or objects with `run(ctx)` and perhaps `undo(ctx)`."""
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
