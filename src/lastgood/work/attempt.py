"""Attempts at a stage: each is an open step, and ends in one durable commit, of its success or its failure (C2). And
the tracker of a run: its progress in memory, what every checkpoint of its session says of it, and its listener.

The commit of a success begins the stage that follows, if there is no open request: one transaction for each stage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from lastgood.engine.commit import KEPT
from lastgood.engine.restore import restore
from lastgood.engine.save import advance, make_draft
from lastgood.engine.step import ERROR_CHARACTERS, Step, end_step, in_words
from lastgood.errors import CheckpointError, InvalidError, LeaseError, StageError
from lastgood.work.clock import TimeLimit
from lastgood.work.context import Made, StageContext
from lastgood.work.progress import FIELD, EventKind, Progress, ProgressEvent, find_progress

if TYPE_CHECKING:
    from lastgood.engine.handle import Handle
    from lastgood.model.task import OpenStep
    from lastgood.work.clock import Clock
    from lastgood.work.session import Session
    from lastgood.work.stage import StageJob, StagePlan

Drive = Callable[[Awaitable[Any], Callable[[Awaitable[Any]], Coroutine[Any, Any, Any]]], None]
"""Runs an awaitable to its end, wrapped by the second argument, which limits its time."""
Listener = Callable[[ProgressEvent], object]


class WorkMoved(BaseException):
    """Raised in the midst of a stage when another checkpoint was restored: its work is not wanted any more."""


class Tracker:
    """Where a run of a pipeline is. A session asks it for the state and the fields of each checkpoint."""

    def __init__(self, handle: Handle, clock: Clock, listener: Listener | None) -> None:
        self._handle = handle
        self._clock = clock
        self._listener = listener
        self._progress: Progress | None = None
        self._record: Progress | None = None
        self._is_loaded = False
        self._branch: str | None = None
        self._open_steps: list[OpenStep] = []
        self._job: tuple[StageJob, int, float] | None = None
        self._has_arrived = False
        self._has_alerted = False
        self.first_state: Any = KEPT
        """The state to begin with, while the run begins."""
        self.unsaved = Made()
        """What stages made whose checkpoints were lost, in a store that is opened with on_failure="continue"."""

    @property
    def progress(self) -> Progress:
        assert self._progress is not None
        return self._progress

    @property
    def has_listener(self) -> bool:
        return self._listener is not None

    def is_tracking(self, progress: Progress) -> bool:
        """Return whether a record is of the run that is going on here."""
        return self._progress is not None and self._progress.run == progress.run

    def set(self, progress: Progress, kind: EventKind | None = None, *, error: str | None = None) -> None:
        """Set the progress, and report what has happened, if `kind` is given."""
        self._progress = self._record = progress
        if kind is not None:
            self.report(kind, error=error)
        self._job = None

    def finish(self, cleared: Progress) -> None:
        """Let checkpoints say from now on that the run is over."""
        self._record = cleared

    def begin_attempt(self, job: StageJob, attempt: int) -> None:
        """Note that a job is being done; checkpoints made in its midst count the attempt."""
        self._record = self.progress.attempting(attempt)
        self._job = job, attempt, self._clock.now()

    def arrive(self, kind: EventKind) -> None:
        """Go on from the task's present branch, and find the steps there whose process ended in their midst."""
        self._is_loaded = False
        self._branch = self._handle.branch_id
        steps = self._handle.catalog.open_steps(self._handle.owner, self._handle.task_id)
        self._open_steps = [step for step in steps if step.branch_id == self._branch and "attempt" in step.metadata]
        self.report(kind)
        self._has_arrived = True

    def has_moved(self) -> bool:
        """Return whether another checkpoint was restored since the run arrived."""
        return self._is_loaded or self._handle.branch_id != self._branch

    def check_unmoved(self) -> None:
        """Raise WorkMoved if another checkpoint was restored since the run arrived."""
        if self.has_moved():
            raise WorkMoved

    def place_of(self, job: StageJob) -> dict[str, Any]:
        """Return what all attempts at the same job have in common."""
        return {"run": self.progress.run, "round": self.progress.round, "index": job.index}

    def find_interrupted(self, job: StageJob) -> OpenStep | None:
        """Return the last attempt at the same job that neither succeeded nor failed."""
        same = [step for step in self._open_steps if (step.type, step.name) == (job.type, job.stage.name)]
        same = [step for step in same if self.place_of(job).items() <= step.metadata.items()]
        return max(same, key=lambda step: int(step.metadata["attempt"]), default=None)

    def abandon_interrupted(self) -> None:
        """End the steps that were in flight when their process ended: a new attempt is open."""
        for step in self._open_steps:
            self.abandon(step.id, "its process ended, and it is done again")
        self._open_steps = []

    def abandon(self, step_id: str, reason: str) -> None:
        try:
            end_step(self._handle.engine, self._handle.user, self._handle.owner, step_id, "step_abandoned", reason)
        except CheckpointError as error:
            self._handle.alert(f"an interrupted stage is still listed as open: {error}", error, code="session")

    # --- for the session -----------------------------------------------------------------------------------

    def state(self) -> Any:
        """Return the head's state, whatever a stage in flight has made of its copy; at the beginning, the first one."""
        if self.unsaved.state is not KEPT:
            return self.unsaved.state
        return {} if self.first_state is KEPT and self._handle.head is None else self.first_state

    def load(self, _: Any) -> None:
        """Note that the session has loaded another state."""
        self._is_loaded = True

    def fields(self) -> dict[str, Any]:
        """Return fields of each checkpoint. After a restore those of the restored checkpoint are carried on."""
        if self._record is not None and (self._handle.head is None or not self.has_moved()):
            return {"metadata": self._record.as_metadata(), "iteration": self.progress.round}
        found = find_progress(self._handle.engine, self._handle.owner, self._handle.head)
        if found is None or found[1] == "purged":
            return {}
        return {"metadata": {FIELD: found[0].metadata[FIELD]}, "iteration": found[0].iteration}

    def beat(self) -> None:
        if self._has_arrived:
            self.report("heartbeat")

    def report(self, kind: EventKind, *, error: str | None = None) -> None:
        """Call the listener. One that fails does not fail the work: that is an alert, once."""
        if self._listener is None or self._progress is None:
            return
        about: dict[str, Any] = {}
        if (now := self._job) is not None:
            job, attempt, begun = now
            seconds = self._clock.now() - begun
            about = {"stage": job.stage.name, "index": job.index, "attempt": attempt, "seconds": seconds}
        try:
            self._listener(ProgressEvent(kind=kind, progress=self._progress, error=error, **about))
        except Exception as failure:
            if not self._has_alerted:
                self._has_alerted = True
                self._handle.alert(f"who listens to the progress failed: {failure}", failure, code="session")


class _Attempt(NamedTuple):
    """A step and its fields. `about` is stored with the open step, to be found after this process has ended."""

    step: Step
    fields: dict[str, Any]
    about: dict[str, Any]


class StageRunner:
    """A runner of the jobs of one run, one after the other."""

    def __init__(
        self, handle: Handle, session: Session, tracker: Tracker, drive: Drive, clock: Clock, plan: StagePlan
    ) -> None:
        self._session = session
        self._handle = handle
        self._tracker = tracker
        self._drive = drive
        self._clock = clock
        self._plan = plan
        self._ahead: _Attempt | None = None

    @property
    def is_ahead(self) -> bool:
        """Whether the last job's commit began the one that follows."""
        return self._ahead is not None

    def do(self, job: StageJob) -> None:
        """Attempt a job until it is done, or the work has moved. StageError when it has failed for good."""
        interrupted = self._tracker.find_interrupted(job)
        attempts = self._tracker.progress.attempts
        if interrupted is not None:
            attempts = max(attempts, interrupted.metadata["attempt"])
            self._restore_files(job, interrupted.metadata.get("ground"))
        while not self._try(job, attempts := attempts + 1):
            from random import random

            self._session.wait(job.stage.delay(self._tracker.progress.spent, random()))  # noqa: S311
            if self._tracker.has_moved():
                return

    def drop_ahead(self, reason: str) -> None:
        """Abandon the job that was begun ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._tracker.abandon(ahead.step.id, reason)

    def _try(self, job: StageJob, attempt: int) -> bool:
        """Make one attempt; return whether there is nothing left to be tried."""
        tracker = self._tracker
        ground = None if self._handle.head is None else self._handle.head.id
        step, fields, _ = self._begin(job, attempt, ground)
        tracker.abandon_interrupted()
        tracker.begin_attempt(job, attempt)
        tracker.report("started")
        begun = self._clock.now()
        limit = TimeLimit(job.stage.timeout, self._clock, step.stop)
        place = tracker.progress, job.index, attempt, tracker.unsaved
        ctx = StageContext(self._session, step, limit, tracker.check_unmoved, *place)
        try:
            result = limit.call(partial(job.work, ctx))
            if isinstance(result, Awaitable):
                self._drive(result, limit.wait_for)
            tracker.check_unmoved()
        except WorkMoved:
            return self._drop(step)
        except Exception as error:
            if tracker.has_moved():
                return self._drop(step)
            self._restore_files(job, ground)
            return self._fail(job, step, attempt, error)
        self._complete(job, step, ctx, fields, attempt, self._clock.now() - begun)
        return True

    def _begin(self, job: StageJob, attempt: int, ground: str | None) -> _Attempt:
        about = self._about(job, attempt, ground)
        if self._ahead is not None and (self._ahead.step.type, self._ahead.about) == (job.type, about):
            begun, self._ahead = self._ahead, None
            return begun
        self.drop_ahead("something came before it")
        begun = self._prepare(job, about)
        begun.step.begin()
        return begun

    def _prepare(self, job: StageJob, about: dict[str, Any]) -> _Attempt:
        fields = self._fields(job)
        return _Attempt(Step(self._handle, job.stage.name, job.type, fields, told=about), fields, about)

    def _complete(
        self, job: StageJob, step: Step, ctx: StageContext, fields: dict[str, Any], attempt: int, seconds: float
    ) -> None:
        before = self._tracker.progress
        after = before.completing(seconds) if job.type == "stage_succeeded" else before.undone()
        fields["metadata"] = after.as_metadata()
        made = ctx.hand_over(fields)
        ahead = None
        if self._session.may_continue and (then := self._plan.following(job)) is not None:
            ahead = self._prepare(then, self._about(then, 1, step.id))  # which will be the checkpoint's id, too
        try:
            saved = step.commit_and_begin(ahead and ahead.step)
        except InvalidError as error:  # what it made cannot be stored, however often it is made
            self._record_failure(job, step, attempt, in_words(error), final=True)
            raise
        if ahead is not None and ahead.step.is_open:
            self._ahead = ahead
        self._tracker.unsaved = made if saved.status == "lost" else Made()
        self._tracker.set(after, "succeeded" if job.type == "stage_succeeded" else "undone")

    def _drop(self, step: Step) -> bool:
        self._tracker.abandon(step.id, "the work was led elsewhere")
        return True

    def _fail(self, job: StageJob, step: Step, attempt: int, error: Exception) -> bool:
        """Record the failure; return False if the job is to be tried again."""
        final = self._tracker.progress.spent >= job.stage.retries
        reason = self._handle.engine.options.redaction.text(in_words(error)[: 10 * ERROR_CHARACTERS])[:ERROR_CHARACTERS]
        self._record_failure(job, step, attempt, reason, final=final)
        if not final:
            return False
        raise StageError(
            f"the stage {job.stage.name!r} failed: {reason}",
            hint="correct what is wrong and run the pipeline again: it resumes with this stage",
            stage=job.stage.name,
            attempt=attempt,
        ) from error

    def _record_failure(self, job: StageJob, step: Step, attempt: int, reason: str, *, final: bool) -> None:
        """Save the failure with the state from before the stage; the step ends with it."""
        after = self._tracker.progress.failing(reason, attempt, stage=job.stage.name, final=final)
        fields = {**self._fields(job), "metadata": {**after.as_metadata(), "error": reason}}
        fields["message"] = f"{job.stage.name} failed: {reason}"
        draft = make_draft(
            self._tracker.state(),
            type="stage_failed",
            step_id=job.stage.name,
            step=step.id,
            control_state="failed" if final else None,
            **fields,
        )
        advance(self._handle, draft)
        self._tracker.set(after, "failed", error=reason)

    def _restore_files(self, job: StageJob, ground: str | None) -> None:
        """Restore the files from before the stage, if it says so. A failure to do so is an alert."""
        if job.stage.on_error != "restore" or ground is None:
            return
        try:
            done = restore(self._handle, ground, "files", verify=False, message=f"{job.stage.name} failed")
            failed: object = done.failed[0] if done.failed else None
        except LeaseError:
            raise
        except CheckpointError as error:
            failed = error
        if failed is not None:
            message = f"the stage {job.stage.name!r} has left files that were not put back: {failed}"
            self._handle.alert(message, code="session")

    def _about(self, job: StageJob, attempt: int, ground: str | None) -> dict[str, Any]:
        return {**self._tracker.place_of(job), "attempt": attempt, "ground": ground}

    def _fields(self, job: StageJob) -> dict[str, Any]:
        progress = self._tracker.progress
        total = len(progress.plan)
        state = "iteration_end" if job.index == total - 1 else "iteration_start" if job.index == 0 else "iteration"
        message = f"{job.stage.name}, stage {job.index + 1} of {total}"
        return {"iteration": progress.round, "iteration_state": state, "message": message}
