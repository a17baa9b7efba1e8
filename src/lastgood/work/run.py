"""One run of a pipeline on a session: from its progress to its end, or back to a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from lastgood.engine.commit import KEPT
from lastgood.engine.step import check_on_error
from lastgood.errors import ConflictError, ControlError, InvalidError
from lastgood.model.identity import new_id, now
from lastgood.observe.log import log_warning
from lastgood.work.attempt import StageRunner, Tracker
from lastgood.work.clock import Clock
from lastgood.work.inbox import Stopped
from lastgood.work.progress import EventKind, Missing, Progress, broken_rule, find_progress
from lastgood.work.requests import count_rounds, open_requests
from lastgood.work.session import Session

if TYPE_CHECKING:
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.handle import Handle
    from lastgood.work.attempt import Drive, Listener
    from lastgood.work.stage import StageJob, StagePlan

BEAT_SECONDS = 5.0
Found = Progress | Missing | None


class Outcome(msgspec.Struct, frozen=True):
    """An end of a run. `stopped` says why it ended early ("stopped", "cancelled", "interrupted"); None: it is done."""

    state: Any
    checkpoint: Checkpoint
    stopped: str | None = None


class PipelineRun:
    """A run of a pipeline, or a rollback; used once."""

    def __init__(
        self,
        plan: StagePlan,
        handle: Handle,
        task: Any,
        drive: Drive,
        listener: Listener | None,
        options: dict[str, Any],
    ) -> None:
        """`task` is the `lastgood.Task` of the handle. `drive` runs what asynchronous stages return; `options` are
        those of a session."""
        self._plan = plan
        self._handle = handle
        self._task = task
        self._drive = drive
        self._clock: Clock = options.get("clock") or Clock()
        self._tracker = Tracker(handle, self._clock, listener)
        _check(plan, handle, options)
        self._options = options
        self._is_interrupted = False
        self._session: Session
        self._runner: StageRunner
        """Both are made when the run begins."""

    def run(self, first: Any, *, restart: bool) -> Outcome:
        """Run to the end, from where the pipeline is. `first`: the state to begin with; KEPT: the one that is there."""
        head = self._handle.refresh()
        more = "yes" if head is None or restart else self._find_more_work()
        if head is not None and more == "no":
            return Outcome(head.state, head)
        with self._begin_session(first, restart=restart or more == "again") as session:
            self._begin(None if restart else self._find(), first)
            self._undo_stages()
            while (job := self._next()) is not None:
                self._runner.do(job)
            done = self._tracker.progress
            self._tracker.finish(done.cleared(done.round))
        return self._end(session, "completed")

    def roll_back(self, to: str) -> Outcome:
        """Undo the completed stages, the last one first, down to `to` and with it."""
        self._handle.refresh()
        self._require_completed(to, self._find(finished=False))
        with self._begin_session(KEPT, restart=True) as session:
            tracker = self._tracker
            self._go_on(self._require_completed(to, self._find(finished=False)), "resumed")
            if to in tracker.progress.completed and tracker.progress.undoing != to:
                tracker.set(tracker.progress.rolling_back(to))
                session.save(type="before_rollback", message=f"before rolling back to {to}")
            self._undo_stages()
            if to in tracker.progress.completed:
                raise ConflictError("the work was led elsewhere while it was rolled back", hint="look where it is now")
            left = msgspec.structs.replace(tracker.progress, rolled_back=True)
            tracker.finish(left if left.completed else left.cleared(left.round - 1, rolled_back=True))
            session.save(type="rolled_back", message=f"rolled back to {to}", control_state="stopped")
        return self._end(session, "rolled_back")

    def interrupt(self) -> None:
        """Let it end at its next boundary. From any thread."""
        self._is_interrupted = True
        if hasattr(self, "_session"):
            self._session.interrupt()

    # --- where it stands -----------------------------------------------------------------------------------

    def _find_more_work(self) -> Literal["no", "yes", "again"]:
        """Return whether there is something to be done; "again": by work that had ended."""
        head, found = self._handle.head, self._find()
        assert head is not None
        if head.control_state != "completed":
            if found is not None and self._plan.on_invalid == "refuse":
                self._is_valid(found)
            rolled_back = isinstance(found, Progress) and found.rolled_back
            return "again" if rolled_back and head.control_state == "stopped" else "yes"
        if not isinstance(found, Progress) or found.finished is None or found.pipeline != self._plan.name:
            raise ControlError(
                "this work is completed, and not by this pipeline",
                hint="run it with restart=True, or on a task of its own",
                state="completed",
            )
        if any(request.kind == "rounds" for request in open_requests(self._handle)):
            return "yes"
        return "again" if found.finished < self._plan.rounds + count_rounds(head.guidance) else "no"

    def _find(self, *, finished: bool = True) -> Found:
        found = find_progress(self._handle.engine, self._handle.owner, self._handle.head, finished=finished)
        return None if found is None else found[1]

    def _is_valid(self, found: Progress | Missing) -> bool:
        """Return whether a record is valid (C4); if not, that is logged, or refused."""
        plan = self._plan
        rule = broken_rule(found, plan.names, pipeline=plan.name, ttl=plan.ttl, at=now())
        if rule is None:
            return True
        if plan.on_invalid == "refuse":
            raise ConflictError(
                f"the progress of {self._handle.id!r} cannot be gone on with: {rule}",
                hint="run it with restart=True to begin anew",
                head=self._handle.head and self._handle.head.as_head(),
            )
        message = f"the progress of {self._handle.id!r} was discarded, and it begins anew: {rule}"
        log_warning(message, task_id=self._handle.task_id)
        return False

    def _require_completed(self, to: str, found: Found) -> Progress:
        """Return the record, if it can be rolled back to `to`, or was just now."""
        plan = self._plan
        if to not in plan.names:
            raise InvalidError(f"there is no stage {to!r}", hint=f"one of {', '.join(plan.names)}")
        rule = "nothing was run yet"
        if found is not None:
            rule = broken_rule(found, plan.names, pipeline=plan.name, ttl=None, at=now()) or ""
            if isinstance(found, Progress) and not rule and plan.names.index(to) <= found.last + 1:
                return found
        raise InvalidError(f"the stage {to!r} is not completed{rule and ': '}{rule}", hint="there is nothing to undo")

    def _begin(self, found: Found, first: Any) -> None:
        self._tracker.first_state = KEPT
        if isinstance(found, Progress) and self._tracker.is_tracking(found):  # made by the session just now
            self._tracker.arrive("begun")
        else:
            self._go_on_or_begin(found, first, "resumed")

    def _go_on_or_begin(self, found: Found, first: Any, kind: EventKind) -> None:
        """Go on where the record says, or begin. That is reported before the first heartbeat (C3)."""
        session, tracker = self._session, self._tracker
        if found is not None and self._is_valid(found):
            assert isinstance(found, Progress)
            self._go_on(found, kind)
            return
        tracker.set(self._fresh(session.executor))
        tracker.arrive("begun")
        tracker.first_state = first
        session.save(type="started")
        tracker.first_state = KEPT

    def _go_on(self, found: Progress, kind: EventKind) -> None:
        session = self._session
        rounds = self._plan.rounds + session.rounds
        self._tracker.set(found.taken_up(self._plan.names, rounds, session.executor, afresh=self._was_over))
        self._tracker.arrive(kind)

    def _fresh(self, executor: str) -> Progress:
        plan = self._plan
        return Progress(
            pipeline=plan.name, run=new_id(), plan=plan.names, rounds=plan.rounds, executor=executor, at_us=now()
        )

    # --- going on ------------------------------------------------------------------------------------------

    def _begin_session(self, first: Any, *, restart: bool) -> Session:
        head, tracker = self._handle.head, self._tracker
        self._was_over = head is not None and head.control_state in ("failed", "stopped")
        session = Session(
            self._handle,
            self._task,
            state=tracker.state,
            load=tracker.load,
            about=tracker.fields,
            beat=(BEAT_SECONDS, tracker.beat) if tracker.has_listener else None,
            restart=restart,
            **self._options,
        )
        if head is None:
            tracker.first_state = first
            tracker.set(self._fresh(session.executor))
        self._session = session
        self._runner = StageRunner(self._handle, session, tracker, self._drive, self._clock, self._plan)
        if self._is_interrupted:
            session.interrupt()
        return session

    def _next(self) -> StageJob | None:
        """Return the next job, after requests were fulfilled."""
        self._pass_boundary()
        progress, last = self._tracker.progress, len(self._plan.stages) - 1
        if progress.last == last:
            rounds = self._plan.rounds + self._session.rounds
            if progress.round >= rounds:
                return None
            self._tracker.set(progress.next_round(rounds), "round")
        return self._plan.job_of(self._tracker.progress.last + 1)

    def _undo_stages(self) -> None:
        """Undo stages as far as a rollback that is under way leads."""
        while self._is_rolling_back():
            job = self._plan.undo_of(self._tracker.progress.last)
            if job is None:
                self._tracker.set(self._tracker.progress.undone())
            else:
                self._runner.do(job)

    def _is_rolling_back(self) -> bool:
        """Return whether a rollback is under way, after requests were fulfilled: they may move the work."""
        if self._tracker.progress.undoing is not None:
            self._pass_boundary()
        return self._tracker.progress.undoing is not None

    def _pass_boundary(self) -> None:
        session, runner = self._session, self._runner
        if runner.is_ahead and not self._tracker.has_moved():
            try:
                session.pass_boundary()
            except Stopped:
                runner.drop_ahead("the work ended before it began")
                raise
            return
        runner.drop_ahead("the work was led elsewhere")
        session.boundary()
        while self._tracker.has_moved():
            self._go_on_or_begin(self._find(), KEPT, "restored")

    def _end(self, session: Session, kind: EventKind) -> Outcome:
        head = self._handle.head
        assert head is not None
        self._tracker.report(kind if session.stopped is None else "stopped", error=session.stopped)
        return Outcome(head.state, head, session.stopped)


def _check(plan: StagePlan, handle: Handle, options: dict[str, Any]) -> None:
    for name in ("state", "load", "about", "beat", "anytime", "restart"):
        if name in options:
            raise InvalidError(f"a pipeline sees to the {name} of its session itself", field=name)
    for stage in plan.stages:
        check_on_error(stage.on_error, has_workspace=handle.workspace is not None)
    names = list(plan.names)
    if handle.engine.options.redaction.plain(names) != names:
        raise InvalidError("the name of a stage looks like a secret, and would not be stored", hint="rename it")
