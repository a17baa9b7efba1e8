"""Two texts line by line: which of their lines belong together, as the hunks of a unified diff and in numbers.

It takes bounded time. Lines that both texts have exactly once are anchors, and what lies between is searched until a
budget is spent. Beyond it fewer lines find a partner, and those that do are right.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

CONTEXT = 3
MOST_LINES = 1_000_000
"""Lines of both sides that are aligned; more are replaced whole."""
EFFORT = 1_500_000
"""Comparisons of lines for one file: about a second."""
_FARTHEST = 256  # edits that are searched through before the best way so far is taken


class LineCounts(NamedTuple):
    """The number of lines that a diff adds and removes."""

    added: int
    removed: int


class Aligned:
    """An alignment of two texts. `lines` is how many lines their diff adds and removes."""

    def __init__(self, old: bytes, new: bytes) -> None:
        start, rest = _find_window(old, new)
        self._first = old.count(b"\n", 0, start)
        self._old, self._new = old[start : len(old) - rest], new[start : len(new) - rest]
        self._sizes = line_count(self._old), line_count(self._new)
        self._matches: list[tuple[int, int, int]] = []
        if self._old and self._new and sum(self._sizes) <= MOST_LINES:
            self._olds, self._news = _split(self._old), _split(self._new)
            self._matches = match_lines(self._olds, self._news)
        common = sum(count for _, _, count in self._matches)
        self.lines = LineCounts(self._sizes[1] - common, self._sizes[0] - common)

    def hunks(self) -> Iterator[bytes]:
        """Yield the hunks of the unified diff, in pieces."""
        if self._matches:
            for edits in _group(self._matches, *self._sizes):
                yield from self._hunk(edits)
        elif self._old or self._new:
            yield self._header(0, self._sizes[0], 0, self._sizes[1])
            yield _signed(b"-", self._old)
            yield _signed(b"+", self._new)

    def _hunk(self, edits: Sequence[_Edit]) -> Iterator[bytes]:
        lead = min(CONTEXT, edits[0].i)
        i, j = edits[0].i - lead, edits[0].j - lead
        trail = min(CONTEXT, self._sizes[0] - edits[-1].k)
        yield self._header(i, edits[-1].k + trail, j, edits[-1].m + trail)
        for edit in edits:
            yield _signed(b" ", b"".join(self._olds[i : edit.i]))
            yield _signed(b"-", b"".join(self._olds[edit.i : edit.k]))
            yield _signed(b"+", b"".join(self._news[edit.j : edit.m]))
            i = edit.k
        yield _signed(b" ", b"".join(self._olds[i : i + trail]))

    def _header(self, i: int, k: int, j: int, m: int) -> bytes:
        return b"@@ -%s +%s @@\n" % (self._range(i, k), self._range(j, m))

    def _range(self, start: int, end: int) -> bytes:
        """Return a range for a header: lines count from 1, and an empty range names the line before it."""
        first = self._first + start + (end > start)
        return b"%d" % first if end - start == 1 else b"%d,%d" % (first, end - start)


def _signed(sign: bytes, data: bytes) -> bytes:
    """Return the lines with a sign before each, and git's note after a last line without an end."""
    if not data:
        return b""
    body = data.replace(b"\n", b"\n" + sign)
    if data.endswith(b"\n"):
        return b"".join((sign, memoryview(body)[:-1]))
    return b"".join((sign, body, b"\n\\ No newline at end of file\n"))


def _split(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def line_count(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")


class _Edit(NamedTuple):
    """An edit: lines i to k of the old side become lines j to m of the new one."""

    i: int
    k: int
    j: int
    m: int


def _group(matches: Iterable[tuple[int, int, int]], olds: int, news: int) -> Iterator[list[_Edit]]:
    """Yield the edits between the matches; those whose context would touch stand in one list."""
    group: list[_Edit] = []
    i = j = 0
    for start, other, count in (*matches, (olds, news, 0)):
        if start > i or other > j:
            if group and i - group[-1].k > 2 * CONTEXT:
                yield group
                group = []
            group.append(_Edit(i, start, j, other))
        i, j = start + count, other + count
    if group:
        yield group


def _find_window(old: bytes, new: bytes) -> tuple[int, int]:
    """Return how many bytes of whole lines both begin and end with, less the context that is shown around a change.

    Splitting and aligning then cost what changed: one line of 100,000 is found in under a millisecond.
    """
    start = old.rfind(b"\n", 0, _common(old, new, min(len(old), len(new)))) + 1
    rest = _common(old, new, min(len(old), len(new)) - start, backwards=True)
    for _ in range(CONTEXT + 1):
        newline = old.find(b"\n", len(old) - rest)
        rest = len(old) - newline - 1 if newline >= 0 and rest else 0
    for _ in range(CONTEXT):
        start = old.rfind(b"\n", 0, max(start - 1, 0)) + 1
    return start, rest


def _common(old: bytes, new: bytes, most: int, *, backwards: bool = False) -> int:
    """Return how many bytes, up to `most`, are equal at the beginning (or at the end)."""

    def equal(low: int, high: int) -> bool:
        if backwards:
            return old[len(old) - high : len(old) - low] == new[len(new) - high : len(new) - low]
        return old[low:high] == new[low:high]

    low, step = 0, 1 << 16
    while low < most and equal(low, min(low + step, most)):
        low += step
    low, high = min(low, most), min(low + step, most)
    while low < high:
        middle = (low + high + 1) // 2
        if equal(low, middle):
            low = middle
        else:
            high = middle - 1
    return low


def match_lines(olds: Sequence[bytes], news: Sequence[bytes]) -> list[tuple[int, int, int]]:
    """Return runs of equal lines, in order on both sides: where on the old, where on the new, how many."""
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
    """A search with bounded effort for partners, on side `b`, of the elements of side `a`; pairs never cross."""

    def __init__(self, a: list[int], b: list[int]) -> None:
        self._a, self._b = a, b
        self._partner = [-1] * len(a)
        self._effort = EFFORT

    def partners(self) -> list[int]:
        """Return for each element the index of its partner, -1 for none."""
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
        """Find the longest row of elements that stand once on both sides, and in the same order."""
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
        """Match what has no anchors: the shortest way through as far as it can be seen, then on from there."""
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
        """Search greedily, as Myers does, from (left, top). Return, after each number of edits, how far each diagonal
        (x - y) got; and the farthest point."""
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
    """Return where a diagonal is entered: down from the one above or right from the one below, which is farther."""
    if diagonal == -edits or (diagonal != edits and ends[diagonal - 1] < ends[diagonal + 1]):
        return ends[diagonal + 1]
    return ends[diagonal - 1] + 1


def _walk_back(trace: list[dict[int, int]], x: int, y: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs on the way to (x, y), last first."""
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
