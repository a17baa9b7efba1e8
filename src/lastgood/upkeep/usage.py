"""Disk usage: what a store takes, what each task has of it, what each checkpoint adds and frees; and keeping it
low: the oldest checkpoints that are not protected go, as few as it takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import NamedTuple

import msgspec

from lastgood.catalog.contract import Catalog
from lastgood.catalog.values import MAX_PAGE, HistoryRange, StoredCheckpoint
from lastgood.engine.blobs import FileBlobs
from lastgood.engine.engine import Engine, acting
from lastgood.engine.load import attest, find_line
from lastgood.errors import ConflictError
from lastgood.model.identity import check_number, moment
from lastgood.model.task import TaskInfo
from lastgood.upkeep.collect import MAX_SECONDS, Progress, collect
from lastgood.upkeep.reach import CheckpointNode, StoreGraph, all_pages

ROUNDS = 6
TRIES = 20
STAYING = (
    "heads of branches, what only other branches have, tagged ones, the last verified, and what would free nothing"
)
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
    planned: Limited | None = None,
    progress: Progress | None = None,
) -> Limited:
    """Bring a store below a limit as `Store.limit` does. Without `wait` nothing is done while another collects."""
    check_number("max_bytes", max_bytes)
    before = size = engine.size()
    gone: list[Evicted] = []
    chosen: list[Evicted] = []
    kept = 0
    spare = int(WASTE * max_bytes)  # what packs may waste afterwards
    if dry_run:
        needed = _needed_bytes(engine, size)
        garbage, gone, kept = _plan(engine, needed - max_bytes + spare if needed > max_bytes else 0)
        size = max(0, needed - garbage - sum(each.frees for each in gone))
    for again in range(0 if dry_run else ROUNDS):  # what becomes free on disk is known only afterwards
        # Deleted ones are planned like all others: nothing is purged that a dry run does not list.
        found = collect(engine, user, grace=0, keep_deleted=MAX_SECONDS, waste=WASTE, wait=wait, progress=progress)
        size = engine.size()
        needed = _needed_bytes(engine, size)
        if found.was_busy or needed <= max_bytes or (planned is not None and again):
            break
        _, chosen, kept = _plan(engine, needed - max_bytes + spare)
        evicted = _purge(engine, user, chosen if planned is None else planned.checkpoints)
        gone += evicted
        if not evicted:
            break
    reason = ""
    if size > max_bytes:
        reason = "the disk did not give back all that is free; the next run tries again"
        if planned is not None and {each.id for each in chosen} - {each.id for each in planned.checkpoints}:
            reason = "more would have to go, which was not listed: list again"
        elif kept:
            reason = f"{kept} checkpoint(s) stay: {STAYING}"
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
    """Choose checkpoints so that so many bytes become free: deleted ones first, then the oldest, as few as it takes,
    and with them all that hold the same content. Return the bytes that are garbage already, the checkpoints that go,
    and how many stay."""
    found = StoreGraph(engine.catalog, engine.blobs)
    protected = _Protected(engine.catalog)
    others = [one for one in found.checkpoints if one.created_at is not None and not protected.has(one.stored)]
    others.sort(key=lambda one: (not one.stored.deleted, one.created_at or 0))
    nodes = [one.node for one in others]
    staying = list({one.node for one in found.checkpoints} - set(nodes))
    # What is free when one is gone and all that come before it in `others` are, too.
    frees = found.added([*staying, *reversed(nodes)])
    garbage = sum(found.stored) - sum(frees.values())
    left, count = too_much - garbage, 0
    while left > 0 and count < len(others):
        left -= max(0, frees[nodes[count]] - TOMBSTONE)
        count += 1
    # History that holds nothing of what becomes free stays.
    holds = found.reaches_without([*staying, *nodes[count:]], TOMBSTONE)
    evicted = [_evicted(one, frees[one.node]) for one in others[:count] if holds(one.node)]
    return garbage, evicted, len(found.checkpoints) - len(evicted)


def _evicted(one: CheckpointNode, frees: int) -> Evicted:
    stored = one.stored
    at = moment(one.created_at or 0)
    return Evicted(stored.id, stored.task_id, stored.owner, stored.placement.sequence, at, frees)


class _Protected:
    """What never goes by itself: what `_spared` names, what only branches have that are not active, and what restores
    under way go to or back to."""

    def __init__(self, catalog: Catalog) -> None:
        journals = catalog.journals()
        self._spared = {each for journal in journals for each in journal.needs()}
        self._lines: dict[int, dict[str, int]] = {}
        for task in all_pages(lambda after=None: catalog.tasks(None, after, MAX_PAGE), lambda last: last.number):
            self._spared |= _spared(catalog, task)
            self._lines[task.number] = _active_line(catalog, task)

    def has(self, stored: StoredCheckpoint) -> bool:
        if stored.deleted:
            return stored.id in self._spared
        line = self._lines.get(stored.task_number, {})
        return stored.id in self._spared or stored.placement.sequence > line.get(stored.placement.branch_id, 0)


def _spared(catalog: Catalog, task: TaskInfo) -> set[str]:
    """Return the ids of a task's checkpoints that never go by themselves: heads of branches, tagged ones, the last
    verified (A14), and what a session is asked to restore."""
    spared = {head.id for head in catalog.tags(task).values()}
    for branch in catalog.branches(task):
        if branch.head is not None and not branch.deleted:
            spared.add(branch.head.id)
            requests = catalog.requests(task.owner, branch_id=branch.id)
            spared.update(str(one.data.get("checkpoint")) for one in requests if one.kind == "restore")
    for line in (HistoryRange(task), HistoryRange(task, catalog.branch(task.owner, task.active_branch_id))):
        spared.update(one.id for one in catalog.checkpoints(line, limit=1, verified=True))
    return spared


def _active_line(catalog: Catalog, task: TaskInfo) -> dict[str, int]:
    """Return up to which sequence each branch belongs to the history of the active one, by id; others are not in it."""
    branches = {branch.id: branch for branch in catalog.branches(task, deleted=True)}
    line: dict[str, int] = {}
    branch, newest = branches.get(task.active_branch_id), task.last_sequence
    while branch is not None:
        line[branch.id] = newest
        origin = catalog.checkpoint(task.owner, branch.origin_id) if branch.origin_id else None
        branch = branches.get(origin.placement.branch_id) if origin else None
        newest = origin.placement.sequence if origin else 0
    return line


def _purge(engine: Engine, user: str, evicted: Sequence[Evicted]) -> list[Evicted]:
    """Purge checkpoints; return those that were: one that was tagged meanwhile, or became a head, stays."""
    protected, gone = _Protected(engine.catalog), set[str]()
    for start in range(0, len(evicted), 100):
        some = [(each.owner, each.id) for each in evicted[start : start + 100]]
        there = [engine.catalog.checkpoint(*each) for each in some]
        some = [(one.owner, one.id) for one in there if one is not None and not protected.has(one)]
        gone.update(engine.catalog.purge(some, acting(user), spare_needed=True))
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
    """List all but the newest `keep_count`, without those that are spared, and of a task without what only branches
    have that are not active."""
    check_number("keep_count", keep_count)
    spared = _spared(catalog, line.task)
    if line.branch is not None:
        spared.update(one.id for one in catalog.checkpoints(line, limit=1, verified=True))
    active = _active_line(catalog, line.task)
    rows = all_pages(
        lambda before=None: catalog.checkpoints(line, before=before, limit=MAX_PAGE),
        lambda last: last.placement.sequence,
    )
    return [
        row.id
        for row in islice(rows, keep_count, None)
        if row.id not in spared
        and (line.branch is not None or row.placement.sequence <= active.get(row.placement.branch_id, 0))
    ]
