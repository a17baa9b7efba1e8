"""A session: a live process working on a branch, which people can steer from outside."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Literal, Self

from lastgood.catalog.values import FulfilledRequest
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.commit import KEPT
from lastgood.errors import (
    CheckpointError,
    ConflictError,
    ControlError,
    IntegrityError,
    InvalidError,
    LeaseError,
    UnavailableError,
)
from lastgood.model.digest import digest
from lastgood.model.identity import check_name, check_text
from lastgood.model.request import Request
from lastgood.task import NOT_GIVEN, Task
from lastgood.work.autosave import Autosave, Due, check_seconds
from lastgood.work.clock import POLL_SECONDS, Clock
from lastgood.work.holding import RENEWALS, SECONDS, Hold, name_executor
from lastgood.work.risky import Risky
from lastgood.work.saver import Saver
from lastgood.work.scheduler import Scheduler
from lastgood.work.signals import ExitSignals, deliver
from lastgood.work.steering import find_answer, find_question, meet

DEADLINE_SECONDS = 10.0
ENDED = ("completed", "failed", "stopped")
_STARTING = {"stopped": ("resume", "retry"), "failed": ("resume", "retry"), "completed": ("rounds",)}
"""What sets work going again that has come to an end."""

current: ContextVar[Session | None] = ContextVar("lastgood_session", default=None)


class Stopped(BaseException):
    """The work is to end here. Raised by `boundary` and `ask`; `with task.session()` takes it, everything is saved.

    Not an Exception, so that code which goes on after errors does not go on after this.
    """

    def __init__(self, reason: Literal["stopped", "cancelled", "interrupted"]) -> None:
        super().__init__(f"the work was {reason}")
        self.reason = reason


class Session:
    """Made by `task.session(…)`; a context manager. One thread works in it at a time.

    Inside, this process alone advances the branch. `boundary()` is where the work is whole: there it is saved when
    that is due, and there people's requests are met. Leaving the block completes the work; an exception fails it; a
    signal to end the program leaves it running, to be resumed. `stopped` says afterwards why it ended early.
    """

    def __init__(
        self,
        task: Task,
        *,
        state: Callable[[], Any] | None = None,
        load: Callable[[Any], object] | None = None,
        about: Callable[[], dict[str, Any]] | None = None,
        beat: tuple[float, Callable[[], None]] | None = None,
        executor: str | None = None,
        lease: float = SECONDS,
        autosave: Autosave | None = None,
        restart: bool = False,
        anytime: bool = False,
        signals: bool = True,
        deadline: float = DEADLINE_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        """`state` gives the program's state, `load` puts another in its place; both are called in boundaries, in the
        thread that is there. With `anytime` the state may be read from another thread at any moment: then it is saved
        in time also when there is no boundary for long. `executor` names this instance of the program, `lease` is how
        many seconds others wait before they take over from it when it is silent. `restart` sets work going again that
        is completed or stopped. With `signals`, SIGTERM and SIGINT let the work come to its next boundary, for at most
        `deadline` seconds. `about` gives fields for every checkpoint of the session; `beat` is called so many seconds
        apart in a thread of the session, and must not raise.
        """
        self._task = task
        self._load = load
        self._beat = beat
        self._restart = restart
        self._anytime = anytime
        self._deadline = check_seconds("deadline", deadline)
        self._clock = clock or Clock()
        self._saver = Saver(task, Due(autosave or Autosave(), self._clock), state, about)
        executor = name_executor() if executor is None else check_name("executor", executor)
        self._hold = Hold(task.store, task.owner, executor, check_seconds("lease", lease), self._clock)
        self._signals = ExitSignals(self._note_signal) if signals else None
        self._signal: tuple[int, float] | None = None
        self._interrupted = False
        self._is_delivered = False
        self._is_over = False
        self._applied: set[str] = set()
        self._decided: dict[str, Any] | None = None
        self._heard: set[str] = set()
        self._deaf = False
        self._is_waiting = False
        self._wake = threading.Event()
        self._keeper = Scheduler(self._clock)  # the lease is kept whatever takes long, or is called, in the other one
        self._scheduler = Scheduler(self._clock) if anytime or beat is not None else self._keeper
        self._token: Token[Session | None] | None = None
        self._pid = 0
        self.stopped: str | None = None

    # --- what the work sees --------------------------------------------------------------------------------

    @property
    def task(self) -> Task:
        return self._task

    @property
    def executor(self) -> str:
        return self._hold.executor

    @property
    def control_state(self) -> str:
        head = self._task.head
        return "idle" if head is None else head.control_state

    @property
    def guidance(self) -> list[Any]:
        """All that people told the work, oldest first."""
        return [] if self._task.head is None else self._task.head.guidance

    @property
    def decisions(self) -> list[Any]:
        return [] if self._task.head is None else self._task.head.decisions

    @property
    def artifacts(self) -> list[Any]:
        """As they are now, with what people edited."""
        return [] if self._task.head is None else self._task.head.artifacts

    @property
    def rounds(self) -> int:
        """How many rounds people added."""
        return count_rounds(self.guidance)

    @property
    def goes_on(self) -> bool:
        """Whether nothing is known here that keeps the work from going on past its next boundary."""
        return self._signal is None and not self._interrupted and self.control_state == "running"

    def boundary(self) -> None:
        """The work is whole here: save it if that is due, and do what people asked for. Blocks while it is paused.

        Raises Stopped where the work is to end, LeaseError when someone else has taken it over.
        """
        self._require_lease()
        self._go_on()
        self._attend()
        self._saver.save_at_boundary()

    def pass_boundary(self) -> None:
        """As `boundary`, right after a commit that found that nobody wants anything of the work."""
        self._require_lease()
        self._heed_interrupts()
        self._saver.save_at_boundary()

    def save(self, *, message: str = "", type: str = "step", **fields: Any) -> Checkpoint:
        """The present as a checkpoint, now. Takes the fields of `Task.save`."""
        self._require_own()
        return self._saver.save(type, message=message, **fields)

    def wait(self, seconds: float) -> None:
        """Let time pass; what people ask for is done meanwhile. Raises as `boundary` does."""
        until = self._clock.now() + seconds
        while True:
            self.boundary()
            if (left := until - self._clock.now()) <= 0:
                return
            self._clock.wait(self._wake, min(left, POLL_SECONDS))

    def interrupt(self) -> None:
        """End the work at its next boundary as a signal would, and leave it running. From any thread."""
        self._interrupted = True
        self._wake.set()

    def ask(self, question: str, *, choices: Sequence[str] | None = None, key: str | None = None) -> str:
        """Ask a person, and wait. The answer is a recorded decision.

        When the program was ended meanwhile and asks again, by the same words or the same `key`, an answer that was
        given in between is taken.
        """
        self._require_lease()
        asked = _question(question, choices, key)
        if (answer := self._answered_before(asked)) is not None:
            return answer
        if (open_question := find_question(self._task)) is None or open_question["id"] != asked["id"]:
            self._go_on()
            self._attend()
            told = {"question": asked}
            self._saver.save("question", control_state="waiting_for_input", metadata=told, message=question)
        while self._decided is None:
            self._meet_requests()
            if self._decided is None:
                self._wait()
        decided, self._decided = self._decided, None
        return str(decided["answer"])

    def before_risky(self, name: str) -> Risky:
        """Save before something that may go wrong: `with session.before_risky("deploy"): …`, or as a decorator."""
        return Risky(name, self)

    # --- its life ------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._pid:
            raise ConflictError("this session was begun already", hint="make a new one: task.session(…)")
        self._pid = os.getpid()
        try:
            self._take()
            self._keeper.every(self._hold.seconds / RENEWALS, self._hold.renew)
            self._scheduler.every(1.0, self._look_after)
            if self._beat is not None:
                self._scheduler.every(*self._beat)
            self._keeper.start()
            self._begin()
            if self._scheduler is not self._keeper:
                self._scheduler.start()
            if self._signals is not None:
                self._signals.install()
        except BaseException:
            self._let_go()
            raise
        self._token = current.set(self)
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
            self._let_go()
            self._is_over = True
            self._settle()
            if self._signal is not None and not self._is_delivered and os.getpid() == self._pid:
                deliver(self._signal[0])
        return isinstance(error, Stopped)

    def _take(self) -> None:
        """The lease, on a branch that there is: two who begin new work at once have the same one."""
        task = self._task
        if task.refresh() is None:
            try:
                self._saver.begin()
            except ConflictError:
                task.refresh()
        task.take_lease(lambda: self._hold.take(task.branch_id or "").token)

    def _begin(self) -> None:
        """Under the lease: where the work stands, and whether it may go on."""
        task = self._task
        head = task.refresh()
        assert head is not None
        state = head.control_state
        wanted = [request for request in self._requests() if request.kind in _STARTING.get(state, ())]
        if state in ("stopped", "completed") and not wanted and not self._restart:
            how = "retry it (`lastgood retry`)" if state == "stopped" else "add rounds (`lastgood rounds`)"
            raise ControlError(
                f"this work is {state}", hint=f"{how}, or begin the session with restart=True", state=state
            )
        task.bring_files()
        if self._load is not None:
            self._load(task.state)
        if state in ("idle", "stopped", "failed", "completed"):
            met = [FulfilledRequest(request.id, {}) for request in wanted if request.kind in ("resume", "retry")]
            self._saver.record("started", met=met, control_state="running")
        self._saver.look()

    def _end(self, error: BaseException | None) -> None:
        if isinstance(error, Stopped):
            self.stopped = error.reason
            return
        if isinstance(error, LeaseError) or os.getpid() != self._pid:
            return
        if self._hold.lost is not None:
            if error is None:  # the work is not completed, and whoever did it believes that it is
                raise self._hold.lost
            return
        if error is None:
            self._go_on()
            try:
                if self.control_state == "paused":  # and there was no boundary to wait at
                    self._attend()
            except Stopped as stopped:
                self.stopped = stopped.reason
                return
            if self.control_state == "running":
                self._saver.save("completed", control_state="completed")
        elif isinstance(error, Exception) and self.control_state != "failed":
            reason = self._task.without_secrets(f"{type(error).__name__}: {error}")[:2000]
            try:
                self._go_on()
                self._saver.record("failed", control_state="failed", metadata={"error": reason})
            except CheckpointError as failure:
                self._task.alert("it could not be recorded that the work failed", failure, "session")

    def _settle(self) -> None:
        """Work that has ended leaves nothing open that it was to do; who asks from now on finds nobody here."""
        if os.getpid() == self._pid and self._hold.lost is None and self.control_state in ENDED:
            from lastgood.work.control import settle

            with suppress(CheckpointError):  # they stay open, and whoever asks is told
                settle(self._task)

    def _let_go(self) -> None:
        self._scheduler.close()
        self._keeper.close()
        if self._signals is not None:
            self._signals.remove()
        is_own = os.getpid() == self._pid  # else it is the parent's, which goes on
        self._task.drop_lease(self._hold.token, self._hold.release if is_own else lambda: None)

    # --- being steered -------------------------------------------------------------------------------------

    def mark(self, type: str, request: Request, *, outcome: dict[str, Any] | None = None, **fields: Any) -> Checkpoint:
        """See Steered."""
        saved = self._saver.save(type, met=[FulfilledRequest(request.id, outcome or {})], **fields)
        self._note_met(request)
        if type == "answered":
            self._decided = fields["decisions"][-1]
            self._heard.add(saved.id)
        return saved

    def rewind(self, request: Request) -> None:
        """See Steered."""
        data, present = request.data, self._saver.present()
        what = data.get("what", "both")
        if what != "files" and self._load is None and present is not KEPT:
            raise InvalidError("this program cannot take another state", hint="it gives `state` alone, and no `load`")
        result = self._task.rewind(
            data["checkpoint"],
            what,
            present=NOT_GIVEN if present is KEPT else present,
            verify=data.get("verify", True),
            message=data.get("message", ""),
            request=request.id,
        )
        self._note_met(request)
        self._saver.look()
        if self._load is not None and what != "files":
            self._load(result.state)

    def _note_met(self, request: Request) -> None:
        self._applied.add(request.id)
        self._task.store.meter.count("requests_met", {"kind": request.kind})

    def break_off(self, now: bool = True) -> None:
        """From any thread: whoever waits in `boundary` or `ask` waits no more, and hears Stopped. With False, it may
        be waited again."""
        if now:
            self._wake.set()
        else:
            self._wake.clear()

    def heed_signals(self, now: bool = True) -> None:
        """In the main thread, for a session that was begun in another one; with False, not any more."""
        if self._signals is not None and now:
            self._signals.install()
        elif self._signals is not None:
            self._signals.remove()

    def _attend(self) -> None:
        """Meet what is wanted; as long as the work is paused, go on doing that."""
        self._meet_requests()
        while self.control_state == "paused":
            self._wait()
            self._meet_requests()

    def _meet_requests(self) -> None:
        self._heed_interrupts()
        if self.control_state == "stopped":
            raise Stopped("stopped")
        for request in self._wanted():
            try:
                meet(self, request)
            except UnavailableError as error:
                self._task.alert(f"what people asked for ({request.kind}) has to wait: {error}", error, "session")
                return
            if request.kind in ("stop", "cancel") and self.control_state == "stopped":
                raise Stopped("stopped" if request.kind == "stop" else "cancelled")
            if self._decided is not None:  # the work hears of that first: the rest may change where it stands
                return

    def _heed_interrupts(self) -> None:
        if self._signal is not None or self._interrupted:
            self._saver.save_by_itself("interrupted")
            raise Stopped("interrupted")

    def _wanted(self) -> list[Request]:
        """That nobody can say what is wanted is an alert, the first time: the work goes on (A8)."""
        try:
            wanted = self._requests()
        except (UnavailableError, IntegrityError) as error:
            if not self._deaf:
                self._task.alert(f"what people ask of the work cannot be read: {error}", error, "session")
            self._deaf = True
            return []
        self._deaf = False
        return wanted

    def _requests(self) -> list[Request]:
        return [request for request in self._task.requests() if request.id not in self._applied]

    def _go_on(self) -> None:
        """The program went on while the branch says that it waits: it was ended in between, and asks no more."""
        if self.control_state == "waiting_for_input":
            self._saver.record("resumed", control_state="running")

    def _answered_before(self, asked: dict[str, Any]) -> str | None:
        """What was answered when nobody was there, and the work has not heard yet."""
        given = find_answer(self._task)
        if given is None or given.id in self._heard or given.decisions[-1]["id"] != asked["id"]:
            return None
        self._heard.add(given.id)
        return str(given.decisions[-1]["answer"])

    def _wait(self) -> None:
        self._saver.save_while_waiting(active=self.control_state == "waiting_for_input")
        if self._clock.wait(self._wake, POLL_SECONDS):
            raise Stopped("interrupted")
        self._require_lease()

    # --- by itself -----------------------------------------------------------------------------------------

    def _look_after(self) -> None:
        """In the scheduler's thread: a program that does not come to its boundary."""
        if self._signal is not None:
            number, at = self._signal
            if self._clock.now() - at > self._deadline and not self._is_delivered:
                self._is_delivered = True
                try:
                    self._save_late()
                finally:
                    deliver(number)
        elif self._anytime:
            self._saver.save_at_any_moment()

    def _save_late(self) -> None:
        said = "the work did not come to a boundary in time: it ends"
        if not self._anytime:
            self._task.alert(f"{said} unsaved", None, "session")
        elif self._saver.save_at_any_moment("interrupted"):
            self._task.alert(said, None, "session")

    def _note_signal(self, number: int) -> None:
        self._signal = number, self._clock.now()

    def _require_lease(self) -> None:
        """When the store is away for longer than the lease lasts, somebody else may do the work by now (C10): it waits
        until the store can tell."""
        self._require_own()
        while not self._hold.is_good():
            if not self._is_waiting:
                self._is_waiting = True
                self._task.alert("the lease ran out while the store is away: the work waits for it", None, "session")
            self._require_own()
            self._heed_interrupts()
            if self._clock.wait(self._wake, POLL_SECONDS):
                raise Stopped("interrupted")
        self._is_waiting = False

    def _require_own(self) -> None:
        if self._is_over:
            raise InvalidError("this session is over", hint="begin a new one: task.session(…)")
        if os.getpid() != self._pid:
            raise InvalidError("this session belongs to another process", hint="begin one here: task.session(…)")
        if self._hold.lost is not None:
            raise self._hold.lost


def current_session() -> Session:
    """The session that this code runs in. InvalidError outside of one."""
    session = current.get()
    if session is None or session._is_over:  # sessions may be left in another order than they were begun in
        raise InvalidError("there is no session here", hint="with task.session(…): …")
    return session


def count_rounds(guidance: Sequence[Any]) -> int:
    """How many rounds people added."""
    return sum(said["rounds"] for said in guidance if isinstance(said, dict) and "rounds" in said)


def _question(text: str, choices: Sequence[str] | None, key: str | None) -> dict[str, Any]:
    check_text("question", text)
    for choice in choices or ():
        check_text("a choice", choice)
    name = text if key is None else check_name("key", key)
    told = {"key": name, "text": text, "choices": list(choices or ())}
    return {"id": digest("\0".join((name, *(choices or ()))).encode()).hex()[:32], **told}
