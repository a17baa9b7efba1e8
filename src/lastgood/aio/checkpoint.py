"""Checkpoints and what differs between them: what describes them is read at once, what they hold is awaited."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, TypeVar, overload

from lastgood import store
from lastgood.aio.bridge import Bridge, Fetched, Handle, Plain, bridged
from lastgood.compare.state import StateChange
from lastgood.compare.text import Stat
from lastgood.engine import branch, difference, recovery
from lastgood.engine import checkpoint as engine
from lastgood.engine.difference import FileChange
from lastgood.model.checkpoint import Attestation, Head, Record, Skipped
from lastgood.model.evidence import EvidencePack
from lastgood.model.task import Journal, OpenStep

E = TypeVar("E")
T = TypeVar("T")


class Loadable(Handle[E]):
    """A handle on something that has a state: a checkpoint, or a task."""

    __slots__ = ()

    state = Fetched[Any]()

    @overload
    async def load(self, **how: Any) -> Any: ...

    @overload
    async def load(self, into: builtins.type[T], **how: Any) -> T: ...

    async def load(self, into: builtins.type[Any] | None = None, **how: Any) -> Any:
        """Return the state; as a value of the class `into` if one is given. A task has `default=`, too."""
        if into is None and not how:
            return await self.state
        return await self._bridge.run(lambda: self._reach().load(into, **how))


class Checkpoint(Loadable[engine.Checkpoint]):
    """As `lastgood.Checkpoint`; its content is read when it is awaited: `await checkpoint.state`."""

    __slots__ = ()

    id = Plain[str]()
    task_id = Plain[str]()
    parent_id = Plain[str | None]()
    branch_id = Plain[str | None]()
    branch_description = Plain[str]()
    lineage = Plain[str]()
    type = Plain[str]()
    step_id = Plain[str]()
    iteration = Plain[int]()
    iteration_state = Plain[str | None]()
    control_state = Plain[str]()
    message = Plain[str]()
    created_at = Plain[datetime]()
    created_by = Plain[str]()
    correlation_id = Plain[str]()
    work_item_id = Plain[str | None]()
    key = Plain[str | None]()
    metadata = Plain[dict[str, Any]]()
    prompt_preview = Plain[str | None]()
    redacted = Plain[tuple[str, ...]]()
    record = Plain[Record]()
    checksum = Plain[str]()
    integrity_ok = Plain[bool]()
    sequence = Plain[int | None]()
    version = Plain[int | None]()
    last_event = Plain[int | None]()
    state_size = Plain[int]()
    file_count = Plain[int]()
    total_size = Plain[int]()
    can_restore = Plain[bool]()
    has_artifacts = Plain[bool]()
    has_guidance = Plain[bool]()
    has_evidence = Plain[bool]()
    verified = Plain[bool]()
    last_verified_at = Plain[datetime | None]()
    tags = Plain[tuple[str, ...]]()
    deleted = Plain[bool]()
    status = Plain[engine.Status]()
    skipped = Plain[tuple[Skipped, ...]]()
    as_head = Plain[Callable[[], Head]]()
    checkpoint_id = Plain[str]()
    checkpoint_type = Plain[str]()
    sequence_number = Plain[int | None]()

    artifacts = Fetched[list[Any]]()
    decisions = Fetched[list[Any]]()
    guidance = Fetched[list[Any]]()
    participants = Fetched[list[Any]]()
    damage = Fetched[list[str]]()
    judge = bridged(engine.Checkpoint.judge, lambda bridge, found: wrap_optional(bridge, found))
    evidence_pack = Fetched[EvidencePack]()
    attestations = Fetched[list[Attestation]]()
    snapshot_data = Fetched[Any]()
    fresh_state = bridged(engine.Checkpoint.fresh_state)
    plain_state = bridged(engine.Checkpoint.plain_state)
    to_dict = bridged(engine.Checkpoint.to_dict)


def wrap_optional(bridge: Bridge, found: engine.Checkpoint | None) -> Checkpoint | None:
    return None if found is None else Checkpoint(bridge, found)


def wrap_each(bridge: Bridge, found: list[engine.Checkpoint]) -> list[Checkpoint]:
    return [Checkpoint(bridge, one) for one in found]


def unwrap(checkpoint: Checkpoint | str) -> engine.Checkpoint | str:
    return checkpoint if isinstance(checkpoint, str) else checkpoint._far


class Restored(Handle[branch.Restored]):
    """As `lastgood.types.Restored`."""

    __slots__ = ()

    checkpoint_id = Plain[str]()
    new_checkpoint_id = Plain[str]()
    branch_id = Plain[str]()
    checkpoint = Plain(Checkpoint)
    before = Plain(wrap_optional)
    restored = Plain[tuple[str, ...]]()
    added = Plain[tuple[str, ...]]()
    deleted = Plain[tuple[str, ...]]()
    failed = Plain[tuple[tuple[str, str], ...]]()
    missing = Plain[tuple[Skipped, ...]]()
    state = Fetched[Any]()


class Recovery(Handle[recovery.Recovery]):
    """As `lastgood.types.Recovery`."""

    __slots__ = ()

    task_id = Plain[str]()
    owner = Plain[str]()
    interrupted = Plain[tuple[OpenStep, ...]]()
    running = Plain[tuple[OpenStep, ...]]()
    head = Plain(wrap_optional)
    last_good = Plain(wrap_optional)
    head_unverified = Plain[bool]()
    advice = Plain[tuple[str, ...]]()
    restores = Plain[tuple[Journal, ...]]()
    spooled = Plain[int]()
    aside = Plain[int]()
    away = Plain[str | None]()
    clean = Plain[bool]()


class CheckpointPage(NamedTuple):
    """As `lastgood.types.CheckpointPage`."""

    checkpoints: list[Checkpoint]
    total: int


def wrap_page(bridge: Bridge, found: store.CheckpointPage) -> CheckpointPage:
    return CheckpointPage(wrap_each(bridge, found.checkpoints), found.total)


class FilesDiff(Handle[difference.FilesDiff]):
    """As `lastgood.types.FilesDiff`: `await diff.changes`."""

    __slots__ = ()

    changes = Fetched[list[FileChange]]()
    stats = Fetched[list[Stat]]()
    summary = Fetched[str]()
    patch = bridged(difference.FilesDiff.patch)


class Difference(Handle[difference.Difference]):
    """As `lastgood.types.Difference`: `await difference.state`."""

    __slots__ = ()

    before = Plain(Checkpoint)
    after = Plain(wrap_optional)
    files = Plain(FilesDiff)
    state = Fetched[list[StateChange]]()
    summary = Fetched[str]()
