"""Measuring a store: from the graph of what checkpoints reach to the figures of `Usage`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from lastgood.catalog.contract import MAX_PAGE, Catalog
from lastgood.engine.blobs import FileBlobs
from lastgood.model.identity import moment
from lastgood.model.task import BranchInfo
from lastgood.upkeep.reach import Holder, Reached, read_reached
from lastgood.upkeep.shares import Circles, added, alone, reached
from lastgood.upkeep.usage import BranchUsage, CheckpointUsage, Share, TaskUsage, Usage


def measure(catalog: Catalog, files: FileBlobs) -> Usage:
    """Of everybody's: tasks by size, the largest first; branches and checkpoints as they were made, task by task."""
    found = read_reached(catalog, files)
    known = {pack.name for pack in catalog.packs()}
    packs = list(files.objects.list("packs/")) if files.objects else []
    brought = _added(found)
    groups = _Groups(found)
    total = groups.shares([groups.whole])[0]
    return Usage(
        catalog_bytes=catalog.size(),
        free_bytes=catalog.free_bytes(),
        packs=len(packs),
        pack_bytes=sum(pack.size for pack in packs),
        unreferenced_bytes=sum(found.graph.stored) - total["stored"],
        stray_bytes=sum(pack.size for pack in packs if pack.name not in known),
        unreadable=found.unreadable,
        total=Share(**total),
        tasks=tuple(sorted(_tasks(groups), key=lambda task: (-task.stored, task.owner, task.id))),
        branches=tuple(_branches(groups, _read_branches(catalog))),
        checkpoints=tuple(_checkpoints(groups, brought)),
    )


class _Group(NamedTuple):
    """Checkpoints that are counted together, and the circle around them."""

    circle: int
    members: list[Holder]

    def facts(self) -> dict[str, Any]:
        deleted = sum(holder.stored.deleted for holder in self.members)
        stored = self.members[0].stored
        return {"owner": stored.owner, "checkpoints": len(self.members), "deleted_checkpoints": deleted}


class _Groups:
    """The checkpoints of a graph: all, by task, by branch, and each by itself."""

    def __init__(self, found: Reached) -> None:
        self._graph = found.graph
        circles = Circles()
        self.whole = _Group(0, found.holders)
        self.tasks: dict[int, _Group] = {}
        self.branches: dict[tuple[int, str], _Group] = {}
        self.checkpoints: dict[int, _Group] = {}
        for holder in found.holders:
            task, branch = holder.stored.task_number, holder.stored.placement.branch_id
            if task not in self.tasks:
                self.tasks[task] = _Group(circles.add(0), [])
            around = self.tasks[task]
            around.members.append(holder)
            if (task, branch) not in self.branches:
                self.branches[task, branch] = _Group(circles.add(around.circle), [])
            around = self.branches[task, branch]
            around.members.append(holder)
            self.checkpoints[holder.node] = _Group(circles.add(around.circle), [holder])
        places = [(node, group.circle) for node, group in self.checkpoints.items()]
        self._alone = alone(self._graph.below, self._graph.stored, circles, places)

    def shares(self, groups: Sequence[_Group]) -> list[dict[str, Any]]:
        """What each of the groups has, as the fields of a Share. Neighbours should have much in common."""
        nodes = [[holder.node for holder in group.members] for group in groups]
        amounts = reached(self._graph.below, self._graph.stored, self._graph.content, nodes)
        return [
            {
                "logical": sum(holder.facts.logical for holder in group.members if holder.facts),
                "content": amount.content,
                "stored": amount.stored,
                "unique": self._alone[group.circle],
            }
            for group, amount in zip(groups, amounts, strict=True)
        ]


def _tasks(groups: _Groups) -> list[TaskUsage]:
    tasks = list(groups.tasks.values())
    return [
        TaskUsage(**share, **task.facts(), id=task.members[0].stored.task_id)
        for task, share in zip(tasks, groups.shares(tasks), strict=True)
    ]


def _branches(groups: _Groups, known: dict[tuple[str, str], BranchInfo]) -> list[BranchUsage]:
    branches = list(groups.branches.values())
    found = []
    for branch, share in zip(branches, groups.shares(branches), strict=True):
        stored = branch.members[0].stored
        info = known.get((stored.owner, stored.placement.branch_id))  # None: it was removed just now
        found.append(
            BranchUsage(
                **share,
                **branch.facts(),
                id=stored.placement.branch_id,
                name=info.name if info else "",
                task_id=stored.task_id,
                deleted=info is None or info.deleted,
            )
        )
    return found


def _checkpoints(groups: _Groups, brought: dict[int, int]) -> list[CheckpointUsage]:
    line = _along_lineage([group.members[0] for group in groups.checkpoints.values()])
    shares = groups.shares([groups.checkpoints[holder.node] for holder in line])
    share_of = {holder.node: share for holder, share in zip(line, shares, strict=True)}
    return [
        CheckpointUsage(
            **share_of[node],
            id=stored.id,
            task_id=stored.task_id,
            owner=stored.owner,
            branch_id=stored.placement.branch_id,
            sequence=stored.placement.sequence,
            created_at=moment(facts.created_at) if facts else None,
            deleted=stored.deleted,
            added=brought[node],
        )
        for node, stored, facts in (group.members[0] for group in groups.checkpoints.values())
    ]


def _along_lineage(holders: Sequence[Holder]) -> list[Holder]:
    """Each after the one that it continues, and branches one after the other: neighbours have most in common."""
    ids = {(holder.stored.task_number, holder.stored.id) for holder in holders}
    after: defaultdict[tuple[int, str | None], list[Holder]] = defaultdict(list)
    for holder in holders:
        task, parent = holder.stored.task_number, holder.facts.parent_id if holder.facts else None
        after[task, parent if (task, parent) in ids else None].append(holder)
    line = []
    for task in dict.fromkeys(holder.stored.task_number for holder in holders):
        waiting = after[task, None][::-1]
        while waiting:
            holder = waiting.pop()
            line.append(holder)
            waiting += after.get((task, holder.stored.id), ())[::-1]
    return line


def _added(found: Reached) -> dict[int, int]:
    """By node: the bytes that each checkpoint brought, in the order in which they were made."""
    holders = sorted(found.holders, key=lambda holder: holder.facts.created_at if holder.facts else 0)
    nodes = [holder.node for holder in holders]
    return dict(zip(nodes, added(found.graph.below, found.graph.stored, nodes), strict=True))


def _read_branches(catalog: Catalog) -> dict[tuple[str, str], BranchInfo]:
    """By owner and id."""
    found: dict[tuple[str, str], BranchInfo] = {}
    page = catalog.tasks(None, limit=MAX_PAGE)
    while page:
        for task in page:
            found |= {(branch.owner, branch.id): branch for branch in catalog.all_branches(task)}
        page = catalog.tasks(None, page[-1].number, MAX_PAGE)
    return found
