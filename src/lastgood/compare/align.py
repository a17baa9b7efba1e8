"""Which lines of two texts belong together, found in bounded time.

Lines that both have exactly once are anchors, and what lies between is searched until a budget is spent. Beyond it
fewer lines find a partner, and those that do are right.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

EFFORT = 1_500_000
"""Comparisons of lines for one file: about a second."""
_FARTHEST = 256  # edits that are searched through before the best way so far is taken


def match_lines(olds: Sequence[bytes], news: Sequence[bytes]) -> list[tuple[int, int, int]]:
    """Runs of equal lines, in order on both sides: where on the old, where on the new, how many."""
    numbers: dict[bytes, int] = {}
    a, b = ([numbers.setdefault(line, len(numbers)) for line in lines] for lines in (olds, news))
    runs: list[tuple[int, int, int]] = []
    start = other = count = 0
    for i, j in enumerate(_Search(a, b).partners()):
        if j < 0:
            continue
        if count and i == start + count and j == other + count:
            count += 1
            continue
        if count:
            runs.append((start, other, count))
        start, other, count = i, j, 1
    return [*runs, (start, other, count)] if count else runs


_Region = tuple[int, int, int, int]


class _Search:
    """Finds a partner on side `b` for elements of side `a`, never crossing, with bounded effort."""

    def __init__(self, a: list[int], b: list[int]) -> None:
        self._a, self._b = a, b
        self._partner = [-1] * len(a)
        self._effort = EFFORT

    def partners(self) -> list[int]:
        """For each element the index of its partner, -1 for none."""
        todo = [(0, len(self._a), 0, len(self._b))]
        while todo:
            region = i, k, j, m = self._trim(*todo.pop())
            if i == k or j == m:
                continue
            self._effort -= k - i + m - j
            if self._effort < 0:
                continue
            if anchors := self._anchors(region):
                corners = [(i - 1, j - 1), *anchors, (k, m)]
                gaps = ((p + 1, r, q + 1, s) for (p, q), (r, s) in pairwise(corners) if r - p > 1 and s - q > 1)
                todo.extend(reversed(list(gaps)))
                for p, q in anchors:
                    self._partner[p] = q
            else:
                self._creep(region)
        return self._partner

    def _trim(self, i: int, k: int, j: int, m: int) -> _Region:
        a, b = self._a, self._b
        while i < k and j < m and a[i] == b[j]:
            self._partner[i] = j
            i, j = i + 1, j + 1
        while i < k and j < m and a[k - 1] == b[m - 1]:
            k, m = k - 1, m - 1
            self._partner[k] = m
        return i, k, j, m

    def _anchors(self, region: _Region) -> list[tuple[int, int]]:
        """The longest row of elements that stand once on both sides, and in the same order."""
        i, k, j, m = region
        olds, news = Counter(self._a[i:k]), Counter(self._b[j:m])
        places = {element: j + offset for offset, element in enumerate(self._b[j:m])}
        once = [
            (i + offset, places[element])
            for offset, element in enumerate(self._a[i:k])
            if olds[element] == 1 and news.get(element) == 1
        ]
        ends: list[int] = []  # the smallest place at which a row of each length can end
        last: list[int] = []  # and which of `once` stands there
        before: list[int] = []
        for index, (_, place) in enumerate(once):
            length = bisect_left(ends, place)
            before.append(last[length - 1] if length else -1)
            ends[length : length + 1] = [place]
            last[length : length + 1] = [index]
        row = []
        index = last[-1] if last else -1
        while index >= 0:
            row.append(once[index])
            index = before[index]
        return row[::-1]

    def _creep(self, region: _Region) -> None:
        """For where nothing stands once: the shortest way through as far as it can be seen, then on from there."""
        i, k, j, m = region
        old_kinds, new_kinds = set(self._a[i:k]), set(self._b[j:m])
        olds = [p for p in range(i, k) if self._a[p] in new_kinds]
        news = [q for q in range(j, m) if self._b[q] in old_kinds]
        a, b = [self._a[p] for p in olds], [self._b[q] for q in news]
        x = y = 0
        reach = min(_FARTHEST, max(4, 2 * self._effort // (len(a) + len(b) + 1)))
        while x < len(a) and y < len(b) and self._effort > 0:
            trace, far, away = self._look_ahead(a, b, x, y, reach)
            for p, q in _walk_back(trace, far, away):
                self._partner[olds[x + p]] = news[y + q]
            x, y = x + far, y + away

    def _look_ahead(
        self, a: list[int], b: list[int], left: int, top: int, reach: int
    ) -> tuple[list[dict[int, int]], int, int]:
        """Myers' greedy search from (left, top): after each number of edits, how far each diagonal (x - y) got; and
        the farthest point."""
        wide, high = len(a) - left, len(b) - top
        ends = {1: 0}
        trace: list[dict[int, int]] = []
        for edits in range(reach + 1):
            trace.append(dict(ends))
            for diagonal in range(-edits, edits + 1, 2):
                x = start = _step(ends, diagonal, edits)
                y = x - diagonal
                while x < wide and y < high and a[left + x] == b[top + y]:
                    x, y = x + 1, y + 1
                ends[diagonal] = x
                self._effort -= x - start + 1
                if x >= wide and y >= high:
                    return trace, wide, high
            if self._effort < 0:
                break
        points = ((ends[diagonal], ends[diagonal] - diagonal) for diagonal in range(-edits, edits + 1, 2))
        x, y = max((point for point in points if point[0] <= wide and point[1] <= high), key=sum)
        return trace, x, y


def _step(ends: dict[int, int], diagonal: int, edits: int) -> int:
    """Where a diagonal is entered: down from the one above, or right from the one below, whichever is farther."""
    if diagonal == -edits or (diagonal != edits and ends[diagonal - 1] < ends[diagonal + 1]):
        return ends[diagonal + 1]
    return ends[diagonal - 1] + 1


def _walk_back(trace: list[dict[int, int]], x: int, y: int) -> Iterator[tuple[int, int]]:
    """The pairs on the way to (x, y), last first."""
    for edits in range(len(trace) - 1, -1, -1):
        diagonal = x - y
        entered = _step(trace[edits], diagonal, edits)
        while x > entered:
            x, y = x - 1, y - 1
            yield x, y
        if diagonal == -edits or (diagonal != edits and trace[edits][diagonal - 1] < trace[edits][diagonal + 1]):
            y -= 1
        else:
            x -= 1
