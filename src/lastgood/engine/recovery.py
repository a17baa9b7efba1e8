"""What is found after a crash: what was in flight, what is the last good checkpoint, and what to do (A16)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lastgood.catalog.values import MAX_PAGE, HistoryRange, Position, StoredCheckpoint
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.content import FilesCheck
from lastgood.engine.engine import Engine, interrupted_restores
from lastgood.engine.load import LAST_GOOD, find_line, load_checkpoint, resolve, wrap
from lastgood.engine.verify import Recording, Verification, recorded_damage, verify_stored
from lastgood.errors import IntegrityError, InvalidError, NotFoundError, UnavailableError
from lastgood.files.roots import is_there
from lastgood.local.process import boot_id, is_alive, this_process
from lastgood.model.checkpoint import decode_record
from lastgood.model.identity import check_name
from lastgood.model.task import Journal, OpenStep

NEVER_GOOD = frozenset(("stage_failed", "cancelled", "before_restore"))
"""Types of checkpoints that work does not go back to by itself."""


class Recovery(msgspec.Struct, frozen=True):
    """How a task was found. `interrupted`: steps whose process is gone; `running`: all other open ones; `restores`: of
    files, which nobody works on any more, or which the disk did not confirm; `spooled`: checkpoints that wait for the
    store, those of this task, and `aside` cannot come into it. `away`: why the store does not answer; then only what is
    spooled is known. `head_unverified`: the newest checkpoint is intact, and no evidence speaks for or against it."""

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
    head_unverified: bool = False

    @property
    def clean(self) -> bool:
        """Nothing was in flight, and the newest checkpoint is good, or at least not known to be bad."""
        in_flight = self.interrupted or self.restores or self.spooled or self.aside
        is_good = self.head is None or self.head.id == (self.last_good and self.last_good.id)
        return not in_flight and (is_good or self.head_unverified)


def find_last_good(
    engine: Engine,
    user: str,
    line: HistoryRange,
    *,
    any: bool = False,
    type: str | None = None,
    record: Recording = "changed",
    on_passed: Callable[[Verification], None] = lambda _: None,
) -> Checkpoint | None:
    """Find the newest of a branch that is intact and whose evidence, its own or inherited, holds now (D9). Where none
    has evidence, and with `any`, one that is intact and not known to be bad will do.

    Intact: no damage is recorded, all bytes of record and state are what was saved, and all that its files need is
    there (see `FilesCheck`). `on_passed` is called with each that was checked and is passed over.
    """
    before, check, unverified, is_judged = None, FilesCheck(engine), None, False
    while page := engine.catalog.checkpoints(line, before=before, limit=MAX_PAGE, type=type):
        for stored in page:
            kind, has_evidence = _describe(stored)
            is_judged = is_judged or has_evidence
            if kind in NEVER_GOOD or (unverified is not None and not has_evidence):
                continue
            if recorded_damage(engine, stored):
                continue
            result = verify_stored(engine, user, stored, record, files="exist", check=check)
            if result.verified or (any and not result.bad):
                return load_checkpoint(engine, stored.owner, stored.id)
            if not result.bad:
                unverified = stored
            on_passed(result)
        before = page[-1].placement.sequence
    return None if unverified is None or is_judged else load_checkpoint(engine, unverified.owner, unverified.id)


def resolve_name(engine: Engine, user: str, owner: str, name: str, task_id: str | None) -> str:
    """Return the id of the checkpoint called `name`, as `resolve` does; `last-good` is what `find_last_good` finds."""
    if check_name("checkpoint", name).startswith(f"{LAST_GOOD}~"):
        raise InvalidError(f"{name[:80]!r} is no checkpoint", hint="last-good stands alone; @12~1 names a parent")
    if task_id is None or name != LAST_GOOD:
        return resolve(engine.catalog, owner, name, task_id)
    found = find_last_good(engine, user, find_line(engine.catalog, owner, task_id, active=True))
    if found is None:
        raise NotFoundError(
            f"no checkpoint of {task_id!r} is whole, with evidence that holds",
            hint="task.last_good(any=True) accepts one that is unverified",
        )
    return found.id


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
    passed: list[Verification] = []
    good = other = None
    if line is not None:
        good = find_last_good(engine, user, line, record="never", on_passed=passed.append)
        other = good or find_last_good(engine, user, line, any=True, record="never")
    of_head = next((found for found in passed if head and found.checkpoint_id == head.id), None)
    restores = interrupted_restores(engine, position.task.id, owner) if position else []
    spooled, aside = _count_spooled(engine, position.task.id if position else task_id, owner)
    waiting = _advise_spooled(spooled, aside)
    advice = (
        *map(_advise_restore, restores),
        *waiting,
        *_advise(gone, running),
        _advise_head(head, of_head, good, other),
    )
    about = (tuple(gone), tuple(running), head, good, advice, tuple(restores), spooled, aside)
    return Recovery(task_id, owner, *about, head_unverified=of_head is not None and not of_head.bad)


def _examine_spooled(
    engine: Engine, task_id: str, owner: str, position: Position | None, error: UnavailableError
) -> Recovery:
    """Report what is spooled while the store is away: all that the work can go on from."""
    head = wrap(engine, position.head) if position else None
    spooled, aside = _count_spooled(engine, position.task.id if position else task_id, owner)
    lost = "if the store is gone for good, store.replay(discard=True) gives up what is spooled"
    goes_on = f"{error}: programs that have it open go on, and what they save is spooled"
    advice = (goes_on, *_advise_spooled(spooled, aside), lost)
    return Recovery(task_id, owner, (), (), head, head, advice, spooled=spooled, aside=aside, away=str(error))


def _count_spooled(engine: Engine, task_id: str, owner: str) -> tuple[int, int]:
    """Return how many of a task's checkpoints wait for the store, and how many were set aside."""
    return (0, 0) if engine.spool is None else engine.spool.count(owner, task_id)


def _advise_spooled(spooled: int, aside: int) -> list[str]:
    said = []
    if spooled:
        said.append(f"{spooled} checkpoint(s) are spooled: store.replay() brings them into the store")
    if aside:
        said.append(f"{aside} spooled checkpoint(s) could not come into the store: store.spool_figures() says why")
    return said


def _advise_restore(journal: Journal) -> str:
    where = ", ".join(folder.path for folder in journal.folders)
    if journal.made is None:
        said = f"a restore of the files in {where} was interrupted: open the task with that workspace, which undoes it"
    elif journal.is_of(boot_id()):
        said = f"the disk did not confirm the files that were restored in {where}: look at the disk"
        said = f"{said}; what is lost when the system stops is put there again when the task is opened after that"
    else:
        said = f"the system stopped before the files that were restored in {where} were sure to be on disk"
        said = f"{said}: open the task with that workspace, and what is lost is put there again"
    if all(map(is_there, journal.folders)):
        return said
    return f"{said}. It is not there now; if it is gone for good, store.abandon_step({journal.id!r}) ends this"


def _advise(gone: list[OpenStep], running: list[OpenStep]) -> list[str]:
    said = [
        f"the step {step.name!r} was in flight when its process ended: do its work again, "
        f"or abandon it (store.abandon_step({step.id!r}))"
        for step in gone
    ]
    for step in running:
        own = step.process == this_process()
        where = "this process: commit it, or let it fail" if own else "another process: let it end first"
        said.append(f"the step {step.name!r} is open in {where}")
    return said


def _advise_head(
    head: Checkpoint | None, found: Verification | None, good: Checkpoint | None, other: Checkpoint | None
) -> str:
    """Say what to go on from. `found`: what checking the head gave, where it is not `good`; `other`: the newest that is
    not known to be bad."""
    if head is None:
        return "nothing was saved yet: begin from the start"
    if found is not None and found.refusal is not None:
        return f"whether the newest checkpoint is good cannot be said here: {found.refusal}"
    is_left = found is None and head.type == "before_restore" and not head.damage  # as after an undo
    if is_left or (found is not None and not found.bad):
        back = f", or restore the last good one ({_restore(good)})" if good and good.id != head.id else ""
        return f"the newest checkpoint is unverified, neither good nor bad: go on from there{back}"
    if good is not None and good.id == head.id:
        return "the newest checkpoint is good: go on from there"
    if other is None:
        return "each checkpoint is damaged, or its evidence does not hold: store.check_checkpoint(id) says which"
    which = "restore" if other.has_evidence or other.judge() else "none is verified; one that is unverified is"
    return f"the newest checkpoint is not good: {which} {_place(other)} ({_restore(other)})"


def _place(checkpoint: Checkpoint) -> str:
    """Return the shortest name of a checkpoint: its place; one that is spooled has only its id."""
    return checkpoint.id if checkpoint.sequence is None else f"@{checkpoint.sequence}"


def _restore(checkpoint: Checkpoint) -> str:
    return f"task.restore({_place(checkpoint)!r})"


def _describe(stored: StoredCheckpoint) -> tuple[str | None, bool]:
    """Return the type of a checkpoint, and whether it has evidence of its own; None where its record is damaged."""
    try:
        record = None if stored.data is None else decode_record(stored.data, stored.checksum, "it")
    except IntegrityError:
        record = None
    return (None, False) if record is None else (record.type, bool(record.evidence and record.evidence.claims))
