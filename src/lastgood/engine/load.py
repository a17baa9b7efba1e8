"""From the catalog to checkpoints: found by id or by name and checked; values are fetched when they are asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from lastgood.catalog.values import HistoryRange, StoredCheckpoint
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.engine import acting
from lastgood.errors import CheckpointError, ConflictError, IntegrityError, InvalidError, NotFoundError
from lastgood.model.checkpoint import PROVISIONAL, Attestation, FileRoot, Record, decode_record
from lastgood.model.identity import check_name
from lastgood.observe.log import is_logging, log_action

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog
    from lastgood.engine.engine import Engine
    from lastgood.model.evidence import EvidencePack


HEAD = "HEAD"
LAST_GOOD = "last-good"
_STEPS = re.compile(r"(.+?)(~\d{0,9})+", re.DOTALL)
_SHORTEST_PREFIX = 4
_MOST_ANCESTORS = 100
"""So far back a judgement is looked for."""


# --- records -----------------------------------------------------------------------------------------------


def look_up_line(catalog: Catalog, owner: str, id: str, *, active: bool = False) -> HistoryRange | None:
    """Return what a task's or a branch's id stands for. With `active`, a task stands for its active branch."""
    position = catalog.position(owner, check_name("task id", id))
    if position is None:
        return None
    return HistoryRange(position.task, position.branch if active or position.by_branch else None)


def find_line(catalog: Catalog, owner: str, id: str, *, active: bool = False) -> HistoryRange:
    """Return what an id stands for, as `look_up_line` does. NotFoundError when there is no such task."""
    if (line := look_up_line(catalog, owner, id, active=active)) is None:
        raise no_such_task(catalog, owner, id)
    return line


def no_such_task(catalog: Catalog, owner: str, id: str) -> NotFoundError:
    """Return the error for a task that was never saved; its hint names the one that may be meant."""
    hint = "store.tasks() lists them"
    with suppress(CheckpointError):  # what is wrong with the store is not the question
        tasks = catalog.tasks(None)
        if others := [task.owner for task in tasks if task.id == id and task.owner != owner]:
            hint = f"{others[0]!r} has one of this name: owner={others[0]!r}"
        elif len(mine := [task.id for task in tasks if task.owner == owner]) == 1:
            hint = f"there is one task: store.task({mine[0]!r})"
    return NotFoundError(f"there is no task {id!r}", hint=hint)


def look_up(catalog: Catalog, owner: str, checkpoint_id: str) -> StoredCheckpoint | None:
    """Return a checkpoint as the catalog has it; None when there is none."""
    return catalog.checkpoint(owner, check_name("checkpoint id", checkpoint_id))


def find_stored(catalog: Catalog, owner: str, checkpoint_id: str) -> StoredCheckpoint:
    """Return a checkpoint as the catalog has it. NotFoundError when there is none."""
    if (stored := look_up(catalog, owner, checkpoint_id)) is None:
        raise NotFoundError(
            f"there is no checkpoint {checkpoint_id!r}", hint="store.list_checkpoints(task_id) lists them"
        )
    return stored


def load_checkpoint(engine: Engine, owner: str, checkpoint_id: str) -> Checkpoint:
    """Return a checkpoint by its id. IntegrityError when its record is damaged."""
    return wrap_intact(engine, find_stored(engine.catalog, owner, checkpoint_id))


def require_files(record: Record) -> tuple[FileRoot, ...]:
    """Return the roots of a checkpoint's files; NotFoundError when it holds none."""
    if record.files is None:
        raise NotFoundError(f"checkpoint {record.id} holds no files", hint="it was saved without a workspace")
    return record.files


def wrap_intact(engine: Engine, stored: StoredCheckpoint) -> Checkpoint:
    """Return a checkpoint to hold. IntegrityError when its record is damaged."""
    checkpoint = wrap(engine, stored)
    if not checkpoint.integrity_ok:
        raise IntegrityError(
            f"checkpoint {stored.id} is damaged: its record does not match its checksum",
            hint="restore an earlier checkpoint; this one cannot be trusted",
            checkpoint_id=stored.id,
        )
    return checkpoint


def wrap(engine: Engine, stored: StoredCheckpoint) -> Checkpoint:
    """Return a checkpoint to hold; one whose record is damaged shows nothing but its id and place."""
    if stored.data is None:
        raise NotFoundError(f"checkpoint {stored.id!r} was purged", hint="it is gone for good")
    try:
        record = decode_record(stored.data, stored.checksum, f"checkpoint {stored.id}")
        intact = (record.id, record.task_id) == (stored.id, stored.task_id)
        intact = intact and stored.placement.digest(stored.checksum) == stored.placement_digest
    except IntegrityError:
        record, intact = Record(id=stored.id, task_id=stored.task_id), False
    return hold(engine, stored, record, integrity_ok=intact)


def hold(
    engine: Engine,
    stored: StoredCheckpoint,
    record: Record,
    *,
    integrity_ok: bool = True,
    evidence_pack: EvidencePack | None = None,
) -> Checkpoint:
    """Return a checkpoint to hold, of a record that was checked or written just now."""
    return Checkpoint._of(
        record,
        stored.checksum,
        stored.placement,
        _StoredValues(engine, stored, record),
        verified=stored.verified,
        verified_at=stored.verified_at,
        tags=stored.tags,
        deleted=stored.deleted,
        integrity_ok=integrity_ok,
        status="stored" if stored.placement.sequence < PROVISIONAL else "spooled",
        evidence_pack=evidence_pack,
    )


# --- names --------------------------------------------------------------------------------------------------


def resolve(catalog: Catalog, owner: str, name: str, task_id: str | None = None) -> str:
    """Return the id of the checkpoint called `name`: `HEAD`, `@sequence`, a tag (of a task), an id or its beginning.

    Any of them may be followed by `~n`: its n-th ancestor. Copies that a restore or a fork made are not counted: they
    stand for what they are copies of.
    """
    check_name("checkpoint", name)
    base, steps = _steps(name)
    stored = _find(catalog, owner, base, task_id)
    for _ in range(steps):
        stored = _parent(catalog, stored, name)
    return stored.id


def _steps(name: str) -> tuple[str, int]:
    if not _STEPS.fullmatch(name):
        return name, 0
    base, _, rest = name.partition("~")
    return base, sum(int(part or 1) for part in rest.split("~"))


def _find(catalog: Catalog, owner: str, name: str, task_id: str | None) -> StoredCheckpoint:
    found: StoredCheckpoint | None = None
    position = None if task_id is None else catalog.position(owner, task_id)
    task = position.task if position else None
    if name == HEAD:
        found = position.head if position else None
    elif name.startswith("@"):
        if not name[1:].isdecimal():
            raise InvalidError(f"{name!r} is not a sequence", hint="as in @12")
        found = catalog.checkpoint_at(task, min(int(name[1:][:12]), (1 << 32) - 1)) if task else None
    else:
        found = (catalog.checkpoint_at(task, name) if task else None) or catalog.checkpoint(owner, name)
        if found is None and len(name) >= _SHORTEST_PREFIX:
            found = _by_prefix(catalog, owner, name)
    if found is None:
        raise NotFoundError(f"there is no checkpoint {name!r}", hint="store.list_checkpoints(task_id) lists them")
    return found


def _by_prefix(catalog: Catalog, owner: str, prefix: str) -> StoredCheckpoint | None:
    ids = catalog.find(owner, prefix)
    if len(ids) > 1:
        raise InvalidError(
            f"several checkpoints begin with {prefix!r}", hint="give more characters, or @sequence", candidates=ids
        )
    return catalog.checkpoint(owner, ids[0]) if ids else None


def _parent(catalog: Catalog, stored: StoredCheckpoint, name: str) -> StoredCheckpoint:
    _, parent = _with_parent(catalog, _original(catalog, stored))
    if parent is None:
        raise NotFoundError(
            f"{name!r} is further back than there are checkpoints", hint="store.list_checkpoints(task_id) lists them"
        )
    return _original(catalog, parent)


def _original(catalog: Catalog, stored: StoredCheckpoint) -> StoredCheckpoint:
    """Return the checkpoint that this is a copy of, made by a restore or a fork; of any other, itself."""
    while True:
        record, origin = _with_parent(catalog, stored)
        if record is None or record.lineage not in ("restored", "forked") or origin is None or origin.data is None:
            return stored
        is_older = origin.placement.sequence < stored.placement.sequence  # no cycle, whatever the store says
        if not is_older or not record.has_content_of(_record(origin)):
            return stored
        stored = origin


def _with_parent(catalog: Catalog, stored: StoredCheckpoint) -> tuple[Record | None, StoredCheckpoint | None]:
    """Return the record of a checkpoint, None once it was purged, and its parent, if there is one."""
    if stored.data is None:
        return None, None
    record = _record(stored)
    return record, None if record.parent_id is None else catalog.checkpoint(stored.owner, record.parent_id)


def _record(stored: StoredCheckpoint) -> Record:
    return decode_record(stored.data or b"", stored.checksum, f"checkpoint {stored.id}")


def attest(
    engine: Engine,
    user: str,
    owner: str,
    ids: list[str],
    kind: str,
    data: dict[str, Any],
    *,
    last_event: int | None = None,
) -> None:
    """Append an attestation to each of these checkpoints, which belong to one task. `last_event`: see the catalog."""
    if ids:
        task_id = find_stored(engine.catalog, owner, ids[0]).task_id
        with logged(engine, user, owner, task_id, kind, checkpoints=ids):
            engine.catalog.attest(owner, ids, kind, data, acting(user), last_event=last_event)


# --- the log -----------------------------------------------------------------------------------------------


class _Briefly:
    """Let a conflict come out of the block without the frames inside it, which say nothing to whoever meets it."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ConflictError) and trace is not None:
            trace.tb_next = None
            error.__suppress_context__ = True


BRIEFLY: Final = _Briefly()


@contextmanager
def logged(engine: Engine, user: str, owner: str, id: str, action: str, **more: object) -> Iterator[None]:
    """Log an operation on a task, or a branch of it: its control state before and after, or why it was refused (A7)."""
    if not is_logging():
        yield
        return
    before = _standing(engine, owner, id)
    try:
        yield
    except CheckpointError as error:
        more |= {"error": error.code, "reason": engine.options.redaction.text(str(error))}
        raise
    finally:
        after = _standing(engine, owner, id)
        task_id, new_state, iteration_state = before if after[1] is None else after
        about = {"prev_state": before[1] or new_state, "new_state": new_state, "iteration_state": iteration_state}
        log_action(user, action, task_id, **about, **more)


def log_on(engine: Engine, user: str, owner: str, id: str, action: str, **more: object) -> None:
    """Log something that has happened to a task and left its state as it was."""
    with logged(engine, user, owner, id, action, **more):
        pass


def log_evidence(engine: Engine, user: str, owner: str, checkpoint: StoredCheckpoint, pack: EvidencePack) -> None:
    """Log each piece of a checkpoint's evidence that does not hold, without secrets."""
    if not is_logging():
        return
    mask = engine.options.redaction.text
    for one in pack.evidence_list:
        if one.verification_status == "failed":
            about = {"description": mask(one.description), "reason": mask(one.verification_error or "")}
            log_on(engine, user, owner, checkpoint.task_id, "evidence_failed", checkpoint_id=checkpoint.id, **about)


def _standing(engine: Engine, owner: str, id: str) -> tuple[str, str | None, str | None]:
    """Return a task's id, its control state and its iteration state, as far as they can be read."""
    with suppress(CheckpointError):
        if (position := engine.catalog.position(owner, id)) is not None:
            head = wrap(engine, position.head)
            return position.task.id, head.control_state, head.iteration_state
    return id, None, None


# --- values ------------------------------------------------------------------------------------------------


class _StoredValues:
    """The source of a checkpoint that lies in a catalog."""

    __slots__ = ("_blob_id", "_cache", "_catalog", "_engine", "_record", "_stored")

    def __init__(self, engine: Engine, stored: StoredCheckpoint, record: Record) -> None:
        self._engine = engine
        self._catalog = engine.catalog
        self._cache = engine.cache
        self._blob_id = engine.blob_id
        self._stored = stored
        self._record = record

    def load(self, name: str, classes: bool) -> Any:
        from lastgood.engine.blobs import load_value

        try:
            return load_value(
                self._blob_id, self._catalog, self._cache, self._stored, self._record, name, classes=classes
            )
        except IntegrityError:
            now = self._catalog.checkpoint(self._stored.owner, self._stored.id)
            if now is None or now.data is None:
                raise NotFoundError(f"checkpoint {self._stored.id!r} was purged", hint="it is gone for good") from None
            raise

    def judge(self) -> Checkpoint | None:
        """Follow the parents while they hold the same; of a restored one also past those that do not, because files
        alone are restored on top of others."""
        record, wanted = self._record, self._record
        for _ in range(_MOST_ANCESTORS):
            parent = (
                None if record.parent_id is None else self._catalog.checkpoint(self._stored.owner, record.parent_id)
            )
            if parent is None or parent.data is None:
                return None
            try:
                record = decode_record(parent.data, parent.checksum, "it")
            except IntegrityError:
                return None
            if not record.has_content_of(wanted):
                if wanted.lineage != "restored":
                    return None
            elif record.evidence is not None and record.evidence.claims:
                return hold(self._engine, parent, record)
        return None

    def attestations(self) -> list[Attestation]:
        return [said for said, _ in self._catalog.attestations(self._stored.owner, self._stored.id)]

    def verification(self) -> Attestation | None:
        found = self._catalog.attestations(self._stored.owner, self._stored.id)
        for attestation, sealed in reversed(found):
            if attestation.kind == "verification":
                return attestation if attestation.digest(self._stored.checksum) == sealed else None
        return None
