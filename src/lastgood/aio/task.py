"""Tasks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lastgood import task as engine
from lastgood.aio.bridge import Plain, bridged
from lastgood.aio.checkpoint import Checkpoint, Difference, Loadable, Recovery, Restored, unwrap, wrap_optional
from lastgood.aio.session import Control, Session
from lastgood.aio.step import Step
from lastgood.engine.branch import NOT_GIVEN, What
from lastgood.engine.history import Entry
from lastgood.engine.options import OnFailure
from lastgood.engine.step import OnError
from lastgood.model.evidence import EvidencePack

if TYPE_CHECKING:
    from lastgood.engine.restore_files import FilesPlan


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
    save = bridged(engine.Task.save, Checkpoint)
    undo = bridged(engine.Task.undo, Checkpoint)
    redo = bridged(engine.Task.redo, Checkpoint)
    switch = bridged(engine.Task.switch, Checkpoint)
    branches = bridged(engine.Task.branches)
    progress = bridged(engine.Task.progress)
    delete_branch = bridged(engine.Task.delete_branch)

    async def append(
        self,
        state: Any,
        *,
        evidence: EvidencePack | None = None,
        files: Sequence[str | os.PathLike[str]] | None = None,
        on_failure: OnFailure | None = None,
        **fields: Any,
    ) -> Checkpoint:
        """See `lastgood.Task.append`."""
        work = partial(self._far.append, state, evidence=evidence, files=files, on_failure=on_failure, **fields)
        return Checkpoint(self._bridge, await self._bridge.run(work))

    async def history(self, *, all: bool = False, **wanted: Any) -> list[Entry]:
        """See `lastgood.Task.history`."""
        return await self._bridge.run(partial(self._far.history, all=all, **wanted))

    @property
    def control(self) -> Control:
        """See `lastgood.Task.control`. It reads the store only when something is awaited."""
        return Control(self._bridge, self._far)

    def session(self, **how: Any) -> Session:
        """See `lastgood.Task.session`: `async with task.session(state=…, load=…) as session`."""
        return Session(self._bridge, self._far, how, Task)

    def step(self, name: str, *, type: str = "step", on_error: OnError = "keep", **fields: Any) -> Step:
        """See `lastgood.Task.step`: `async with task.step("edit") as step`."""
        return Step(self._bridge, self._far.step(name, type=type, on_error=on_error, **fields))

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
        message: str = "",
    ) -> Restored:
        """See `lastgood.Task.restore`."""
        chosen = unwrap(checkpoint)
        work = partial(self._far.restore, chosen, what, paths=paths, present=present, verify=verify, message=message)
        return Restored(self._bridge, await self._bridge.run(work))

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
