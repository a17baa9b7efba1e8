"""Sessions, whose work lives in the loop and never waits there for people or the store; and control of sessions."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import Token
from functools import partial
from types import TracebackType
from typing import Any, Self

from lastgood import task as tasks
from lastgood.aio.bridge import Bridge, Fetched, Handle, Plain, bridged
from lastgood.aio.checkpoint import Checkpoint, unwrap
from lastgood.engine.branch import What
from lastgood.errors import InvalidError
from lastgood.model.task import Lease
from lastgood.work import control
from lastgood.work import session as runner


class Session(Handle[runner.Session]):
    """As `lastgood.Session`: `async with task.session(state=…, load=…) as session`.

    `state` and `load` may be coroutines; both are called in the loop, where the program lives. While the work is
    paused, or waits for an answer, the loop goes on. Cancelled in `boundary` or `ask`, it is left to be resumed.
    """

    __slots__ = ("_home", "_task", "_token")

    executor = Plain[str]()
    control_state = Plain[str]()
    stopped = Plain[str | None]()

    guidance = Fetched[list[Any]]()
    decisions = Fetched[list[Any]]()
    artifacts = Fetched[list[Any]]()
    rounds = Fetched[int]()
    save = bridged(runner.Session.save, Checkpoint)
    message = bridged(runner.Session.message, Checkpoint)
    new_guidance = bridged(runner.Session.new_guidance)

    def __init__(
        self, bridge: Bridge, task: tasks.Task, how: dict[str, Any], handle: Callable[[Bridge, tasks.Task], Any]
    ) -> None:
        self._task = handle
        self._home = home = _Home()
        self._token: Token[runner.Session | None] | None = None
        of_the_program = {name: home.call_here(how[name]) for name in ("state", "load") if how.get(name) is not None}
        super().__init__(bridge, task.session(**{**how, **of_the_program}))

    @property
    def task(self) -> Any:
        """See `lastgood.Session.task`."""
        return self._task(self._bridge, self._far.task)

    async def boundary(self) -> None:
        """See `lastgood.Session.boundary`."""
        await self._wait_in(self._far.boundary)

    async def ask(self, question: str, *, choices: Sequence[str] | None = None, key: str | None = None) -> str:
        """See `lastgood.Session.ask`."""
        answer: str = await self._wait_in(partial(self._far.ask, question, choices=choices, key=key))
        return answer

    async def wait(self, seconds: float) -> None:
        """See `lastgood.Session.wait`."""
        await self._wait_in(partial(self._far.wait, seconds))

    @asynccontextmanager
    async def before_risky(self, name: str) -> AsyncIterator[Checkpoint]:
        """See `lastgood.Session.before_risky`: `async with session.before_risky("deploy"): …`, or as a decorator."""
        yield await self.save(type="before_risky", message=name)

    async def __aenter__(self) -> Self:
        self._home.enter()
        try:
            await self._bridge.run(self._far.__enter__)
        except asyncio.CancelledError as error:  # it may have begun all the same, and nobody would end it
            await self._leave(error)
            raise
        self._token = runner.current.set(self._far)
        self._far.signals.install()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            return await self._leave(error)
        finally:
            self._far.signals.remove()
            if self._token is not None:
                with suppress(ValueError):  # it is left in another context than it was entered in
                    runner.current.reset(self._token)

    async def _leave(self, error: BaseException | None) -> bool:
        kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
        leave = partial(self._far.__exit__, kind, error, trace)
        self._far.interrupt_wait(False)
        return await self._bridge.run_command(leave, self._far.interrupt_wait, certain=True)

    async def _wait_in(self, work: Callable[[], Any]) -> Any:
        self._far.interrupt_wait(False)
        return await self._bridge.run_command(work, self._far.interrupt_wait)


class _Home:
    """A program's loop, in which its functions are called, whichever thread needs them."""

    def enter(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def call_here(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if threading.get_ident() != self._thread:
                return asyncio.run_coroutine_threadsafe(_finish(work, *args), self._loop).result()
            given = work(*args)
            if inspect.iscoroutine(given):
                given.close()
                raise InvalidError("a state that is awaited cannot be saved from here", hint="await session.save()")
            return given

        return call


async def _finish(work: Callable[..., Any], *args: Any) -> Any:
    given = work(*args)
    return await given if inspect.isawaitable(given) else given


class Control(Handle[tasks.Task]):
    """As `lastgood.Control`: `await task.control.pause()`, `await task.control.state`."""

    __slots__ = ()

    def _reach(self) -> control.Control:
        return self._far.control  # which reads the store

    state = Fetched[str]()
    question = Fetched[dict[str, Any] | None]()
    lease = Fetched[Lease | None]()

    pause = bridged(control.Control.pause)
    resume = bridged(control.Control.resume)
    retry = bridged(control.Control.retry)
    stop = bridged(control.Control.stop)
    cancel = bridged(control.Control.cancel)
    add_rounds = bridged(control.Control.add_rounds)
    guide = bridged(control.Control.guide)
    edit = bridged(control.Control.edit)
    answer = bridged(control.Control.answer)
    withdraw = bridged(control.Control.withdraw)
    requests = bridged(control.Control.requests)
    follow = bridged(control.Control.follow)
    again = bridged(control.Control.again)

    async def restore(
        self,
        checkpoint: Checkpoint | str,
        what: What = "both",
        *,
        verify: bool = True,
        skip_damaged: bool = False,
        message: str = "",
        id: str | None = None,
    ) -> control.RequestResult:
        """See `lastgood.Control.restore`."""
        about: dict[str, Any] = {"verify": verify, "skip_damaged": skip_damaged, "message": message, "id": id}
        return await self._bridge.run(lambda: self._reach().restore(unwrap(checkpoint), what, **about))
