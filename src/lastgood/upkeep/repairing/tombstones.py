"""Tombstones for checkpoints that are gone: what their descendants still prove of them, and nothing else.

A child has its parent's id and checksum; versions on a branch and numbers of the log are dense. Where that leaves more
than one answer, there is none. Of one whose child is gone, too, only the place is known: then it is called `lost-…`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from lastgood.catalog.upkeep import Tombstone
from lastgood.model.checkpoint import Placement
from lastgood.model.digest import SIZE
from lastgood.upkeep.checking.ledger import Known, Ledger

UNKNOWN = bytes(SIZE)


def find_tombstones(ledger: Ledger) -> Iterator[Tombstone]:
    for task in ledger.tasks.values():
        present = {known.row.sequence: known for known in ledger.checkpoints.values() if known.row.task == task.number}
        holes = [sequence for sequence in range(1, task.last_sequence + 1) if sequence not in present]
        if task.number and holes and "checkpoints" not in ledger.unreadable:
            yield from _Holes(ledger, task.number, present, holes).fill()


class _Holes:
    """Those of one task."""

    def __init__(self, ledger: Ledger, task: int, present: dict[int, Known], holes: list[int]) -> None:
        self._ledger = ledger
        self._task = task
        self._present = present
        self._holes = holes
        told = ledger.events.get(task, set()) | ledger.creations.get(task, set())
        self._untold = sorted(set(range(1, ledger.tasks[task].last_event + 1)) - told)

    def fill(self) -> Iterator[Tombstone]:
        links = self._links()
        for sequence, (branch, version) in self._places().items():
            event = self._event(sequence)
            if event is None:
                continue
            id_, checksum = links.get((branch, version), (f"lost-{self._task}-{sequence}", UNKNOWN))
            row = self._ledger.branches[branch]
            placement = Placement(row.id, sequence, version, event).digest(checksum)
            yield Tombstone(self._task, sequence, branch, row.owner, id_, version, event, checksum, placement)

    def _links(self) -> dict[tuple[int, int], tuple[str, bytes]]:
        """Ids and checksums of parents, by branch and version, as their children have them."""
        found: dict[tuple[int, int], tuple[str, bytes]] = {}
        places = self._places()
        for known in self._present.values():
            record, row = known.record, known.row
            if record is None or record.parent_id is None or record.parent_checksum is None:
                continue
            branch = self._ledger.branches.get(row.branch)
            at = (row.branch, row.version - 1) if row.version > 1 else branch and places.get(branch.origin)
            if at is not None:
                found[at] = record.parent_id, record.parent_checksum
        return found

    def _places(self) -> dict[int, tuple[int, int]]:
        """Branch and version of the holes: between two checkpoints of a branch as many are gone as versions are
        missing, if nobody else's are gone there."""
        own: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for known in self._present.values():
            own[known.row.branch].append((known.row.sequence, known.row.version))
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for branch, placed in own.items():
            if branch not in self._ledger.branches:
                continue
            start = (self._ledger.branches[branch].origin, 0)
            for (low, before), (high, after) in zip([start, *sorted(placed)], sorted(placed), strict=False):
                between = [sequence for sequence in self._holes if low < sequence < high]
                missing = range(before + 1, after)
                if missing and len(between) == len(missing):
                    for sequence, version in zip(between, missing, strict=True):
                        found[sequence].append((branch, version))
        return {sequence: places[0] for sequence, places in found.items() if len(places) == 1}

    def _event(self, sequence: int) -> int | None:
        """The number in the log that was its own: the one between its neighbours' that nobody tells of."""
        low, high = self._bounds(sequence)
        if high is None:
            return None
        near = [n for n in self._holes if self._bounds(n) == (low, high)]
        free = [event for event in self._untold if low < event < high]
        return free[near.index(sequence)] if len(near) == len(free) else None

    def _bounds(self, sequence: int) -> tuple[int, int | None]:
        low = max((known.row.last_event for n, known in self._present.items() if n < sequence), default=0)
        high = min((known.row.last_event for n, known in self._present.items() if n > sequence), default=None)
        return low, high
