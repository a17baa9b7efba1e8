"""Pipelines: named stages in order, on a session, which go on where they stopped (C1 to C4).

Asynchronous stages run in an event loop of the pipeline's own, or in that of the caller who awaits the pipeline.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import closing
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, get_args

from lastgood.engine.commit import KEPT
from lastgood.engine.handle import Handle
from lastgood.errors import InvalidError
from lastgood.model.identity import check_flag, check_name, check_number
from lastgood.work.clock import check_seconds
from lastgood.work.context import run_in_thread
from lastgood.work.inbox import Stopped
from lastgood.work.progress import Progress, current_progress
from lastgood.work.run import Outcome, PipelineRun
from lastgood.work.stage import OnInvalid, Stage, StagePlan, as_stages

if TYPE_CHECKING:
    import asyncio

    from lastgood.work.attempt import Drive, Listener

T = TypeVar("T")
Limited = Callable[[Awaitable[Any]], Coroutine[Any, Any, Any]]


class OpenTask(Protocol):
    """A `lastgood.Task`, as `store.task(…)` gives it."""

    _handle: Handle


class Pipeline:
    """Stages that are run in order, `rounds` times. It has no state of its own: one pipeline may run on many tasks.

    `name` tells its progress from that of others. Progress that does not fit the stages any more, or is older than
    `ttl` seconds, is discarded with a warning and the work begins anew; with `on_invalid="refuse"` that is a
    ConflictError instead.
    """

    def __init__(
        self,
        stages: Iterable[Any],
        *,
        name: str | None = None,
        rounds: int = 1,
        on_invalid: OnInvalid = "restart",
        ttl: float | None = None,
    ) -> None:
        if on_invalid not in get_args(OnInvalid):
            raise InvalidError(f"on_invalid cannot be {str(on_invalid)[:80]!r}", hint="one of restart, refuse")
        if ttl is not None:
            check_seconds("ttl", ttl)
        name = "pipeline" if name is None else check_name("name", name)
        self._plan = StagePlan(name, as_stages(stages), check_number("rounds", rounds, low=1), ttl, on_invalid)

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
        task: OpenTask,
        *,
        state: Any = KEPT,
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
        with closing(_OwnLoop()) as loop:
            run = self._prepare(task, loop.drive, on_progress, session)
            return run.run(state, restart=check_flag("restart", restart))

    async def run_async(
        self,
        task: Any,
        *,
        state: Any = KEPT,
        restart: bool = False,
        on_progress: Listener | None = None,
        **session: Any,
    ) -> Outcome:
        """As `run`, on a task of `lastgood` or of `lastgood.aio`, without holding the loop: asynchronous stages run in
        it, the others in a thread of the pipeline, and `on_progress` is called there.

        Cancelled, it cancels the stage that is running if that is asynchronous, else lets it end; the work stays as it
        is, to be gone on with. Signals are left to the loop's owner.
        """
        loop = _CallersLoop()
        run = self._prepare(getattr(task, "_far", task), loop.drive, on_progress, {**session, "signals": False})
        return await loop.run(lambda: run.run(state, restart=check_flag("restart", restart)), run.interrupt)

    def roll_back(self, task: OpenTask, *, to: str, on_progress: Listener | None = None, **session: Any) -> Outcome:
        """Undo what stages did: run the `undo` of each completed one, the last one first, down to the stage `to` and
        with it. Those without one are passed over. Running the pipeline again goes on with `to`.

        Each undo is tried again as its stage is, and recorded when it is done; when this was interrupted, rolling back
        again (or running the pipeline) goes on with the rest. Afterwards the work is stopped.
        """
        with closing(_OwnLoop()) as loop:
            return self._prepare(task, loop.drive, on_progress, session).roll_back(check_name("to", to))

    def progress(self, task: OpenTask) -> Progress | None:
        """Return how far it has come on that task; None: it has not begun, or is done. For any process."""
        handle = task._handle
        handle.refresh()
        return current_progress(handle.engine, handle.owner, handle.id)

    def _prepare(self, task: Any, drive: Drive, listener: Listener | None, session: dict[str, Any]) -> PipelineRun:
        handle = getattr(task, "_handle", None)
        if not isinstance(handle, Handle):
            raise InvalidError("that is no task", hint="store.task(…) gives one", field="task")
        return PipelineRun(self._plan, handle, task, drive, listener, session)

    def __repr__(self) -> str:
        return f"<Pipeline {self.name!r} of {len(self.stages)} stages>"


class _OwnLoop:
    """An event loop for all stages of a run; made when the first of them needs it."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()

    def drive(self, work: Awaitable[Any], limited: Limited) -> None:
        import asyncio

        if self._runner is None:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                self._runner = asyncio.Runner()
            else:
                _discard(work)
                raise InvalidError("a loop is running in this thread: await pipeline.run_async(task) instead")
        try:
            self._runner.run(limited(work), context=copy_context())
        except asyncio.CancelledError as error:
            raise _cancelled_itself() from error


class _CallersLoop:
    """The running event loop; the pipeline itself, and stages that are not asynchronous, run in another thread."""

    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._stage: asyncio.Task[Any] | None = None
        self._cancelled = False

    def drive(self, work: Awaitable[Any], limited: Limited) -> None:
        import asyncio
        import concurrent.futures

        async def staged() -> None:
            self._stage = asyncio.current_task()
            try:
                if self._cancelled:
                    _discard(work)
                    raise asyncio.CancelledError
                await limited(work)
            finally:
                self._stage = None

        try:
            asyncio.run_coroutine_threadsafe(staged(), self._loop).result()
        except concurrent.futures.CancelledError as error:
            if self._cancelled:
                raise Stopped("interrupted") from error
            raise _cancelled_itself() from error

    async def run(self, work: Callable[[], T], interrupt: Callable[[], None]) -> T:
        """Run `work` in a thread of its own. Cancelled, it is interrupted and waited for; a synchronous stage ends
        first."""

        def cancel() -> None:
            self._cancelled = True
            interrupt()
            if self._stage is not None:
                self._stage.cancel()

        return await run_in_thread(work, cancel)


def _discard(work: Awaitable[Any]) -> None:
    """Close a coroutine that is never awaited."""
    if isinstance(work, Coroutine):
        work.close()


def _cancelled_itself() -> RuntimeError:
    return RuntimeError("the stage was cancelled from within")
