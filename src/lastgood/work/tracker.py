"""The tracker of a run: its progress in memory, what every checkpoint of its session says of it, and its listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lastgood.engine.commit import KEPT
from lastgood.engine.step import end_step
from lastgood.errors import CheckpointError
from lastgood.work.context import Made
from lastgood.work.progress import FIELD, EventKind, Progress, ProgressEvent, find_progress

if TYPE_CHECKING:
    from lastgood.engine.handle import Handle
    from lastgood.model.work import OpenStep
    from lastgood.work.clock import Clock
    from lastgood.work.stage import StageJob

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
