"""Tasks and their steps, which are begun, committed and given up without holding the loop."""

from __future__ import annotations

import asyncio
import builtins
import functools
import os
import subprocess
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from lastgood import task as engine
from lastgood.aio.bridge import Awaited, Bridge, Handle, Plain, bridged, mirrored
from lastgood.aio.checkpoint import Checkpoint, Difference, Loadable, Recovery, Restored, unwrap, wrap_optional
from lastgood.aio.session import Control, Session
from lastgood.engine import step
from lastgood.engine.branch import What
from lastgood.engine.commit import NOT_GIVEN
from lastgood.errors import UnavailableError
from lastgood.model.evidence import Evidence, EvidencePack

if TYPE_CHECKING:
    from lastgood.engine.restore_files import FilesPlan

P = ParamSpec("P")
T = TypeVar("T")


class Task(Loadable[engine.Task]):
    """As `lastgood.Task`. May be shared by coroutines; saves that are under way together come in any order.

    A state is read in another thread: nobody may change it until the save has ended, well or not.
    """

    __slots__ = ()

    id = Plain[str]()
    owner = Plain[str]()
    task_id = Plain[str]()
    branch_id = Plain[str | None]()
    head = Plain(wrap_optional)

    refresh = bridged(engine.Task.refresh, wrap_optional)
    find = bridged(engine.Task.find, Checkpoint)
    last_good = bridged(engine.Task.last_good, wrap_optional)
    recovery = bridged(engine.Task.recovery, Recovery)
    history = bridged(engine.Task.history)
    save = bridged(engine.Task.save, Checkpoint)
    append = bridged(engine.Task.append, Checkpoint)
    undo = bridged(engine.Task.undo, Checkpoint)
    redo = bridged(engine.Task.redo, Checkpoint)
    switch = bridged(engine.Task.switch, Checkpoint)
    branches = bridged(engine.Task.branches)
    progress = bridged(engine.Task.progress)
    delete_branch = bridged(engine.Task.delete_branch)

    @property
    def control(self) -> Control:
        """See `lastgood.Task.control`. It reads the store only when something is awaited."""
        return Control(self._bridge, self._far)

    session = mirrored(engine.Task.session, lambda self, **how: _make_session(self, how))
    step = mirrored(engine.Task.step, lambda self, name, **how: _make_step(self, name, how))

    async def tag(self, checkpoint: Checkpoint | str, name: str, *, move: bool = False) -> None:
        """See `lastgood.Task.tag`."""
        await self._bridge.run(partial(self._far.tag, unwrap(checkpoint), name, move=move))

    async def restore(
        self,
        checkpoint: Checkpoint | str,
        what: What = "both",
        *,
        paths: Sequence[str] | None = None,
        present: Any = NOT_GIVEN,
        verify: bool = True,
        skip_damaged: bool = False,
        message: str = "",
    ) -> Restored:
        """See `lastgood.Task.restore`."""
        about: dict[str, Any] = {"paths": paths, "present": present, "verify": verify, "skip_damaged": skip_damaged}
        work = partial(self._far.restore, unwrap(checkpoint), what, message=message, **about)
        return Restored(self._bridge, await self._bridge.run(work))

    async def roll_back(self, checkpoint: Checkpoint) -> Restored:
        """See `lastgood.Task.roll_back`."""
        return Restored(self._bridge, await self._bridge.run(partial(self._far.roll_back, checkpoint._far)))

    async def diff(
        self,
        before: Checkpoint | str = "HEAD",
        after: Checkpoint | str | None = None,
        *,
        paths: Sequence[str] | None = None,
    ) -> Difference:
        """See `lastgood.Task.diff`."""
        other = None if after is None else unwrap(after)
        work = partial(self._far.diff, unwrap(before), other, paths=paths)
        return Difference(self._bridge, await self._bridge.run(work))

    async def copy_files(
        self, checkpoint: Checkpoint | str, to: str | os.PathLike[str], *, paths: Sequence[str] | None = None
    ) -> tuple[str, ...]:
        """See `lastgood.Task.copy_files`."""
        return await self._bridge.run(partial(self._far.copy_files, unwrap(checkpoint), to, paths=paths))

    async def plan(self, checkpoint: Checkpoint | str, *, paths: Sequence[str] | None = None) -> FilesPlan:
        """See `lastgood.Task.plan`."""
        return await self._bridge.run(partial(self._far.plan, unwrap(checkpoint), paths=paths))

    async def fork(
        self,
        checkpoint: Checkpoint | str = "HEAD",
        *,
        name: str | None = None,
        description: str = "",
        metadata: dict[str, Any] | None = None,
        paused: bool = False,
        verify: bool = True,
    ) -> Task:
        """See `lastgood.Task.fork`."""
        work = partial(
            self._far.fork,
            unwrap(checkpoint),
            name=name,
            description=description,
            metadata=metadata,
            paused=paused,
            verify=verify,
        )
        return Task(self._bridge, await self._bridge.run(work))


class Step(Handle[step.Step]):
    """As `lastgood.Step`: `async with task.step("edit") as step`. Cancelled inside, it is recorded as failed.

    `await step.state` is the private copy to change, the same one each time; `step.set_state(value)` puts
    another in its place.
    """

    __slots__ = ("_lock",)

    id = Plain[str]()
    name = Plain[str]()
    type = Plain[str]()
    evidence = Plain[EvidencePack]()
    checkpoint = Plain(wrap_optional)
    before = Plain(wrap_optional)

    expect_file = bridged(step.Step.expect_file)
    commit = bridged(step.Step.commit, Checkpoint)
    fail = bridged(step.Step.fail)

    def __init__(self, bridge: Bridge, far: step.Step) -> None:
        super().__init__(bridge, far)
        self._lock = threading.Lock()

    async def begin(self) -> Self:
        """Begin it by hand, where `async with` does not fit; end it with `commit` or `fail`."""
        await self._bridge.run(self._far.begin)
        return self

    @property
    def state(self) -> Awaited[Any]:
        """A private copy of the head's state; see `lastgood.Step.state` for when that conflicts."""
        return Awaited(lambda: self._bridge.run(self._state))

    def set_state(self, value: Any) -> None:
        """Commit `value`, whatever the state was."""
        self._far.state = value

    def expect(self, *evidence: Evidence) -> None:
        """Claim something; it is checked when the step commits."""
        self._far.expect(*evidence)

    async def run(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        expect: int = 0,
        check: bool = False,
        description: str | None = None,
        **options: Any,
    ) -> subprocess.CompletedProcess[Any]:
        """See `lastgood.Step.run`. Cancelled, it kills the command."""
        call = partial(self._far.run, command, expect=expect, check=check, description=description, **options)
        return await self._bridge.run_command(call, self._far.stop)

    def stop(self) -> None:
        """See `lastgood.Step.stop`."""
        self._far.stop()

    def __call__(self, work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        """Make each call of a coroutine function a step: `@task.step("edit")`."""

        @functools.wraps(work)
        async def stepped(*args: P.args, **kwargs: P.kwargs) -> T:
            async with Step(self._bridge, self._far.again()):
                return await work(*args, **kwargs)

        return stepped

    async def __aenter__(self) -> Self:
        try:
            return await self.begin()
        except asyncio.CancelledError as error:  # it may have begun all the same, and nobody would end it
            await self._end(error)
            raise

    async def __aexit__(
        self, kind: builtins.type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._end(error)
        except UnavailableError:
            if error is None:  # else what went wrong first is what the caller must hear
                raise

    async def _end(self, error: BaseException | None) -> None:
        kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
        await self._bridge.run(partial(self._far.__exit__, kind, error, trace), certain=True)

    def _state(self) -> Any:
        with self._lock:  # two calls at the same time must not get a copy each: one of them would be lost
            return self._far.state


def _make_session(task: Task, how: dict[str, Any]) -> Session:
    return Session(task._bridge, task._far, how, Task)


def _make_step(task: Task, name: str, how: dict[str, Any]) -> Step:
    return Step(task._bridge, task._far.step(name, **how))
