"""The bridge between a loop and the engine: the threads in which the engine works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Protocol, TypeVar

from lastgood.errors import UnavailableError
from lastgood.local.fork import renew_after_fork

THREADS = 8  # 50 tasks that save at once: 4 to 6 ms a save with 1, 0.8 to 1.7 with 4, 0.7 with 8, 0.7 to 1 with 32
COMMANDS = 10_000  # started when they are needed: a command waits for nobody, as its end may depend on a save


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)
T = TypeVar("T")


class Bridge:
    """The threads of one store. Belongs to no loop; after fork() the child has threads of its own.

    What is cancelled before a thread took it up is never done. What a thread has taken up is done to its end,
    and only then the one who waits hears that it was cancelled: nothing goes on behind anybody's back.
    """

    def __init__(self) -> None:
        self._far: Closable | None = None
        self._closed = False
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        self._operations = ThreadPoolExecutor(THREADS, "lastgood")
        self._commands = ThreadPoolExecutor(COMMANDS, "lastgood command")

    async def open(self, make: Callable[[], C]) -> C:
        def begin() -> C:
            self._far = made = make()
            return made

        try:
            return await self.run(begin)
        except BaseException:
            await self.close()
            raise

    async def run(self, work: Callable[[], T], *, certain: bool = False) -> T:
        """What `work` gives, done in a thread with the caller's context; if `certain`, done whatever is cancelled."""
        return await self._submit(self._operations, work, certain)

    async def run_command(self, work: Callable[[], T], stop: Callable[[], None], *, certain: bool = False) -> T:
        """As `run`, for what may take as long as it likes: nothing else waits for it, and cancelling calls `stop`."""
        return await self._submit(self._commands, work, certain, stop)

    async def close(self) -> None:
        """Take up nothing more, wait for what is under way, then close what was opened. Idempotent."""
        self._closed = True
        last = ThreadPoolExecutor(1, "lastgood closing")
        ending = last.submit(self._end)
        last.shutdown(wait=False)
        await _outcome(ending, certain=True)

    def _end(self) -> None:
        self._operations.shutdown()
        self._commands.shutdown()
        if self._far is not None:
            self._far.close()

    async def _submit(
        self, pool: ThreadPoolExecutor, work: Callable[[], T], certain: bool, stop: Callable[[], None] | None = None
    ) -> T:
        if self._closed:
            raise UnavailableError("this store was closed", hint="open it again")
        return await _outcome(pool.submit(copy_context().run, work), certain, stop)


async def _outcome(future: Future[T], certain: bool, stop: Callable[[], None] | None = None) -> T:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop was closed, and nobody waits any more
            loop.call_soon_threadsafe(ended.set)

    future.add_done_callback(tell)
    cancelled: asyncio.CancelledError | None = None
    while not ended.is_set():
        try:
            await ended.wait()
        except asyncio.CancelledError as error:
            if not certain and future.cancel():
                raise
            if stop is not None:
                stop()
            cancelled = error
    if cancelled is not None:
        raise cancelled from future.exception()
    return future.result()
