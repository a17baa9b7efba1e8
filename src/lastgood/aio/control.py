"""Steering work from this side."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from lastgood import task as engine
from lastgood.aio.checkpoint import Checkpoint, far_side
from lastgood.aio.handle import Fetched, Handle, Plain
from lastgood.engine.restore import What
from lastgood.model.lease import Lease
from lastgood.work import control as runner

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _steering(
    method: Callable[Concatenate[runner.Control, P], R],
) -> Callable[Concatenate[Control, P], Coroutine[Any, Any, R]]:
    @functools.wraps(method)
    async def operation(self: Control, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._bridge.run(lambda: method(self._far.control, *args, **kwargs))

    return operation


class _Seen(Fetched[T]):
    def __get__(self, handle: Handle[Any], kind: type) -> Callable[[], Coroutine[Any, Any, T]]:
        return lambda: handle._bridge.run(lambda: getattr(handle._far.control, self.name))


class Control(Handle[engine.Task]):
    """As `lastgood.Control`: `await task.control.pause()`, `await task.control.state()`."""

    __slots__ = ()

    state = _Seen[str]()
    question = _Seen[dict[str, Any] | None]()
    lease = _Seen[Lease | None]()

    pause = _steering(runner.Control.pause)
    resume = _steering(runner.Control.resume)
    retry = _steering(runner.Control.retry)
    stop = _steering(runner.Control.stop)
    cancel = _steering(runner.Control.cancel)
    add_rounds = _steering(runner.Control.add_rounds)
    guide = _steering(runner.Control.guide)
    edit = _steering(runner.Control.edit)
    answer = _steering(runner.Control.answer)
    withdraw = _steering(runner.Control.withdraw)
    requests = _steering(runner.Control.requests)
    follow = _steering(runner.Control.follow)
    again = _steering(runner.Control.again)

    async def restore(
        self,
        checkpoint: Checkpoint | str,
        what: What = "both",
        *,
        verify: bool = True,
        message: str = "",
        id: str | None = None,
    ) -> runner.Asked:
        """See `lastgood.Control.restore`."""
        chosen = far_side(checkpoint)
        return await self._bridge.run(
            lambda: self._far.control.restore(chosen, what, verify=verify, message=message, id=id)
        )


class Steering(Plain[Control]):
    """The control of a task, which looks at the store only when something is asked."""

    def __get__(self, handle: Handle[Any], kind: type) -> Control:
        return Control(handle._bridge, handle._far)
