"""Disk usage: what a store takes, what each task has of it, and what each checkpoint adds and frees."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

import msgspec

from lastgood.catalog.contract import Catalog
from lastgood.engine.blobs import FileBlobs
from lastgood.model.identity import moment
from lastgood.upkeep.reach import CheckpointNode, StoreGraph, read_graph


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
    found = read_graph(catalog, files)
    known = {pack.name for pack in catalog.packs()}
    packs = list(files.objects.list("packs/")) if files.objects else []
    by_age = sorted(found.checkpoints, key=lambda one: one.created_at or 0)
    adds = found.graph.added([one.node for one in by_age])
    stored = sum(adds.values())
    return Usage(
        catalog_bytes=catalog.disk_use().size,
        free_bytes=catalog.disk_use().free,
        packs=len(packs),
        pack_bytes=sum(pack.size for pack in packs),
        stored_bytes=stored,
        unreferenced_bytes=sum(found.graph.stored) - stored,
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
            stored=sum(found.graph.added([one.node for one in nodes]).values()),
        )
        for nodes in by_task.values()
    ]


def _measure_checkpoints(found: StoreGraph, adds: dict[int, int]) -> list[CheckpointUsage]:
    frees = found.graph.exclusive([one.node for one in found.checkpoints])
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
