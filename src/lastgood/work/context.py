"""The context that a stage is called with: the state to change, where it stands, and what it may do on the way."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from lastgood.codec.decode import decode
from lastgood.codec.encode import encode
from lastgood.engine.commit import KEPT
from lastgood.model.evidence import Evidence
from lastgood.model.identity import check_name, digest, new_id
from lastgood.work.clock import POLL_SECONDS
from lastgood.work.requests import next_version

if TYPE_CHECKING:
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.step import Step
    from lastgood.work.clock import TimeLimit
    from lastgood.work.progress import Progress
    from lastgood.work.session import Session

T = TypeVar("T")


class Made(NamedTuple):
    """What stages made: the state (KEPT: none of them changed it), and artifacts by their names."""

    state: Any = KEPT
    artifacts: Mapping[str, dict[str, Any]] = MappingProxyType({})


class StageContext:
    """The context of one attempt at one stage. `attempt` counts from 1, over failures and over the ends of processes: a
    stage that was in flight when its process died is run again, and knows it. `key` is the same in all attempts, and
    another one in another round, on another branch, or when the pipeline was begun anew: an idempotency key for
    services.

    A stage is all or nothing: what it makes of `state` is stored when it has ended, and not before. Checkpoints that
    are made in its midst have the state from before it.

    Every call that does something (all methods but `artifact`) raises StageTimeout when the stage's time is up.
    """

    def __init__(
        self,
        session: Session,
        step: Step,
        limit: TimeLimit,
        check_unmoved: Callable[[], None],
        progress: Progress,
        index: int,
        attempt: int,
        unsaved: Made,
    ) -> None:
        """`check_unmoved` raises when another checkpoint was restored meanwhile; `unsaved` is not in the head yet."""
        self._session = session
        self._step = step
        self._limit = limit
        self._check_unmoved = check_unmoved
        self._state: Any = KEPT
        self._unsaved = unsaved.state
        self._artifacts = dict(unsaved.artifacts)
        self.stage = step.name
        self.index = index
        self.round = progress.round
        self.attempt = attempt
        place = (session.task.branch_id or "", progress.run, str(progress.round), step.type, step.name)
        self.key = digest("\0".join(place).encode()).hex()[:32]

    @property
    def state(self) -> Any:
        """A private copy of the state as the stage before left it. Change it, or set it."""
        if self._state is KEPT and self._unsaved is not KEPT:
            self._state = decode(encode(self._unsaved))
        elif self._state is KEPT:
            head = self._session.task.head
            self._state = {} if head is None else head.fresh_state()
        return self._state

    @state.setter
    def state(self, value: Any) -> None:
        self._state = value

    @property
    def session(self) -> Session:
        return self._session

    @property
    def task(self) -> Any:
        """The handle that the pipeline runs on, a `lastgood.Task`."""
        return self._session.task

    @property
    def guidance(self) -> list[Any]:
        """All guidance that people gave, oldest first."""
        return self._session.guidance

    @property
    def decisions(self) -> list[Any]:
        return self._session.decisions

    # --- people --------------------------------------------------------------------------------------------

    def boundary(self) -> None:
        """Fulfil requests; blocks while the work is paused. See `Session.boundary`."""
        self._wait_for_people(self._session.boundary)

    def wait(self, seconds: float) -> None:
        """Let time pass; requests are fulfilled meanwhile. Unlike a sleep, the stage's timeout ends it."""
        clock, never = self._limit.clock, threading.Event()
        until = clock.now() + seconds
        while True:
            self.boundary()
            if (left := until - clock.now()) <= 0:
                return
            clock.wait(never, min(left, POLL_SECONDS))

    def ask(self, question: str, *, choices: Sequence[str] | None = None, key: str | None = None) -> str:
        """Ask a person, and wait. See `Session.ask`."""
        return self._wait_for_people(lambda: self._session.ask(question, choices=choices, key=key))

    async def boundary_async(self) -> None:
        """As `boundary`, without holding the loop."""
        await self._wait_for_people_async(self._session.boundary)

    async def ask_async(self, question: str, *, choices: Sequence[str] | None = None, key: str | None = None) -> str:
        """As `ask`, without holding the loop."""
        return await self._wait_for_people_async(lambda: self._session.ask(question, choices=choices, key=key))

    def before_risky(self, name: str) -> AbstractContextManager[Checkpoint]:
        """Save before something that may go wrong: `with ctx.before_risky("deploy"): …`."""
        self._limit.check()
        return self._session.before_risky(name)

    # --- products ------------------------------------------------------------------------------------------

    @property
    def artifacts(self) -> list[dict[str, Any]]:
        """The artifacts as they are now, with people's edits and what this stage has set."""
        found = [dict(one) for one in self._session.artifacts if isinstance(one, dict)]
        for name, given in self._artifacts.items():
            place = next((at for at, one in enumerate(found) if one.get("name") == name), None)
            if place is None:
                found.append({"name": name, "version": 1, **given})
            else:
                before = found[place]
                known = {"id": before.get("id"), "version": next_version(before)}
                found[place] = {**before, **given, **known}
        return found

    def artifact(self, name: str) -> Any:
        """Return the content of an artifact by its name; None: there is none."""
        return next((one.get("content") for one in self.artifacts if one.get("name") == name), None)

    def set_artifact(self, name: str, content: Any, *, type: str = "text", format: str = "plain") -> None:
        """Set a named product that people can edit; a new version, if there is one already. Stored with the stage."""
        self._limit.check()
        product = {"id": new_id(), "content": content, "type": type, "format": format}
        self._artifacts[check_name("artifact", name)] = product

    # --- evidence ------------------------------------------------------------------------------------------

    def expect(self, *evidence: Evidence) -> None:
        """Claim something; it is checked when the stage has ended. See `Step.expect`."""
        self._limit.check()
        self._step.expect(*evidence)

    def expect_file(self, path: str | os.PathLike[str], description: str | None = None) -> None:
        """Claim that a file is as it is now. See `Step.expect_file`."""
        self._limit.check()
        self._step.expect_file(path, description)

    def run(
        self, command: Sequence[str | os.PathLike[str]], *, expect: int = 0, check: bool = False, **options: Any
    ) -> subprocess.CompletedProcess[Any]:
        """Run a command; that it ended with the code `expect` is evidence. See `Step.run`. A timeout kills it."""
        with self._limit.watched():
            return self._step.run(command, expect=expect, check=check, **options)

    # --- for the pipeline ----------------------------------------------------------------------------------

    def hand_over(self, fields: dict[str, Any]) -> Made:
        """Give what this stage made to its step, and return it: it has to be kept, if the checkpoint is lost."""
        state = self._unsaved if self._state is KEPT else self._state
        if state is not KEPT:
            self._step.put(state)
        if self._artifacts:
            fields["artifacts"] = self.artifacts
        return Made(state, self._artifacts)

    def _wait_for_people(self, work: Callable[[], T]) -> T:
        with self._limit.suspended():
            done = work()
            self._check_unmoved()
        return done

    async def _wait_for_people_async(self, work: Callable[[], T]) -> T:
        with self._limit.suspended():
            done = await run_in_thread(work)
            self._check_unmoved()
        return done


async def run_in_thread(work: Callable[[], T], on_cancel: Callable[[], None] | None = None) -> T:
    """Run `work` to its end in a thread of its own, with the caller's context: also when this is cancelled. `on_cancel`
    is called then."""
    import asyncio
    from concurrent.futures import Future
    from contextvars import copy_context

    future, context = Future[T](), copy_context()

    def thread() -> None:
        try:
            future.set_result(context.run(work))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=thread, name="lastgood pipeline", daemon=True).start()
    ended = asyncio.wrap_future(future)
    cancelled: asyncio.CancelledError | None = None
    while not ended.done():
        try:
            await asyncio.wait([ended])
        except asyncio.CancelledError as error:
            cancelled = error
            if on_cancel is not None:
                on_cancel()
    if cancelled is not None:
        raise cancelled from ended.exception()
    return ended.result()
