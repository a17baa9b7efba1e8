"""Disk usage: what a store takes, what each task has of it, what each checkpoint adds and frees; and keeping it
low: the oldest checkpoints that are not protected go, as few as it takes."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import NamedTuple

import msgspec

from lastgood.catalog.contract import Catalog
from lastgood.catalog.values import MAX_PAGE, HistoryRange
from lastgood.engine.blobs import FileBlobs
from lastgood.engine.engine import Engine, acting
from lastgood.engine.load import attest, find_line
from lastgood.errors import ConflictError
from lastgood.local.process import this_process
from lastgood.model.identity import check_number, moment
from lastgood.upkeep.collect import GRACE_SECONDS, Progress, collect
from lastgood.upkeep.reach import CheckpointNode, StoreGraph, all_pages

ROUNDS = 6
TRIES = 20
WASTE = 0.02
TOMBSTONE = 512
"""Bytes that a purged checkpoint leaves in the database, about: its tombstone and its place in the log."""


class CheckpointUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint in bytes on disk.

    `adds`: what it was the first to need, of that which is still there. `frees`: what becomes free when it alone is
    deleted, purged and collected. `created_at` is None where its record is damaged.
    """

    id: str
    task_id: str
    owner: str
    branch_id: str
    sequence: int
    created_at: datetime | None
    deleted: bool
    adds: int
    frees: int


class TaskUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A task in bytes on disk: all that its checkpoints need, everything once, also what other tasks need, too.

    `deleted_checkpoints` of its `checkpoints` are marked as deleted, and hold their content until they are purged.
    """

    id: str
    owner: str
    checkpoints: int
    deleted_checkpoints: int
    stored: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """A store in bytes; see `Store.usage`.

    `stored_bytes` are needed by checkpoints, `unreferenced_bytes` are content that none needs any more. `stray_bytes`
    lie in packs that the store does not know: of a save that was interrupted, or is under way. `free_bytes` of the
    catalog will be used again. `unreadable`: how many things were missing or damaged; what only they lead to counts as
    unreferenced.
    """

    catalog_bytes: int
    free_bytes: int
    packs: int
    pack_bytes: int
    stored_bytes: int
    unreferenced_bytes: int
    stray_bytes: int
    unreadable: int
    tasks: tuple[TaskUsage, ...]
    checkpoints: tuple[CheckpointUsage, ...]

    @property
    def disk_bytes(self) -> int:
        return self.catalog_bytes + self.pack_bytes

    def of(self, owner: str, task_id: str | None = None, branch_id: str | None = None) -> Usage:
        """Return the same store with only the tasks and checkpoints of an owner, of a task, of a branch."""
        return msgspec.structs.replace(
            self,
            tasks=tuple(task for task in self.tasks if task.owner == owner and task_id in (None, task.id)),
            checkpoints=tuple(
                one
                for one in self.checkpoints
                if one.owner == owner and task_id in (None, one.task_id) and branch_id in (None, one.branch_id)
            ),
        )


def measure(catalog: Catalog, files: FileBlobs) -> Usage:
    """Measure a store: tasks by size, the largest first; checkpoints as they were made, task by task."""
    found = StoreGraph(catalog, files)
    known = {pack.name for pack in catalog.packs()}
    packs = list(files.objects.list("packs/")) if files.objects else []
    by_age = sorted(found.checkpoints, key=lambda one: one.created_at or 0)
    adds = found.added([one.node for one in by_age])
    stored = sum(adds.values())
    return Usage(
        catalog_bytes=catalog.disk_use().size,
        free_bytes=catalog.disk_use().free,
        packs=len(packs),
        pack_bytes=sum(pack.size for pack in packs),
        stored_bytes=stored,
        unreferenced_bytes=sum(found.stored) - stored,
        stray_bytes=sum(pack.size for pack in packs if pack.name not in known),
        unreadable=found.unreadable,
        tasks=tuple(sorted(_measure_tasks(found), key=lambda task: (-task.stored, task.owner, task.id))),
        checkpoints=tuple(_measure_checkpoints(found, adds)),
    )


def _measure_tasks(found: StoreGraph) -> list[TaskUsage]:
    by_task: defaultdict[int, list[CheckpointNode]] = defaultdict(list)
    for one in found.checkpoints:
        by_task[one.stored.task_number].append(one)
    return [
        TaskUsage(
            id=nodes[0].stored.task_id,
            owner=nodes[0].stored.owner,
            checkpoints=len(nodes),
            deleted_checkpoints=sum(one.stored.deleted for one in nodes),
            stored=sum(found.added([one.node for one in nodes]).values()),
        )
        for nodes in by_task.values()
    ]


def _measure_checkpoints(found: StoreGraph, adds: dict[int, int]) -> list[CheckpointUsage]:
    frees = found.exclusive([one.node for one in found.checkpoints])
    return [
        CheckpointUsage(
            id=stored.id,
            task_id=stored.task_id,
            owner=stored.owner,
            branch_id=stored.placement.branch_id,
            sequence=stored.placement.sequence,
            created_at=None if created_at is None else moment(created_at),
            deleted=stored.deleted,
            adds=adds[node],
            frees=frees[node],
        )
        for node, stored, created_at in found.checkpoints
    ]


# --- a limit --------------------------------------------------------------------------------------------------------


class Evicted(NamedTuple):
    """A checkpoint that goes, and the bytes that become free with it, once those before it are gone."""

    id: str
    task_id: str
    owner: str
    sequence: int
    created_at: datetime
    frees: int


class Limited(msgspec.Struct, frozen=True, kw_only=True):
    """What it took; of a dry run, what it would take. Bytes on disk `before` and `after`, which a dry run reckons.

    `checkpoints` in the order in which they went; `kept` is how many stay. Not `met`: `reason` says why.
    """

    max_bytes: int
    before: int
    after: int
    met: bool
    reason: str = ""
    checkpoints: tuple[Evicted, ...] = ()
    kept: int = 0
    dry_run: bool = False


def limit(
    engine: Engine,
    user: str,
    max_bytes: int,
    *,
    dry_run: bool = False,
    wait: bool = True,
    progress: Progress | None = None,
) -> Limited:
    """Bring a store below a limit as `Store.limit` does. Without `wait` nothing is done while another collects."""
    check_number("max_bytes", max_bytes)
    before = size = engine.size()
    gone: list[Evicted] = []
    kept = 0
    if dry_run:
        needed = _needed_bytes(engine, size)
        garbage, gone, kept = _plan(engine, needed - max_bytes)
        size = max(0, needed - garbage - sum(each.frees for each in gone))
    for _ in range(0 if dry_run else ROUNDS):  # what becomes free on disk is known only afterwards
        found = collect(engine, user, grace=0, keep_deleted=GRACE_SECONDS, waste=WASTE, wait=wait, progress=progress)
        size = engine.size()
        needed = _needed_bytes(engine, size)
        if found.was_busy or needed <= max_bytes:
            break
        _, planned, kept = _plan(engine, needed - max_bytes)
        evicted = _purge(engine.catalog, user, planned)
        gone += evicted
        if not evicted:
            break
    reason = ""
    if size > max_bytes:
        reason = "the disk did not give back all that is free; the next run tries again"
        if kept:
            protected = "heads of active branches, tagged ones, the last verified, and those that would free nothing"
            reason = f"{kept} checkpoint(s) stay: {protected}"
        if not dry_run:
            message = f"the store takes {size:,} bytes, more than the {max_bytes:,} allowed: {reason}"
            engine.alert(message, code="quota_exceeded")
    return Limited(
        max_bytes=max_bytes,
        before=before,
        after=size,
        met=size <= max_bytes,
        reason=reason,
        checkpoints=tuple(gone),
        kept=kept,
        dry_run=dry_run,
    )


def _needed_bytes(engine: Engine, size: int) -> int:
    """Return the bytes that the store needs: free pages of the database are no reason to purge a checkpoint."""
    return size - engine.catalog.disk_use().size + engine.catalog.disk_use().used


def _plan(engine: Engine, too_much: int) -> tuple[int, list[Evicted], int]:
    """Choose checkpoints so that so many bytes become free: deleted ones first, then the oldest. Return the bytes that
    are garbage already, the checkpoints that go, and how many stay."""
    found = StoreGraph(engine.catalog, engine.blobs)
    spared = _protected(engine.catalog)
    others = [one for one in found.checkpoints if one.stored.id not in spared and one.created_at is not None]
    others.sort(key=lambda one: (not one.stored.deleted, one.created_at or 0))
    nodes = [one.node for one in others]
    protected = {one.node for one in found.checkpoints} - set(nodes)
    # What is free when one is gone and all that come before it in `others` are, too.
    frees = found.added([*protected, *reversed(nodes)])
    garbage = sum(found.stored) - sum(frees.values())
    left, evicted = too_much - garbage, []
    for one in others:
        if left <= 0:
            break
        net = frees[one.node] - TOMBSTONE
        if net > 0:  # history that frees nothing stays
            stored, at = one.stored, moment(one.created_at or 0)
            evicted.append(
                Evicted(stored.id, stored.task_id, stored.owner, stored.placement.sequence, at, frees[one.node])
            )
            left -= net
    return garbage, evicted, len(found.checkpoints) - len(evicted)


def _protected(catalog: Catalog) -> set[str]:
    """Return the ids of what never goes: heads of active branches, tagged ones, the last verified, and what restores
    under way go back to."""
    spared = {each for journal in catalog.journals(this_process().host) for each in (journal.before, journal.chosen)}
    for task in all_pages(lambda after=None: catalog.tasks(None, after, MAX_PAGE), lambda last: last.number):
        active = catalog.branch(task.owner, task.active_branch_id)
        if active is not None and active.head is not None:
            spared.add(active.head.id)
        spared.update(head.id for head in catalog.tags(task).values())
        for line in (HistoryRange(task), HistoryRange(task, active)):
            spared.update(one.id for one in catalog.checkpoints(line, limit=1, verified=True))
    return spared


def _purge(catalog: Catalog, user: str, evicted: list[Evicted]) -> list[Evicted]:
    """Purge checkpoints; return those that were: one that was tagged meanwhile, or became a head, stays."""
    gone: set[str] = set()
    for start in range(0, len(evicted), 100):
        some = [(each.owner, each.id) for each in evicted[start : start + 100]]
        gone.update(catalog.purge(some, acting(user), spare_tagged=True))
    return [each for each in evicted if each.id in gone]


# --- retention ------------------------------------------------------------------------------------------------------


def delete_old(engine: Engine, user: str, owner: str, task_id: str, keep_count: int) -> int:
    """Delete all checkpoints of a task but the newest `keep_count`, and those that must stay; return how many.

    What was selected is deleted only if nothing has happened to the task meanwhile: else it is selected again.
    """
    for _ in range(TRIES - 1):
        with suppress(ConflictError):
            return _try_to_delete_old(engine, user, owner, task_id, keep_count)
    return _try_to_delete_old(engine, user, owner, task_id, keep_count)


def _try_to_delete_old(engine: Engine, user: str, owner: str, task_id: str, keep_count: int) -> int:
    line = find_line(engine.catalog, owner, task_id)
    old = select_old(engine.catalog, line, keep_count)
    attest(engine, user, owner, old, "deleted", {"by": "retention"}, last_event=line.task.last_event)
    return len(old)


def select_old(catalog: Catalog, line: HistoryRange, keep_count: int) -> list[str]:
    """List all but the newest `keep_count`, without the active head, tagged ones and the last verified (A14)."""
    check_number("keep_count", keep_count)
    active = catalog.branch(line.task.owner, line.task.active_branch_id)
    spared = {active.head.id} if active and active.head else set()
    for branch in (active, line.branch):
        if branch is not None:
            verified = catalog.checkpoints(HistoryRange(line.task, branch), limit=1, verified=True)
            spared.update(one.id for one in verified)
    rows = all_pages(
        lambda before=None: catalog.checkpoints(line, before=before, limit=MAX_PAGE),
        lambda last: last.placement.sequence,
    )
    return [row.id for row in islice(rows, keep_count, None) if not row.tags and row.id not in spared]
