"""From the catalog to checkpoints: found by id or by name and checked; values are fetched when they are asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lastgood.catalog.values import HistoryRange, StoredCheckpoint
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.engine import acting
from lastgood.errors import IntegrityError, InvalidError, NotFoundError
from lastgood.model.checkpoint import PROVISIONAL, Attestation, FileRoot, Record, decode_record
from lastgood.model.identity import check_name
from lastgood.observe.log import log_action

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog
    from lastgood.engine.engine import Engine
    from lastgood.model.evidence import EvidencePack


HEAD = "HEAD"
_STEPS = re.compile(r"(.+?)(~\d{0,9})+", re.DOTALL)
_SHORTEST_PREFIX = 4


# --- records -----------------------------------------------------------------------------------------------


def find_line(catalog: Catalog, owner: str, id: str, *, active: bool = False) -> HistoryRange:
    """Return what a task's or a branch's id stands for. With `active`, a task stands for its active branch."""
    position = catalog.position(owner, check_name("task id", id))
    if position is None:
        raise NotFoundError(f"there is no task {id!r}", hint="`lastgood tasks` lists them")
    return HistoryRange(position.task, position.branch if active or position.by_branch else None)


def find_stored(catalog: Catalog, owner: str, checkpoint_id: str) -> StoredCheckpoint:
    """Return a checkpoint as the catalog has it. NotFoundError when there is none."""
    stored = catalog.checkpoint(owner, check_name("checkpoint id", checkpoint_id))
    if stored is None:
        raise NotFoundError(f"there is no checkpoint {checkpoint_id!r}", hint="`lastgood log` lists them")
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
            hint="go back to an earlier checkpoint; this one cannot be trusted",
            checkpoint_id=stored.id,
        )
    return checkpoint


def wrap(engine: Engine, stored: StoredCheckpoint) -> Checkpoint:
    """Return a checkpoint to hold; one whose record is damaged shows nothing but its id and place."""
    if stored.data is None:
        raise NotFoundError(f"checkpoint {stored.id!r} was purged", hint="its tombstone keeps the lineage whole")
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
    return Checkpoint(
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

    Any of them may be followed by `~n`: its n-th ancestor.
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
        raise NotFoundError(f"there is no checkpoint {name!r}", hint="`lastgood log` lists them")
    return found


def _by_prefix(catalog: Catalog, owner: str, prefix: str) -> StoredCheckpoint | None:
    ids = catalog.find(owner, prefix)
    if len(ids) > 1:
        raise InvalidError(
            f"several checkpoints begin with {prefix!r}", hint="give more characters, or @sequence", candidates=ids
        )
    return catalog.checkpoint(owner, ids[0]) if ids else None


def _parent(catalog: Catalog, stored: StoredCheckpoint, name: str) -> StoredCheckpoint:
    parent: StoredCheckpoint | None = None
    if stored.data is not None:
        record = decode_record(stored.data, stored.checksum, f"checkpoint {stored.id}")
        if record.parent_id is not None:
            parent = catalog.checkpoint(stored.owner, record.parent_id)
    if parent is None:
        raise NotFoundError(f"{name!r} goes back further than there are checkpoints", hint="`lastgood log` lists them")
    return parent


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
        engine.catalog.attest(owner, ids, kind, data, acting(user), last_event=last_event)
        log_action(user, kind, task_id, checkpoints=ids)


# --- values ------------------------------------------------------------------------------------------------


class _StoredValues:
    """The source of a checkpoint that lies in a catalog."""

    __slots__ = ("_blob_id", "_cache", "_catalog", "_record", "_stored")

    def __init__(self, engine: Engine, stored: StoredCheckpoint, record: Record) -> None:
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

    def attestations(self) -> list[Attestation]:
        return [said for said, _ in self._catalog.attestations(self._stored.owner, self._stored.id)]

    def verification(self) -> Attestation | None:
        found = self._catalog.attestations(self._stored.owner, self._stored.id)
        for attestation, sealed in reversed(found):
            if attestation.kind == "verification":
                return attestation if attestation.digest(self._stored.checksum) == sealed else None
        return None
