"""Where a run of a pipeline stands, and that every checkpoint of its session says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lastgood.engine.commit import KEPT
from lastgood.errors import CheckpointError
from lastgood.work.context import Made
from lastgood.work.progress import FIELD, EventKind, Progress, ProgressEvent, find_progress

if TYPE_CHECKING:
    from lastgood.model.step import OpenStep
    from lastgood.task import Task
    from lastgood.work.clock import Clock
    from lastgood.work.plan import Job

Listener = Callable[[ProgressEvent], object]


class Elsewhere(BaseException):
    """The work was led to another place in the midst of a stage: what the stage was doing is not wanted any more."""


class Standing:
    """The progress as it is in memory; what a session asks for and is told on behalf of a pipeline; who listens."""

    def __init__(self, task: Task, clock: Clock, listener: Listener | None) -> None:
        self._task = task
        self._clock = clock
        self._listener = listener
        self._progress: Progress | None = None
        self._record: Progress | None = None
        self._loaded = False
        self._branch: str | None = None
        self._steps: list[OpenStep] = []
        self._job: tuple[Job, int, float] | None = None
        self._has_told = False
        self._has_failed = False
        self.first: Any = KEPT
        """The state to begin with, while it begins."""
        self.unsaved = Made()
        """What stages made whose checkpoints were lost, because who opened the store wants to go on all the same."""

    @property
    def progress(self) -> Progress:
        assert self._progress is not None
        return self._progress

    @property
    def is_heard(self) -> bool:
        return self._listener is not None

    def is_at(self, progress: Progress) -> bool:
        """Whether that is of the run which is going on here."""
        return self._progress is not None and self._progress.run == progress.run

    def move(self, progress: Progress, kind: EventKind | None = None, *, error: str | None = None) -> None:
        """It stands there now; `kind` is what has happened, if that is to be told."""
        self._progress = self._record = progress
        if kind is not None:
            self.tell(kind, error=error)
        self._job = None

    def finish(self, cleared: Progress) -> None:
        """There is nothing more to go on with: checkpoints say that from now on."""
        self._record = cleared

    def take_on(self, job: Job, attempt: int) -> None:
        """It is being done: whoever finds a checkpoint from its midst knows of the attempt."""
        self._record = self.progress.attempting(attempt)
        self._job = job, attempt, self._clock.now()

    def arrive(self, kind: EventKind) -> None:
        """On the branch that the task is on now, where steps may have been in flight when their process ended."""
        self._loaded = False
        self._branch = self._task.branch_id
        steps = self._task.store.catalog.open_steps(self._task.owner, self._task.task_id)
        self._steps = [step for step in steps if step.branch_id == self._branch and "attempt" in step.metadata]
        self.tell(kind)
        self._has_told = True

    def is_elsewhere(self) -> bool:
        """Whether someone has led the work to another place since it arrived."""
        return self._loaded or self._task.branch_id != self._branch

    def check_place(self) -> None:
        if self.is_elsewhere():
            raise Elsewhere

    def place(self, job: Job) -> dict[str, Any]:
        """What attempts at the same have in common."""
        return {"run": self.progress.run, "round": self.progress.round, "index": job.index}

    def interrupted(self, job: Job) -> OpenStep | None:
        """The last attempt at the same that neither succeeded nor failed."""
        same = [step for step in self._steps if (step.type, step.name) == (job.type, job.stage.name)]
        same = [step for step in same if self.place(job).items() <= step.metadata.items()]
        return max(same, key=lambda step: int(step.metadata["attempt"]), default=None)

    def settle(self) -> None:
        """A new attempt is open: those that were interrupted need not be remembered any more."""
        for step in self._steps:
            self.abandon(step.id, "its process ended, and it is done again")
        self._steps = []

    def abandon(self, step_id: str, reason: str) -> None:
        try:
            self._task.store.abandon_step(step_id, reason, owner=self._task.owner)
        except CheckpointError as error:
            self._task.alert(f"an interrupted stage is still listed as open: {error}", error, "session")

    # --- for the session -----------------------------------------------------------------------------------

    def provide(self) -> Any:
        """The head's state, whatever a stage in flight has made of its own copy; at the beginning, the first one."""
        if self.unsaved.state is not KEPT:
            return self.unsaved.state
        return {} if self.first is KEPT and self._task.head is None else self.first

    def load(self, _: Any) -> None:
        self._loaded = True

    def about(self) -> dict[str, Any]:
        """Fields of each checkpoint. While the work is elsewhere, what is said there is carried on."""
        if self._record is not None and (self._task.head is None or not self.is_elsewhere()):
            return {"metadata": self._record.as_metadata(), "iteration": self.progress.round}
        found = find_progress(self._task.store, self._task.owner, self._task.head)
        if found is None or found[1] == "purged":
            return {}
        return {"metadata": {FIELD: found[0].metadata[FIELD]}, "iteration": found[0].iteration}

    def beat(self) -> None:
        if self._has_told:
            self.tell("heartbeat")

    # --- telling -------------------------------------------------------------------------------------------

    def tell(self, kind: EventKind, *, error: str | None = None) -> None:
        """A listener that fails does not fail the work: that is an alert, once."""
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
            if not self._has_failed:
                self._has_failed = True
                self._task.alert(f"who listens to the progress failed: {failure}", failure, "session")
