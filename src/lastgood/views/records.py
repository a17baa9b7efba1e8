"""Reads that Store and Task have no public verb for: what is left of purged and damaged checkpoints, and leases.

No other view looks below the facade, but for `workspace`, which compares files on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lastgood.engine.load import find_line, wrap

if TYPE_CHECKING:
    from collections.abc import Callable

    from lastgood import Checkpoint, Store
    from lastgood.catalog.values import StoredCheckpoint
    from lastgood.engine.engine import Engine
    from lastgood.types import Lease, Request, TaskInfo, Verification


def engine_of(store: Store) -> Engine:
    """Return the engine below a store."""
    return store._engine


class PlacedCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint and its place in the task. `checkpoint` is None once it was purged."""

    id: str
    owner: str
    task_id: str
    branch_id: str
    sequence: int
    version: int
    deleted: bool
    checkpoint: Checkpoint | None


def find_place(store: Store, owner: str | None, checkpoint_id: str | None) -> PlacedCheckpoint | None:
    """Return a checkpoint by its id, also a purged or a damaged one."""
    stored = store._engine.catalog.checkpoint(owner or store.user, checkpoint_id) if checkpoint_id else None
    return None if stored is None else _placed(store, stored)


def resolve_place(store: Store, owner: str | None, name: str, task_id: str) -> PlacedCheckpoint:
    """Return a checkpoint by any name people use, also a purged or a damaged one. Raises NotFoundError."""
    from lastgood.engine.recovery import resolve_name

    found = find_place(store, owner, resolve_name(store._engine, store.user, owner or store.user, name, task_id))
    assert found is not None, "it was found by its name"
    return found


def place_at(store: Store, task: TaskInfo, sequence: int) -> PlacedCheckpoint | None:
    """Return the checkpoint with a sequence number. Raises IntegrityError if its row is damaged."""
    stored = store._engine.catalog.checkpoint_at(task, sequence)
    return None if stored is None else _placed(store, stored)


def find_task(store: Store, owner: str | None, task_id: str) -> TaskInfo:
    """Return the task that an id, or a branch's id, stands for. Raises NotFoundError."""
    return find_line(store._engine.catalog, owner or store.user, task_id).task


def find_lease(store: Store, owner: str | None, branch_id: str | None) -> Lease | None:
    """Return the lease on a branch, also one that ran out or whose holder is gone."""
    return store._engine.catalog.lease(owner or store.user, branch_id) if branch_id else None


def list_requests(store: Store, owner: str | None, branch_id: str | None) -> list[Request]:
    """Return what was asked of the work on a branch and is not done yet, oldest first."""
    return store._engine.catalog.requests(owner or store.user, branch_id=branch_id or "")


def count_deleted(store: Store, grace: float = 0) -> int:
    """Count the checkpoints that were deleted so many seconds ago and are not purged yet, whoever owns them."""
    from lastgood.model.identity import now

    return len(store._engine.catalog.deleted_before(now() - int(grace * 1_000_000)))


def _placed(store: Store, stored: StoredCheckpoint) -> PlacedCheckpoint:
    place, checkpoint = stored.placement, None if stored.data is None else wrap(store._engine, stored)
    about = (stored.id, stored.owner, stored.task_id, place.branch_id, place.sequence, place.version)
    return PlacedCheckpoint(*about, stored.deleted, checkpoint)


def place_of(checkpoint: Checkpoint) -> PlacedCheckpoint:
    """Return the place of a checkpoint at hand; one that is spooled has none, and stands at 0."""
    place = (checkpoint.branch_id or "", checkpoint.sequence or 0, checkpoint.version or 0)
    return PlacedCheckpoint(checkpoint.id, "", checkpoint.task_id, *place, checkpoint.deleted, checkpoint)


def find_last_good(
    store: Store,
    task_id: str,
    owner: str | None,
    *,
    any: bool,
    type: str | None,
    on_passed: Callable[[Verification], None],
) -> Checkpoint | None:
    """Find as `Store.last_good` does; `on_passed` gets each that was checked and is passed over."""
    from lastgood.engine.recovery import find_last_good
    from lastgood.model.identity import check_type

    kind = None if type is None else check_type("checkpoint_type", type)
    line = find_line(store._engine.catalog, owner or store.user, task_id, active=True)
    return find_last_good(store._engine, store.user, line, any=any, type=kind, on_passed=on_passed)


def find_head_id(store: Store, owner: str | None, task_id: str) -> str | None:
    """Return the id of the newest checkpoint of a task's active branch, or of the branch that was named."""
    branch = find_line(store._engine.catalog, owner or store.user, task_id, active=True).branch
    return branch.head.id if branch and branch.head else None


def find_active_line(store: Store, owner: str | None, task_id: str) -> str:
    """Return the id of a task's active branch, or of the branch that was named."""
    branch = find_line(store._engine.catalog, owner or store.user, task_id, active=True).branch
    return task_id if branch is None else branch.id
