"""Pipelines: named stages in order, on a session, which go on where they stopped (C1 to C4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, get_args

from lastgood.engine.commit import KEPT
from lastgood.errors import InvalidError
from lastgood.model.identity import check_flag, check_name, check_number
from lastgood.task import NOT_GIVEN, Task
from lastgood.work.plan import OnInvalid, Outcome, Plan
from lastgood.work.progress import Progress, current_progress
from lastgood.work.stage import Stage, as_plan

if TYPE_CHECKING:
    from lastgood.work.driving import Driver
    from lastgood.work.running import Running
    from lastgood.work.standing import Listener


class Pipeline:
    """Stages that are run in order, `rounds` times. Holds no state of its own: one pipeline may run on many tasks.

    `name` tells its progress from that of others. Progress that does not fit the stages any more, or is older than
    `ttl` seconds, is discarded with a warning and the work begins anew; with `on_invalid="refuse"` that is a
    ConflictError instead. `chance` draws from 0 to 1 for the jitter of retries (default: `random.random`).
    """

    def __init__(
        self,
        stages: Iterable[Any],
        *,
        name: str | None = None,
        rounds: int = 1,
        on_invalid: OnInvalid = "restart",
        ttl: float | None = None,
        chance: Callable[[], float] | None = None,
    ) -> None:
        if on_invalid not in get_args(OnInvalid):
            raise InvalidError(f"on_invalid cannot be {str(on_invalid)[:80]!r}", hint="one of restart, refuse")
        if ttl is not None and (type(ttl) not in (int, float) or not ttl > 0):
            raise InvalidError("ttl is not a number of seconds", hint="give one above 0", field="ttl")
        name = "pipeline" if name is None else check_name("name", name)
        self._plan = Plan(
            name, as_plan(stages), check_number("rounds", rounds, low=1), ttl, on_invalid, chance or _draw
        )

    @property
    def name(self) -> str:
        return self._plan.name

    @property
    def stages(self) -> tuple[Stage, ...]:
        return self._plan.stages

    @property
    def rounds(self) -> int:
        return self._plan.rounds

    def run(
        self,
        task: Task,
        *,
        state: Any = NOT_GIVEN,
        restart: bool = False,
        on_progress: Listener | None = None,
        **session: Any,
    ) -> Outcome:
        """Run it to its end, from where it stands. On work that is completed it returns at once, unless more rounds
        were given; with `restart` it begins anew.

        `state` is the one to begin with (default: what the task has; {} on a new one). `on_progress` is called with
        each ProgressEvent, in the thread that works; heartbeats come from another one. Takes the options of a session
        (`executor`, `lease`, `autosave`, `signals`, `deadline`, `clock`). Raises StageError when a stage has failed for
        good; then, or after it was interrupted in any way, running it again goes on with that stage.
        """
        from lastgood.work.driving import OwnLoop

        driver = OwnLoop()
        try:
            return self._running(task, driver, on_progress, session).run(_first(state), restart=_flag(restart))
        finally:
            driver.close()

    async def run_async(
        self,
        task: Any,
        *,
        state: Any = NOT_GIVEN,
        restart: bool = False,
        on_progress: Listener | None = None,
        **session: Any,
    ) -> Outcome:
        """As `run`, on a task of `lastgood` or of `lastgood.aio`, without holding the loop: asynchronous stages run in
        it, the others in a thread of the pipeline, and `on_progress` is called there.

        Cancelled, it cancels the stage that is running if that is asynchronous, else lets it end; the work stays as it
        is, to be gone on with. Signals are left to the loop's owner.
        """
        from lastgood.work.driving import CallersLoop

        driver = CallersLoop()
        running = self._running(getattr(task, "_far", task), driver, on_progress, {**session, "signals": False})
        return await driver.run(lambda: running.run(_first(state), restart=_flag(restart)), running.interrupt)

    def roll_back(self, task: Task, *, to: str, on_progress: Listener | None = None, **session: Any) -> Outcome:
        """Take back what stages did: the `undo` of each completed one, the last one first, down to the stage `to` and
        with it. Those without one are passed over. Running the pipeline again goes on with `to`.

        Each undo is tried again as its stage is, and recorded when it is done; when this was interrupted, rolling back
        again (or running the pipeline) goes on with the rest. Afterwards the work is stopped.
        """
        from lastgood.work.driving import OwnLoop

        driver = OwnLoop()
        try:
            return self._running(task, driver, on_progress, session).roll_back(check_name("to", to))
        finally:
            driver.close()

    def progress(self, task: Task) -> Progress | None:
        """How far it has come on that task; None: it has not begun, or is done. Reads; for any process."""
        task.refresh()
        return current_progress(task)

    def _running(self, task: Any, driver: Driver, listener: Listener | None, session: dict[str, Any]) -> Running:
        from lastgood.work.running import Running

        if not isinstance(task, Task):
            raise InvalidError("that is no task", hint="store.task(…) gives one", field="task")
        return Running(self._plan, task, driver, listener, session)

    def __repr__(self) -> str:
        return f"<Pipeline {self.name!r} of {len(self.stages)} stages>"


def _draw() -> float:
    from random import random

    return random()  # noqa: S311


def _first(state: Any) -> Any:
    return KEPT if state is NOT_GIVEN else state


def _flag(restart: bool) -> bool:
    return check_flag("restart", restart)
