"""What is found after a crash: what was in flight, what is the last good checkpoint, and what to do (A16)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lastgood.catalog.values import MAX_PAGE, HistoryRange, Position, StoredCheckpoint
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.engine import Engine, interrupted_restores, why_away
from lastgood.engine.load import load_checkpoint, wrap
from lastgood.engine.verify import Recording, Verification, verify_stored
from lastgood.errors import IntegrityError, UnavailableError
from lastgood.local.process import is_alive
from lastgood.model.checkpoint import decode_record
from lastgood.model.task import Journal, OpenStep

NEVER_GOOD = frozenset(("stage_failed", "cancelled", "before_restore"))
"""Types of checkpoints that work does not go back to by itself."""


class Recovery(msgspec.Struct, frozen=True):
    """How a task was found. `interrupted`: steps whose process is gone; `running`: all other open ones; `restores`: of
    files, on this host, whose process is gone; `spooled`: checkpoints that wait for the store, those of this task, and
    `aside` cannot come into it. `away`: why the store does not answer; then only what is spooled is known."""

    task_id: str
    owner: str
    interrupted: tuple[OpenStep, ...]
    running: tuple[OpenStep, ...]
    head: Checkpoint | None
    last_good: Checkpoint | None
    advice: tuple[str, ...]
    restores: tuple[Journal, ...] = ()
    spooled: int = 0
    aside: int = 0
    away: str | None = None

    @property
    def clean(self) -> bool:
        """Nothing was in flight, and the newest checkpoint is good."""
        in_flight = self.interrupted or self.restores or self.spooled or self.aside
        return not in_flight and (self.head is None or self.head.id == (self.last_good and self.last_good.id))


def find_last_good(
    engine: Engine,
    user: str,
    line: HistoryRange,
    *,
    verified: bool,
    type: str | None = None,
    record: Recording = "changed",
    on_refused: Callable[[Verification], None] = lambda _: None,
) -> Checkpoint | None:
    """Find the newest of a branch that is intact and whose evidence holds now; with `verified` it must have some (D9).

    `on_refused` is called with each that is passed over because this process may not check what it claims.
    """
    before = None
    while page := engine.catalog.checkpoints(line, before=before, limit=MAX_PAGE, type=type):
        for stored in page:
            if _type_of(stored) in NEVER_GOOD:
                continue
            result = verify_stored(engine, user, stored, record)
            if result.verified or not (verified or result.bad):
                return load_checkpoint(engine, stored.owner, stored.id)
            if result.refusal is not None:
                on_refused(result)
        before = page[-1].placement.sequence
    return None


def interrupted_steps(steps: list[OpenStep]) -> list[OpenStep]:
    """Return the steps whose process is known to be dead."""
    return [step for step in steps if is_alive(step.process) is False]


def examine_task(engine: Engine, user: str, task_id: str, owner: str) -> Recovery:
    """Report what there is to know before going on with a task, which need not exist yet. Changes nothing."""
    position = engine.catalog.position(owner, task_id)
    try:
        steps = engine.catalog.open_steps(owner, position.task.id if position else task_id)
    except UnavailableError as error:
        return _examine_spooled(engine, task_id, owner, position, error)
    gone = interrupted_steps(steps)
    running = [step for step in steps if step not in gone]
    head = wrap(engine, position.head) if position else None
    line = HistoryRange(position.task, position.branch) if position else None
    refused: list[Verification] = []
    good = (
        find_last_good(engine, user, line, verified=False, record="never", on_refused=refused.append) if line else None
    )
    restores = interrupted_restores(engine.catalog, position.task.id, owner) if position else []
    spooled, aside = _count_spooled(engine, position.task.id if position else task_id, owner)
    waiting = _advise_spooled(spooled, aside)
    advice = (*map(_advise_restore, restores), *waiting, *_advise(gone, running, head, good, refused))
    return Recovery(
        task_id, owner, tuple(gone), tuple(running), head, good, advice, tuple(restores), spooled=spooled, aside=aside
    )


def _examine_spooled(
    engine: Engine, task_id: str, owner: str, position: Position | None, error: UnavailableError
) -> Recovery:
    """Report what is spooled while the store is away: all that the work can go on from."""
    head = wrap(engine, position.head) if position else None
    spooled, aside = _count_spooled(engine, position.task.id if position else task_id, owner)
    why = why_away(error)
    advice = (f"the store is away: {why}", *_advise_spooled(spooled, aside))
    return Recovery(task_id, owner, (), (), head, head, advice, spooled=spooled, aside=aside, away=why)


def _count_spooled(engine: Engine, task_id: str, owner: str) -> tuple[int, int]:
    """Return how many of a task's checkpoints wait for the store, and how many were set aside."""
    return (0, 0) if engine.spool is None else engine.spool.count(owner, task_id)


def _advise_spooled(spooled: int, aside: int) -> list[str]:
    said = []
    if spooled:
        said.append(f"{spooled} checkpoint(s) are spooled: `lastgood spool --replay` brings them into the store")
    if aside:
        said.append(f"{aside} spooled checkpoint(s) could not come into the store: `lastgood spool` says why")
    return said


def _advise_restore(journal: Journal) -> str:
    return (
        f"a restore of the files in {', '.join(journal.paths)} was interrupted: open the task with that workspace "
        "(`lastgood diff` there will do), and it is taken back"
    )


def _advise(
    gone: list[OpenStep],
    running: list[OpenStep],
    head: Checkpoint | None,
    good: Checkpoint | None,
    refused: list[Verification],
) -> tuple[str, ...]:
    said = [
        f"the step {step.name!r} was in flight when its process ended: do its work again, "
        f"or give it up (`lastgood steps --abandon {step.id}`)"
        for step in gone
    ]
    said += [f"the step {step.name!r} is open in another process: let it end first" for step in running]
    if head is None:
        said.append("nothing was saved yet: begin from the start")
    elif refused and refused[0].checkpoint_id == head.id:
        said.append(f"whether the newest checkpoint is good cannot be said here: {refused[0].refusal}")
    elif good is None:
        said.append("no checkpoint is intact with evidence that holds: look at `lastgood verify --all`")
    elif good.id == head.id:
        said.append("the newest checkpoint is good: go on from there")
    else:
        said.append(f"the newest checkpoint is not good: go back to {good.id} (`lastgood restore {good.id}`)")
    return tuple(said)


def _type_of(stored: StoredCheckpoint) -> str | None:
    try:
        return None if stored.data is None else decode_record(stored.data, stored.checksum, "it").type
    except IntegrityError:
        return None
