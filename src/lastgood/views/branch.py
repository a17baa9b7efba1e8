"""Branches as every surface shows them, and the tree that they form.

The line of the active branch goes straight from its head to the first checkpoint, across the branches it came
from; every other branch hangs where it leaves a line that is there already.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.views.document import compose
from lastgood.views.records import PlacedCheckpoint, find_place, find_task, place_of

if TYPE_CHECKING:
    from lastgood import Store
    from lastgood.types import BranchInfo

NEWEST = 3  # of each line, that are never folded
SHORTEST_FOLD = 3
PAGE = 1000  # the newest checkpoints, which are all read


class Point(msgspec.Struct):
    """A checkpoint on a line. `origin`: the sequence it was restored or forked from, if it begins a branch."""

    place: PlacedCheckpoint
    origin: int = 0
    head_of: BranchInfo | None = None
    sides: list[Strand] = []


class Fold(msgspec.Struct, frozen=True):
    """Checkpoints that are not shown."""

    count: int


class Strand(msgspec.Struct):
    """A line, from its newest checkpoint down to where it leaves another one.

    `unseen`: the sequence that it goes on from, on a branch that is not drawn.
    """

    items: list[Point | Fold] = []
    unseen: int = 0


class Tree(msgspec.Struct, frozen=True):
    """The lines that leave no other one, and how many branches were left out."""

    strands: list[Strand]
    active: str
    left_out: int


def list_branches(store: Store, task_id: str, owner: str | None) -> list[dict[str, Any]]:
    """Return all branches of a task as JSON shows them, oldest first; deleted ones while something of them is left."""
    active = find_task(store, owner, task_id).active_branch_id
    return [
        compose(
            branch,
            active=branch.id == active,
            head_id=branch.head.id if branch.head else None,
            head_sequence=branch.head.sequence if branch.head else None,
        )
        for branch in store.branches(task_id, owner=owner)
    ]


def find_branch(store: Store, task_id: str, branch_id: str | None, owner: str | None) -> BranchInfo | None:
    """Return a branch of a task by its id."""
    return next((one for one in store.branches(task_id, owner=owner) if one.id == branch_id), None)


def read_tree(store: Store, task_id: str, limit: int, owner: str | None = None) -> Tree:
    """Read the active branch and those worked on last, `limit` in all, and at most as many that they come from.

    Reads a bounded number of checkpoints.
    """
    active = find_task(store, owner, task_id).active_branch_id
    branches = store.branches(task_id, owner=owner)
    branches.sort(key=lambda one: (one.id == active, one.head.sequence if one.head else 0), reverse=True)
    shown = _with_origins(store, branches, limit)
    growth = _Growth(store, task_id, owner, shown)
    for branch in shown:
        growth.trace(branch)
    growth.fold()
    return Tree(growth.roots, active, len(branches) - len(shown))


def _with_origins(store: Store, branches: list[BranchInfo], limit: int) -> list[BranchInfo]:
    by_id = {branch.id: branch for branch in branches}
    shown = {branch.id: branch for branch in branches[:limit]}
    for branch in branches[:limit]:
        above: BranchInfo | None = branch
        while above is not None and above.origin_id is not None and len(shown) < 2 * limit:
            origin = find_place(store, above.owner, above.origin_id)
            above = by_id.get(origin.branch_id) if origin else None
            if above is None or above.id in shown:
                break
            shown[above.id] = above
    return list(shown.values())


class _Growth:
    """A tree on its way.

    Known are the newest 1,000 checkpoints, and of older ones heads and origins. How many lie between is told by their
    versions, which are dense on a branch.
    """

    def __init__(self, store: Store, task_id: str, owner: str | None, branches: list[BranchInfo]) -> None:
        self.roots: list[Strand] = []
        self._strands: list[Strand] = []
        self._branches = {branch.id: branch for branch in branches}
        self._drawn: dict[str, int] = {}  # of each branch, up to which version it lies on a line
        whole = find_task(store, owner, task_id).id
        page = [place_of(one) for one in store.list_checkpoints(whole, PAGE, owner=owner)]
        self._read_from = page[-1].sequence if len(page) == PAGE else 0
        self._known = {place.id: place for place in page}
        heads = {branch.head.id for branch in branches if branch.head and not branch.deleted}
        origins = {branch.origin_id for branch in branches if branch.origin_id}
        for name in (heads | origins) - set(self._known):
            if (place := find_place(store, owner, name)) is not None:
                self._known[name] = place
        self._points = {branch.id: list(self._points_of(branch)) for branch in branches}

    def trace(self, branch: BranchInfo) -> None:
        """The line from a branch's head down to what lies on a line already, or to the beginning."""
        if not (points := self._points[branch.id]):
            return
        points[0].head_of = branch
        if points[0].place.version <= self._drawn.get(branch.id, 0):
            return
        strand, high = Strand([]), points[0].place.version
        self._strands.append(strand)
        while (low := self._drawn.get(branch.id, 0)) < high:
            strand.items += self._stretch(branch, high, low)
            self._drawn[branch.id] = high
            if low:
                high = low
                break
            origin = self._known.get(branch.origin_id or "")
            if origin is None or origin.branch_id not in self._branches:
                strand.unseen = branch.origin_sequence
                self.roots.append(strand)
                return
            branch, high = self._branches[origin.branch_id], origin.version
        joint = next(point for point in self._points[branch.id] if point.place.version == high)
        joint.sides = [*joint.sides, strand]

    def fold(self) -> None:
        for strand in self._strands:
            strand.items = list(_folded(strand.items))

    def _points_of(self, branch: BranchInfo) -> Iterator[Point]:
        own = [place for place in self._known.values() if place.branch_id == branch.id]
        for place in sorted(own, key=lambda one: -one.version):
            yield Point(place, branch.origin_sequence if place.version == 1 else 0)

    def _stretch(self, branch: BranchInfo, high: int, low: int) -> Iterator[Point | Fold]:
        """A branch from the version `high` down to above `low`; what was not read is folded."""
        points = [point for point in self._points[branch.id] if low < point.place.version <= high]
        below = [point.place for point in self._points[branch.id] if point.place.version < high]
        for index, point in enumerate(points):
            yield point
            next_version = below[index].version if index < len(below) else 0
            next_sequence = below[index].sequence if index < len(below) else branch.origin_sequence
            missing = point.place.version - next_version - 1
            if missing and next_sequence < self._read_from:  # else they were deleted: all that is there was read
                yield Fold(missing)


def _folded(items: list[Point | Fold]) -> Iterator[Point | Fold]:
    run: list[Point | Fold] = []
    for index, item in enumerate(items):
        if isinstance(item, Point) and (index < NEWEST or _stands_out(item)):
            yield from _shortened(run)
            run = []
            yield item
        else:
            run.append(item)
    yield from _shortened(run)


def _stands_out(point: Point) -> bool:
    tags = point.place.checkpoint.tags if point.place.checkpoint else ()
    return bool(point.head_of or point.sides or point.place.version == 1 or tags)


def _shortened(run: list[Point | Fold]) -> list[Point | Fold]:
    if len(run) < SHORTEST_FOLD and not any(isinstance(item, Fold) for item in run):
        return run
    return [Fold(sum(item.count if isinstance(item, Fold) else 1 for item in run))]
