"""Who has how much of a graph: what each brought, what each reaches, and what it has alone.

Pure arithmetic. A step is one edge of the graph gone along.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

Below = Sequence[tuple[int, ...]]
NOBODY = -1


class Amount(NamedTuple):
    """Bytes as they are stored, and before compression."""

    stored: int
    content: int


def added(below: Below, stored: Sequence[int], nodes: Iterable[int]) -> list[int]:
    """The bytes that each of `nodes` is the first to reach. Goes along every edge once."""
    seen = bytearray(len(below))
    found = []
    for node in nodes:
        total = 0
        waiting = [node]
        while waiting:
            one = waiting.pop()
            if not seen[one]:
                seen[one] = 1
                total += stored[one]
                waiting += below[one]
        found.append(total)
    return found


def reached(
    below: Below, stored: Sequence[int], content: Sequence[int], groups: Iterable[Sequence[int]]
) -> list[Amount]:
    """All that the nodes of each group reach together, everything once.

    Counts for each node how many of those that are reached lead to it, and from one group to the next changes only
    what differs: neighbours that have much in common cost little.
    """
    count = [0] * len(below)
    total_stored = total_content = 0
    found = []
    before: Sequence[int] = ()
    for group in groups:
        waiting = list(group)
        while waiting:
            node = waiting.pop()
            count[node] += 1
            if count[node] == 1:
                total_stored += stored[node]
                total_content += content[node]
                waiting += below[node]
        waiting = list(before)
        while waiting:
            node = waiting.pop()
            count[node] -= 1
            if count[node] == 0:
                total_stored -= stored[node]
                total_content -= content[node]
                waiting += below[node]
        found.append(Amount(total_stored, total_content))
        before = group
    return found


class Circles:
    """Circles within circles: each lies in the one `above` it, all of them in the outermost, 0."""

    def __init__(self) -> None:
        self.above = [NOBODY]
        self._depth = [0]

    def add(self, above: int) -> int:
        self.above.append(above)
        self._depth.append(self._depth[above] + 1)
        return len(self.above) - 1

    def around(self, one: int, other: int) -> int:
        """The smallest circle that both lie in."""
        while one != other:
            if self._depth[one] >= self._depth[other]:
                one = self.above[one]
            else:
                other = self.above[other]
        return one


def alone(below: Below, stored: Sequence[int], circles: Circles, nodes: Iterable[tuple[int, int]]) -> list[int]:
    """The bytes that nobody outside of each circle reaches. `nodes` are pairs: a node, and the circle it stands in.

    Each node of the graph belongs to the smallest circle around all who reach it. As they become known that circle
    only grows, at most as often as circles lie in each other, and an edge is gone along so often and no more.
    """
    belongs = [NOBODY] * len(below)
    for start, circle in nodes:
        waiting = [(start, circle)]
        while waiting:
            node, reacher = waiting.pop()
            now = belongs[node]
            if now == reacher:
                continue
            wider = reacher if now == NOBODY else circles.around(now, reacher)
            if wider != now:
                belongs[node] = wider
                waiting += [(each, wider) for each in below[node]]
    bytes_of = [0] * len(circles.above)
    for node, circle in enumerate(belongs):
        if circle != NOBODY:
            bytes_of[circle] += stored[node]
    for circle in range(len(bytes_of) - 1, 0, -1):  # a circle is always added after the one above it
        bytes_of[circles.above[circle]] += bytes_of[circle]
    return bytes_of
