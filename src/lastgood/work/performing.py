"""Doing one stage: attempts, each an open step; one durable commit when it is done, or for each failure (C2).

That commit begins the stage that follows, if nobody wants anything of the work in between: one transaction for each.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from lastgood.engine.step import ERROR_CHARACTERS, Step, in_words
from lastgood.errors import CheckpointError, InvalidError, LeaseError, StageError
from lastgood.work.context import Made, StageContext
from lastgood.work.standing import Elsewhere, Standing
from lastgood.work.timeout import TimeLimit

if TYPE_CHECKING:
    from lastgood.work.clock import Clock
    from lastgood.work.driving import Driver
    from lastgood.work.plan import Job, Plan
    from lastgood.work.session import Session


class _Attempt(NamedTuple):
    """At one job. `fields` are the step's, `told` is for whoever finds it open."""

    step: Step
    fields: dict[str, Any]
    told: dict[str, Any]


class Performer:
    """Does the jobs of one run, one after the other."""

    def __init__(self, session: Session, standing: Standing, driver: Driver, clock: Clock, plan: Plan) -> None:
        self._session = session
        self._task = session.task
        self._standing = standing
        self._driver = driver
        self._clock = clock
        self._plan = plan
        self._ahead: _Attempt | None = None

    @property
    def is_ahead(self) -> bool:
        """Whether the last job's commit began the one that follows."""
        return self._ahead is not None

    def perform(self, job: Job) -> None:
        """Until it is done, or the work was led elsewhere. StageError when it has failed for good."""
        interrupted = self._standing.interrupted(job)
        attempts = self._standing.progress.attempts
        if interrupted is not None:
            attempts = max(attempts, interrupted.metadata["attempt"])
            self._put_files_back(job, interrupted.metadata.get("ground"))
        while not self._try(job, attempts := attempts + 1):
            self._session.wait(job.stage.backoff.delay(self._standing.progress.spent, self._plan.chance()))
            if self._standing.is_elsewhere():
                return

    def fall_back(self, reason: str) -> None:
        """What is begun ahead is not done."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._standing.abandon(ahead.step.id, reason)

    def _try(self, job: Job, attempt: int) -> bool:
        """Whether nothing is left to be tried."""
        standing = self._standing
        ground = None if self._task.head is None else self._task.head.id
        step, fields, _ = self._begin(job, attempt, ground)
        standing.settle()
        standing.take_on(job, attempt)
        standing.tell("started")
        begun = self._clock.now()
        limit = TimeLimit(job.stage.timeout, self._clock, step.stop)
        place = standing.progress, job.index, attempt, standing.unsaved
        ctx = StageContext(self._session, step, limit, standing.check_place, *place)
        try:
            result = limit.call(partial(job.work, ctx))
            if isinstance(result, Awaitable):
                self._driver.drive(result, limit.wait_for)
            standing.check_place()
        except Elsewhere:
            return self._drop(step)
        except Exception as error:
            if standing.is_elsewhere():
                return self._drop(step)
            self._put_files_back(job, ground)
            return self._fail(job, step, attempt, error)
        self._complete(job, step, ctx, fields, attempt, self._clock.now() - begun)
        return True

    def _begin(self, job: Job, attempt: int, ground: str | None) -> _Attempt:
        told = self._told(job, attempt, ground)
        if self._ahead is not None and (self._ahead.step.type, self._ahead.told) == (job.type, told):
            begun, self._ahead = self._ahead, None
            return begun
        self.fall_back("something came before it")
        begun = self._prepare(job, told)
        begun.step.begin()
        return begun

    def _prepare(self, job: Job, told: dict[str, Any]) -> _Attempt:
        fields = self._fields(job)
        return _Attempt(Step(self._task, job.stage.name, job.type, fields, told=told), fields, told)

    def _complete(
        self, job: Job, step: Step, ctx: StageContext, fields: dict[str, Any], attempt: int, seconds: float
    ) -> None:
        before = self._standing.progress
        after = before.completing(seconds) if job.type == "stage_succeeded" else before.undone()
        fields["metadata"] = after.as_metadata()
        made = ctx.hand_over(fields)
        ahead = None
        if self._session.goes_on and (then := self._plan.following(job)) is not None:
            ahead = self._prepare(then, self._told(then, 1, step.id))  # which will be the checkpoint's id, too
        try:
            saved = step.commit_and_begin(ahead and ahead.step)
        except InvalidError as error:  # what it made cannot be stored, however often it is made
            self._record_failure(job, step, attempt, in_words(error), final=True)
            raise
        if ahead is not None and ahead.step.is_open:
            self._ahead = ahead
        self._standing.unsaved = made if saved.status == "lost" else Made()
        self._standing.move(after, "succeeded" if job.type == "stage_succeeded" else "undone")

    def _drop(self, step: Step) -> bool:
        self._standing.abandon(step.id, "the work was led elsewhere")
        return True

    def _fail(self, job: Job, step: Step, attempt: int, error: Exception) -> bool:
        """False: it is to be tried again."""
        final = self._standing.progress.spent >= job.stage.retries
        told = self._task.without_secrets(in_words(error)[: 10 * ERROR_CHARACTERS])[:ERROR_CHARACTERS]
        self._record_failure(job, step, attempt, told, final=final)
        if not final:
            return False
        raise StageError(
            f"the stage {job.stage.name!r} failed: {told}",
            hint="mend what is wrong and run the pipeline again: it goes on with this stage",
            stage=job.stage.name,
            attempt=attempt,
        ) from error

    def _record_failure(self, job: Job, step: Step, attempt: int, told: str, *, final: bool) -> None:
        """With the state from before the stage; the step ends with it."""
        after = self._standing.progress.failing(told, attempt, stage=job.stage.name, final=final)
        fields = {**self._fields(job), "metadata": {**after.as_metadata(), "error": told}}
        fields["message"] = f"{job.stage.name} failed: {told}"
        self._task.advance(
            self._standing.provide(),
            type="stage_failed",
            step_id=job.stage.name,
            step=step.id,
            control_state="failed" if final else None,
            **fields,
        )
        self._standing.move(after, "failed", error=told)

    def _put_files_back(self, job: Job, ground: str | None) -> None:
        """Where that is wanted. What cannot be put back is an alert: the failure itself is what must be heard."""
        if job.stage.on_error != "restore" or ground is None:
            return
        try:
            done = self._task.restore(ground, "files", verify=False, message=f"{job.stage.name} failed")
            failed: object = done.failed[0] if done.failed else None
        except LeaseError:
            raise
        except CheckpointError as error:
            failed = error
        if failed is not None:
            self._task.alert(
                f"the stage {job.stage.name!r} has left files that were not put back: {failed}", None, "session"
            )

    def _told(self, job: Job, attempt: int, ground: str | None) -> dict[str, Any]:
        return {**self._standing.place(job), "attempt": attempt, "ground": ground}

    def _fields(self, job: Job) -> dict[str, Any]:
        progress = self._standing.progress
        total = len(progress.plan)
        state = "iteration_end" if job.index == total - 1 else "iteration_start" if job.index == 0 else "iteration"
        message = f"{job.stage.name}, stage {job.index + 1} of {total}"
        return {"iteration": progress.round, "iteration_state": state, "message": message}
