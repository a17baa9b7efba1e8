"""A session: a live process working on a branch, which people can control from any other process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from lastgood.catalog.values import FulfilledRequest
from lastgood.engine.load import BRIEFLY, log_on
from lastgood.engine.restore import bring_files
from lastgood.errors import (
    CheckpointError,
    ConflictError,
    ControlError,
    InvalidError,
    LeaseError,
)
from lastgood.model.identity import check_name
from lastgood.work.autosave import Autosave, AutosaveTimer, Saver
from lastgood.work.clock import POLL_SECONDS, Clock, ExitSignals, Scheduler, check_seconds
from lastgood.work.inbox import Inbox, Stopped, close_requests
from lastgood.work.lease import LEASE_SECONDS, RENEWALS, HeldLease, name_executor
from lastgood.work.requests import (
    Guidance,
    correlation_of,
    count_rounds,
    find_question,
    guidance_of,
    last_of_program,
    make_question,
)

if TYPE_CHECKING:
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.handle import Handle

DEADLINE_SECONDS = 10.0
ENDED = ("completed", "failed", "stopped")
_RESTARTED_BY = {"stopped": ("resume", "retry"), "failed": ("resume", "retry"), "completed": ("rounds",)}
"""Requests that let work go on which has ended."""

_NO_PLACE: dict[str, Any] = {"step_id": "initial", "iteration": 0, "iteration_state": None, "work_item_id": None}
"""Where a save of the program is in the work, unless it says so."""

current: ContextVar[Session | None] = ContextVar("lastgood_session", default=None)


class Session:
    """A session on a branch: a context manager, made by `task.session(…)`. One thread works in it at a time.

    Inside, this process alone advances the branch. `boundary()` is where the work is consistent: there it is saved
    when that is due, and there people's requests are fulfilled. Leaving the block completes the work; an exception
    fails it; a signal to end the program leaves it running, to be resumed. `stopped` says afterwards why it ended
    early.
    """

    def __init__(
        self,
        handle: Handle,
        task: Any,
        *,
        state: Callable[[], Any] | None = None,
        load: Callable[[Any], object] | None = None,
        about: Callable[[], dict[str, Any]] | None = None,
        beat: tuple[float, Callable[[], None]] | None = None,
        executor: str | None = None,
        lease: float = LEASE_SECONDS,
        autosave: Autosave | None = None,
        restart: bool = False,
        anytime: bool = False,
        signals: bool = True,
        deadline: float = DEADLINE_SECONDS,
        clock: Clock | None = None,
        reopen: bool = False,
    ) -> None:
        """See `Task.session`. `task` is the `lastgood.Task` of the handle. `about` returns fields for every checkpoint
        of the session; `beat` is called so many seconds apart in a thread of the session, and must not raise.
        Completed work goes on only if `reopen`.
        """
        self._task = task
        self._handle = handle
        self._load = load
        self._beat = beat
        self._restart = restart
        self._reopen = reopen
        self._seen: set[str] = set()
        self._anytime = anytime
        self._clock = clock or Clock()
        self._saver = Saver(handle, AutosaveTimer(autosave or Autosave(), self._clock), state, about)
        self._inbox = Inbox(handle, self._saver, load)
        executor = name_executor() if executor is None else check_name("executor", executor)
        seconds = check_seconds("lease", lease)
        self._lease = HeldLease(handle.engine, handle.user, handle.owner, executor, seconds, self._clock)
        self.signals = ExitSignals(self._clock, check_seconds("deadline", deadline), enabled=signals)
        self._is_interrupted = False
        self._is_over = False
        self._is_waiting = False
        self._wake = threading.Event()
        self._renewing = Scheduler(self._clock)  # apart: the lease is renewed whatever the other thread does
        self._scheduler = Scheduler(self._clock) if anytime or beat is not None else self._renewing
        self._token: Token[Session | None] | None = None
        self._pid = 0
        self.stopped: str | None = None

    # --- for the program -----------------------------------------------------------------------------------

    @property
    def task(self) -> Any:
        """The handle that the session was made from, a `lastgood.Task`."""
        return self._task

    @property
    def executor(self) -> str:
        return self._lease.executor

    @property
    def control_state(self) -> str:
        head = self._handle.head
        return "idle" if head is None else head.control_state

    @property
    def guidance(self) -> list[Any]:
        """All guidance that people gave, oldest first."""
        return [] if self._handle.head is None else self._handle.head.guidance

    def new_guidance(self) -> list[Guidance]:
        """Return the guidance that was not seen yet, oldest first. What was in the last checkpoint of the program,
        before this session, counts as seen."""
        new = [one for one in guidance_of(self._handle.head) if one.id not in self._seen]
        self._seen.update(one.id for one in new)
        return new

    def message(self, text: str) -> Checkpoint:
        """Save at a message of the user, with the message and the files: a checkpoint of the type `user_message`."""
        return self.save(type="user_message", message=text)

    @property
    def decisions(self) -> list[Any]:
        return [] if self._handle.head is None else self._handle.head.decisions

    @property
    def artifacts(self) -> list[Any]:
        """The artifacts as they are now, with people's edits."""
        return [] if self._handle.head is None else self._handle.head.artifacts

    @property
    def rounds(self) -> int:
        """How many rounds people added."""
        return count_rounds(self.guidance)

    @property
    def may_continue(self) -> bool:
        """Whether nothing is known here that keeps the work from going on past its next boundary."""
        return not self.signals.is_received and not self._is_interrupted and self.control_state == "running"

    def boundary(self) -> None:
        """Save the work if that is due, and fulfil requests: the work is consistent here. Blocks while it is paused.

        Raises Stopped where the work is to end, LeaseError when another process has taken it over.
        """
        self._require_lease()
        self._stop_waiting()
        self._serve_requests()
        self._saver.save_at_boundary()

    def pass_boundary(self) -> None:
        """As `boundary`, right after a commit that found no open request."""
        self._require_lease()
        self._check_interrupts()
        self._saver.save_at_boundary()

    def save(self, /, *, message: str = "", type: str = "step", **fields: Any) -> Checkpoint:
        """Save the present as a checkpoint, now. Takes the fields of `Task.save`."""
        self._require_own()
        with BRIEFLY:
            return self._saver.save(type, **{**_NO_PLACE, **fields, "message": message})

    def wait(self, seconds: float) -> None:
        """Let time pass; requests are fulfilled meanwhile. Raises as `boundary` does."""
        until = self._clock.now() + seconds
        while True:
            self.boundary()
            if (left := until - self._clock.now()) <= 0:
                return
            self._clock.wait(self._wake, min(left, POLL_SECONDS))

    def interrupt(self) -> None:
        """End the work at its next boundary as a signal would, and leave it running. From any thread."""
        self._is_interrupted = True
        self._wake.set()

    def ask(self, question: str, *, choices: Sequence[str] | None = None, key: str | None = None) -> str:
        """Ask a person, and wait. The answer is a recorded decision.

        When the program was ended meanwhile and asks again, by the same words or the same `key`, an answer that was
        given in between is taken.
        """
        self._require_lease()
        asked = make_question(question, choices, key)
        if (answer := self._inbox.find_earlier_answer(asked["id"])) is not None:
            return answer
        if (open_question := find_question(self._handle)) is None or open_question["id"] != asked["id"]:
            self._stop_waiting()
            self._serve_requests()
            about = {"question": asked}
            self._saver.save("question", control_state="waiting_for_input", metadata=about, message=question)
        while (answer := self._inbox.take_answer()) is None:
            self._fulfil_requests()
            if not self._inbox.has_answer:
                self._wait()
        return answer

    @contextmanager
    def before_risky(self, name: str) -> Iterator[Checkpoint]:
        """Save before something that may go wrong: `with session.before_risky("deploy"): …`, or as a decorator. Gives
        the checkpoint to restore."""
        self._require_own()
        yield self._saver.save("before_risky", message=name)

    def __repr__(self) -> str:
        return f"<Session of {self.executor!r} on {self._handle.id!r}, {self.control_state}>"

    # --- beginning and ending ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._pid:
            raise ConflictError("this session was begun already", hint="make a new one: task.session(…)")
        self._pid = os.getpid()
        try:
            with BRIEFLY:
                self._acquire_lease()
            self._renewing.every(self._lease.seconds / RENEWALS, self._lease.renew)
            self._scheduler.every(1.0, self._save_by_itself)
            if self._beat is not None:
                self._scheduler.every(*self._beat)
            self._renewing.start()
            self._begin()
            if self._scheduler is not self._renewing:
                self._scheduler.start()
            self.signals.install()
        except BaseException:
            self._close()
            raise
        self._token = current.set(self)
        self._log("session_begun")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            self._end(error)
        finally:
            if self._token is not None:
                with suppress(ValueError):  # it is left in another context than it was entered in
                    current.reset(self._token)
            self._close()
            self._log("session_ended")
            self._is_over = True
            if os.getpid() == self._pid:
                if self._lease.lost is None and self.control_state in ENDED:
                    with suppress(CheckpointError):  # they stay open
                        close_requests(self._handle)
                self.signals.deliver_unclaimed()
        return isinstance(error, Stopped)

    def _acquire_lease(self) -> None:
        """Acquire it on a branch that exists: two processes that begin new work at once have the same one."""
        handle = self._handle
        if handle.refresh() is None:
            try:
                self._saver.begin()
            except ConflictError:
                handle.refresh()
        self._lease.hold(handle)

    def _begin(self) -> None:
        """Load the head under the lease, if the work may go on."""
        head = self._handle.refresh()
        assert head is not None
        state = head.control_state
        restarting = [request for request in self._inbox.read() if request.kind in _RESTARTED_BY.get(state, ())]
        needs_restart = state == "stopped" or (state == "completed" and not self._reopen)
        if needs_restart and not restarting and not self._restart:
            how = "task.control.retry()" if state == "stopped" else "task.control.add_rounds(1)"
            raise ControlError(
                f"this work is {state}", hint=f"{how}, or begin the session with restart=True", state=state
            )
        if head.has_guidance:
            self._seen = {one.id for one in guidance_of(last_of_program(self._handle))}
        bring_files(self._handle)
        if self._load is not None:
            self._load(head.state)
        if state in ("idle", "stopped", "failed", "completed"):
            fulfils = tuple(
                FulfilledRequest(one.id, {}, one.kind) for one in restarting if one.kind in ("resume", "retry")
            )
            with correlation_of(restarting[0]) if fulfils else nullcontext():
                self._saver.record("started", fulfils=fulfils, control_state="running")
        self._saver.note_saves()

    def _end(self, error: BaseException | None) -> None:
        if isinstance(error, Stopped):
            self.stopped = error.reason
            return
        if isinstance(error, LeaseError) or os.getpid() != self._pid:
            return
        if self._lease.lost is not None:
            if error is None:  # the work is not completed, and the caller believes that it is
                raise self._lease.lost
            return
        if error is None:
            self._complete()
        elif isinstance(error, Exception) and self.control_state != "failed":
            reason = self._handle.engine.options.redaction.text(f"{type(error).__name__}: {error}")[:2000]
            try:
                self._stop_waiting()
                self._saver.record("failed", control_state="failed", metadata={"error": reason})
            except CheckpointError as failure:
                self._handle.alert("it could not be recorded that the work failed", failure, code="session")

    def _log(self, action: str) -> None:
        handle = self._handle
        id_ = handle.branch_id or handle.task_id
        log_on(handle.engine, handle.user, handle.owner, id_, action, executor=self.executor)

    def _complete(self) -> None:
        self._stop_waiting()
        try:
            if self.control_state == "paused":  # and there was no boundary to wait at
                self._serve_requests()
        except Stopped as stopped:
            self.stopped = stopped.reason
            return
        if self.control_state == "running":
            self._saver.save("completed", control_state="completed")

    def _close(self) -> None:
        self._scheduler.close()
        self._renewing.close()
        self.signals.remove()
        is_own = os.getpid() == self._pid  # else it is the parent's, which goes on
        self._lease.drop(self._handle, release=is_own)

    # --- being controlled ----------------------------------------------------------------------------------

    def interrupt_wait(self, now: bool = True) -> None:
        """Let `boundary` and `ask`, if they wait, raise Stopped. From any thread. With False, they may wait again."""
        if now:
            self._wake.set()
        else:
            self._wake.clear()

    def _serve_requests(self) -> None:
        """Fulfil requests, and go on doing that as long as the work is paused."""
        self._fulfil_requests()
        while self.control_state == "paused":
            self._wait()
            self._fulfil_requests()

    def _fulfil_requests(self) -> None:
        self._check_interrupts()
        if self.control_state == "stopped":
            raise Stopped("stopped")
        self._inbox.fulfil()

    def _check_interrupts(self) -> None:
        if self.signals.is_received or self._is_interrupted:
            self._saver.save_if_changed("interrupted")
            raise Stopped("interrupted")

    def _stop_waiting(self) -> None:
        """Record that work which waits for an answer is running: its program was ended meanwhile, and asks no more."""
        if self.control_state == "waiting_for_input":
            self._saver.record("resumed", control_state="running")

    def _wait(self) -> None:
        self._saver.save_while_waiting(active=self.control_state == "waiting_for_input")
        if self._clock.wait(self._wake, POLL_SECONDS):
            raise Stopped("interrupted")
        self._require_lease()

    def _require_lease(self) -> None:
        """Wait while the store is away for longer than the lease lasts: another process may have it by now (C10)."""
        self._require_own()
        while not self._lease.is_valid():
            if not self._is_waiting:
                self._is_waiting = True
                self._handle.alert("the lease ran out, and the store does not answer: the work waits", code="session")
            self._require_own()
            self._check_interrupts()
            if self._clock.wait(self._wake, POLL_SECONDS):
                raise Stopped("interrupted")
        self._is_waiting = False

    def _require_own(self) -> None:
        if self._is_over:
            raise InvalidError("this session is over", hint="begin a new one: task.session(…)")
        if os.getpid() != self._pid:
            raise InvalidError("this session belongs to another process", hint="begin one here: task.session(…)")
        if self._lease.lost is not None:
            raise self._lease.lost

    # --- in the scheduler's thread -------------------------------------------------------------------------

    def _save_by_itself(self) -> None:
        """Save for a program that does not come to its boundary, and end it when its deadline has passed."""
        if self.signals.claim_overdue():
            try:
                self._save_overdue()
            finally:
                self.signals.deliver()
        elif self._anytime and not self.signals.is_received:
            self._saver.save_at_any_moment()

    def _save_overdue(self) -> None:
        said = "the work did not come to a boundary in time: it ends"
        if not self._anytime:
            self._handle.alert(f"{said} unsaved", code="session")
        elif self._saver.save_at_any_moment("interrupted"):
            self._handle.alert(said, code="session")


def current_session() -> Session:
    """Return the session that this code runs in. InvalidError outside of one."""
    session = current.get()
    if session is None or session._is_over:  # sessions may be left in another order than they were begun in
        raise InvalidError("there is no session here", hint="with task.session(…): …")
    return session


@contextmanager
def before_risky(name: str) -> Iterator[Checkpoint]:
    """Save before something that may go wrong, in the session that the code runs in: `with before_risky("deploy"): …`,
    or as a decorator."""
    with current_session().before_risky(name) as checkpoint:
        yield checkpoint
