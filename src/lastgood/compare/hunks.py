"""Two texts side by side: which of their lines belong together, as the hunks of a unified diff and in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from lastgood.compare.align import match_lines

CONTEXT = 3
MOST_LINES = 1_000_000
"""Lines of both sides that are aligned; more are replaced whole."""


class Lines(NamedTuple):
    added: int
    removed: int


class Aligned:
    """Two texts, and which of their lines belong together. `lines` is the result in numbers."""

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
        self.lines = Lines(self._sizes[1] - common, self._sizes[0] - common)

    def hunks(self) -> Iterator[bytes]:
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
        """Lines count from 1; a range of none names the line before it."""
        first = self._first + start + (end > start)
        return b"%d" % first if end - start == 1 else b"%d,%d" % (first, end - start)


def _signed(sign: bytes, data: bytes) -> bytes:
    """Lines with a sign before each; git and patch want to be told of a last line that does not end."""
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
    """Lines i to k of the old side become lines j to m of the new one."""

    i: int
    k: int
    j: int
    m: int


def _group(matches: Iterable[tuple[int, int, int]], olds: int, news: int) -> Iterator[list[_Edit]]:
    """The edits between the matches; those whose context would touch belong together."""
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
    """How many bytes of whole lines both begin with, and end with, less the context that is shown around a change.

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
    """How many bytes, up to `most`, are equal at the beginning (or at the end)."""

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
