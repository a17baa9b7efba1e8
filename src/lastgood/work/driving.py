"""Where the asynchronous stages of a pipeline run: in a loop of its own, or in that of who awaits the pipeline."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lastgood.errors import InvalidError
from lastgood.work.session import Stopped

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
Limited = Callable[[Awaitable[Any]], Coroutine[Any, Any, Any]]


class Driver(Protocol):
    """Runs what is to be awaited to its end, from a thread that is not to go on before; `limited` sees to its time."""

    def drive(self, work: Awaitable[Any], limited: Limited) -> None: ...

    def close(self) -> None: ...


class OwnLoop:
    """One event loop for all stages of a run; made when the first of them needs it."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def drive(self, work: Awaitable[Any], limited: Limited) -> None:
        import asyncio

        if self._runner is None:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                self._runner = asyncio.Runner()
            else:
                _drop(work)
                raise InvalidError("a loop is running in this thread: await pipeline.run_async(task) instead")
        try:
            self._runner.run(limited(work), context=copy_context())
        except asyncio.CancelledError as error:
            raise _cancelled_itself() from error

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()


class CallersLoop:
    """The loop that is running; the pipeline itself, and stages that are not asynchronous, work in another thread."""

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
                    _drop(work)
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

    def close(self) -> None:
        return None

    async def run(self, work: Callable[[], T], interrupt: Callable[[], None]) -> T:
        """`work` in a thread of its own. Cancelled, it is interrupted and waited for: nothing goes on behind anybody's
        back; a stage that is not asynchronous ends first."""
        import asyncio
        import concurrent.futures

        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        ended = asyncio.Event()
        context = copy_context()

        def thread() -> None:
            try:
                future.set_result(context.run(work))
            except BaseException as error:
                future.set_exception(error)
            finally:
                self._loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=thread, name="lastgood pipeline", daemon=True).start()
        cancelled: asyncio.CancelledError | None = None
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError as error:
                cancelled, self._cancelled = error, True
                interrupt()
                if self._stage is not None:
                    self._stage.cancel()
        if cancelled is not None:
            raise cancelled from future.exception()
        return future.result()


def _drop(work: Awaitable[Any]) -> None:
    """What is never begun is never missed."""
    if isinstance(work, Coroutine):
        work.close()


def _cancelled_itself() -> RuntimeError:
    return RuntimeError("the stage was cancelled from within")
