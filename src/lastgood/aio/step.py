"""Steps: begun, committed and given up without holding the loop."""

from __future__ import annotations

import asyncio
import builtins
import os
import subprocess
import threading
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from lastgood.aio.bridge import Bridge, Handle, Plain, bridged
from lastgood.aio.checkpoint import Checkpoint, wrap_optional
from lastgood.engine import step
from lastgood.errors import UnavailableError
from lastgood.model.evidence import Evidence, EvidencePack


class Step(Handle[step.Step]):
    """As `lastgood.Step`: `async with task.step("edit") as step`. Cancelled inside, it is recorded as failed.

    `await step.state()` is the private copy to change, the same one each time; `step.set_state(value)` puts
    another in its place.
    """

    __slots__ = ("_lock",)

    id = Plain[str]()
    name = Plain[str]()
    type = Plain[str]()
    evidence = Plain[EvidencePack]()
    checkpoint = Plain(wrap_optional)

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

    async def state(self) -> Any:
        """Return a private copy of the head's state; see `lastgood.Step.state` for when that conflicts."""
        return await self._bridge.run(self._state)

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
