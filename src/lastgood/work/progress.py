"""The progress of a pipeline (C1): a record in the metadata of checkpoints, found there again, and validated (C4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from lastgood.engine.load import load_checkpoint, wrap_intact
from lastgood.errors import NotFoundError
from lastgood.model.identity import Moment, new_id, now, without_unit

if TYPE_CHECKING:
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.engine import Engine

FIELD = "progress"
MAX_FAILURES, MAX_ERROR = 10, 500
SECOND = 1_000_000
"""In the unit of `at`."""

EventKind = Literal[
    "begun", "resumed", "restored", "round", "started", "succeeded", "failed", "undone", "heartbeat",
    "completed", "rolled_back", "stopped",
]  # fmt: skip
Missing = Literal["unreadable", "purged"]
"""Why there is no progress: its record cannot be read, or may have been purged."""


class StageFailure(msgspec.Struct, frozen=True):
    """A failed attempt at a stage, and its error."""

    stage: str
    round: int
    attempt: int
    error: str
    at: int


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=without_unit):
    """The progress of one pipeline on one branch. `last` is the index of the last completed stage (-1: none),
    `durations` are seconds, one for each completed stage. `attempts` and `spent`: how often the next stage was begun,
    and how many of its retries are used up. `undoing`: the stage that a rollback leads to, while it is under way. `run`
    tells one run from another that began anew. `finished`: so many rounds are done, and the rest was cleared (C9).
    `version` is the branch's, at the checkpoint that the record was found in (C5)."""

    pipeline: str
    run: str
    plan: tuple[str, ...] = ()
    completed: tuple[str, ...] = ()
    last: int = -1
    round: int = 1
    rounds: int = 1
    durations: tuple[float, ...] = ()
    failures: tuple[StageFailure, ...] = ()
    attempts: int = 0
    spent: int = 0
    undoing: str | None = None
    rolled_back: bool = False
    finished: int | None = None
    executor: str = ""
    at_us: int = 0
    version: int = 0

    at = Moment()

    @property
    def next(self) -> str | None:
        """The stage to be run next; None: the round is complete."""
        return self.plan[self.last + 1] if -1 <= self.last < len(self.plan) - 1 else None

    def completing(self, seconds: float) -> Progress:
        """Return the progress with the next stage completed."""
        last = self.last + 1
        return self._changed(
            last=last,
            completed=self.plan[: last + 1],
            durations=(*self.durations, round(seconds, 6)),
            attempts=0,
            spent=0,
            rolled_back=False,
        )

    def undone(self) -> Progress:
        """Return the progress without the last completed stage."""
        return self._changed(
            last=self.last - 1,
            completed=self.completed[:-1],
            durations=self.durations[:-1],
            attempts=0,
            spent=0,
            undoing=None if self.completed[-1] == self.undoing else self.undoing,
        )

    def failing(self, error: str, attempt: int, *, stage: str, final: bool) -> Progress:
        failure = StageFailure(stage, self.round, attempt, error[:MAX_ERROR], now())
        return self._changed(
            failures=(*self.failures, failure)[-MAX_FAILURES:],
            attempts=attempt,
            spent=0 if final else self.spent + 1,
        )

    def attempting(self, attempt: int) -> Progress:
        return self._changed(attempts=attempt)

    def next_round(self, rounds: int) -> Progress:
        return self._changed(
            round=self.round + 1, rounds=rounds, completed=(), last=-1, durations=(), attempts=0, spent=0, finished=None
        )

    def rolling_back(self, to: str) -> Progress:
        """Return the progress of a new run that is rolled back: stages that run again have effects of their own."""
        return self._changed(run=new_id(), undoing=to, attempts=0, spent=0)

    def taken_up(self, plan: tuple[str, ...], rounds: int, executor: str, *, afresh: bool) -> Progress:
        """Return the progress as an executor goes on with it; `afresh`: it may fail as often as at first."""
        completed, last = self.completed, self.last
        if self.finished is not None:
            completed, last = plan, len(plan) - 1
        return self._changed(
            plan=plan,
            completed=completed,
            last=last,
            round=self.round if self.finished is None else self.finished,
            rounds=rounds,
            finished=None,
            rolled_back=False,
            executor=executor,
            spent=0 if afresh else self.spent,
        )

    def cleared(self, rounds: int, *, rolled_back: bool = False) -> Progress:
        """Return what is left of the record when the run is over."""
        return Progress(pipeline=self.pipeline, run=self.run, finished=rounds, rolled_back=rolled_back, at_us=now())

    def as_metadata(self) -> dict[str, Any]:
        """Return the record; its plan is stored without the completed stages, which stand in it already."""
        kept = msgspec.structs.replace(self, plan=self.plan[len(self.completed) :], version=0)
        return {FIELD: msgspec.json.decode(msgspec.json.encode(kept))}  # with lists where it has tuples

    def _changed(self, **changes: Any) -> Progress:
        return msgspec.structs.replace(self, at_us=now(), **changes)


class ProgressEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a pipeline reports while it runs. `seconds`: how long the stage took, or has been running."""

    kind: EventKind
    progress: Progress
    stage: str | None = None
    index: int = -1
    attempt: int = 0
    seconds: float = 0.0
    error: str | None = None


def broken_rule(
    progress: Progress | Missing, names: Sequence[str], *, pipeline: str, ttl: float | None, at: int
) -> str | None:
    """Return which rule of C4 a record breaks, in words; None: it is valid."""
    if progress == "unreadable":
        return "the record cannot be read"
    if progress == "purged":
        return "checkpoints were purged, and the record may have been among them"
    if progress.pipeline != pipeline:
        return f"it is the progress of another pipeline, {progress.pipeline!r}"
    if ttl is not None and at - progress.at_us > ttl * SECOND:
        return f"it is older than {ttl:g} seconds"
    if progress.finished is not None:
        return None
    last, completed = progress.last, progress.completed
    if not -1 <= last < len(names):
        return f"the index {last} is not within 0 and {len(names) - 1}"
    if len(completed) != last + 1:
        return f"{len(completed)} names stand for {last + 1} completed stages"
    for index, name in enumerate(completed):
        if name != names[index]:
            where = "at another place in" if name in names else "not in"
            return f"the completed stage {name!r} is {where} the plan"
    if progress.undoing is not None and progress.undoing not in completed:
        return f"it is rolled back to {progress.undoing!r}, which is not completed"
    return None


def find_progress(
    engine: Engine, owner: str, head: Checkpoint | None, *, finished: bool = True
) -> tuple[Checkpoint, Progress | Missing] | None:
    """Return the newest record among `head` and its ancestors with its checkpoint, or the last one that can be read.

    A session carries it into each of its checkpoints; others (of restores, of people's saves) are looked past, deleted
    ones too. Without `finished`, so are records that were cleared.
    """
    checkpoint = head
    while checkpoint is not None:
        if _has_record(checkpoint):
            progress = read_progress(checkpoint)
            if finished or progress is None or progress.finished is None:
                return checkpoint, progress or "unreadable"
        if checkpoint.parent_id is None:
            return None
        try:
            checkpoint = load_checkpoint(engine, owner, checkpoint.parent_id)
        except NotFoundError:
            return checkpoint, "purged"
    return None


def _has_record(checkpoint: Checkpoint) -> bool:
    """Return whether there is a record; programs may have a field of that name in their own metadata."""
    found = checkpoint.metadata.get(FIELD)
    return isinstance(found, dict) and "pipeline" in found


def read_progress(checkpoint: Checkpoint) -> Progress | None:
    """Return the record in a checkpoint. None: there is none, or none that can be read."""
    plain = checkpoint.metadata.get(FIELD)
    try:
        found = msgspec.convert(plain, Progress)
    except msgspec.ValidationError:
        return None
    return msgspec.structs.replace(found, plan=found.completed + found.plan, version=checkpoint.version or 0)


def current_progress(engine: Engine, owner: str, id: str) -> Progress | None:
    """Return how far the pipeline on a task or branch has come by now; None: none has begun, or it is done (C9)."""
    position = engine.catalog.position(owner, id)
    head = None if position is None else wrap_intact(engine, position.head)
    found = find_progress(engine, owner, head)
    progress = None if found is None else found[1]
    return progress if isinstance(progress, Progress) and progress.finished is None else None
