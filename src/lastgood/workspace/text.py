"""The unified diff of changed files, as `git apply` and `patch -p1` take it, on bytes.

The lines of two files are aligned in bounded time: what is equal at both ends is cut off, lines that both have exactly
once are anchors, and what lies between is searched until a budget is spent. Beyond it the diff gets coarser (more is
removed and added than need be) and stays right.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha1
from itertools import pairwise
from typing import NamedTuple

from lastgood.errors import IntegrityError
from lastgood.model.tree import Entry, File, Folder, Link
from lastgood.workspace.changes import Change, Read, is_binary, read_content

CONTEXT = 3
LARGEST_TEXT = 128 << 20
"""A larger file is not read; the diff says that it differs."""
MOST_LINES = 1_000_000
"""Lines of both sides that are aligned; more are replaced whole."""
EFFORT = 1_500_000
"""Comparisons of lines for one file: about a second."""
_FARTHEST = 256  # edits that are searched through before the best way so far is taken


class Lines(NamedTuple):
    added: int
    removed: int


class Unified(NamedTuple):
    """`left_out`: how many of the changes are not, or not wholly, in `text`."""

    text: bytes
    left_out: int


def unified(changes: Sequence[Change], read: Read, *, max_bytes: int | None = None) -> Unified:
    """The whole diff. One longer than `max_bytes` is cut at the end of a line, and a last line says so.

    That line begins like a hunk, so that git refuses to apply what is not whole.
    """
    parts: list[bytes] = []
    size = 0
    for index, change in enumerate(changes):
        parts.append(section(change, read))
        size += len(parts[-1])
        if max_bytes is not None and size > max_bytes:
            parts[-1] = parts[-1][: parts[-1].rfind(b"\n", 0, max_bytes - size + len(parts[-1])) + 1]
            counts = max_bytes, len(changes) - index, len(changes)
            parts.append(b"@@ -1 +1 @@ *** cut at %d bytes: %d of %d changes are not wholly shown\n" % counts)
            return Unified(b"".join(parts), len(changes) - index)
    return Unified(b"".join(parts), 0)


def section(change: Change, read: Read) -> bytes:
    """The diff of one change; IntegrityError when its content cannot be had.

    What no patch can say (an empty folder, a folder's mode, what only one side captured) is one line that both
    programs pass over.
    """
    old, new = _files(change)
    if change.kind in ("captured", "uncaptured"):
        word = b"captured now" if change.kind == "captured" else b"no longer captured"
        return b"Not compared: %s is %s\n" % (quoted(change.path), word)
    if old is None and new is None:
        return _folder_line(change)
    if change.kind == "type":
        gone = _file_section(change, old, None, read) if old else b""
        return gone + (_file_section(change, None, new, read) if new else b"")
    return _file_section(change, old, new, read)


def count_lines(change: Change, read: Read) -> Lines | None:
    """How many lines the diff adds and removes, without making it. None where no text would be compared."""
    old, new = _files(change)
    if change.kind in ("captured", "uncaptured") or (old is None and new is None) or _is_large(old, new):
        return None
    if _has_same_content(old, new):
        return Lines(0, 0)
    before, after = _read_side(change, old, read), _read_side(change, new, read)
    if is_binary(before) or is_binary(after):
        return None
    return Lines(_count(after), _count(before)) if change.kind == "type" else _Aligned(before, after).lines


def quoted(name: bytes) -> bytes:
    """A path as git writes it in a diff, in C's quotes where it would be misread. One with a space is quoted, too:
    `patch` takes no other in the lines that have no content after them."""
    try:
        plain = name.decode().isprintable()
    except UnicodeDecodeError:
        plain = False
    if plain and not any(character in name for character in b' "\\'):
        return name
    return b'"%s"' % b"".join(_ESCAPES[byte] for byte in name)


_ESCAPES = [bytes([byte]) if 32 <= byte < 127 else b"\\%03o" % byte for byte in range(256)]
for _byte, _letter in zip(b'\a\b\t\n\v\f\r"\\', b'abtnvfr"\\', strict=True):
    _ESCAPES[_byte] = b"\\" + bytes([_letter])


def _folder_line(change: Change) -> bytes:
    name = quoted(change.path)
    if isinstance(change.old, Folder) and isinstance(change.new, Folder):
        return b"Folder %s: mode %04o became %04o\n" % (name, change.old.mode, change.new.mode)
    return b"Empty folder %s was %s\n" % (name, change.kind.encode())


def _files(change: Change) -> tuple[File | Link | None, File | Link | None]:
    old = change.old if isinstance(change.old, File | Link) else None
    return old, change.new if isinstance(change.new, File | Link) else None


def _file_section(change: Change, old: File | Link | None, new: File | Link | None, read: Read) -> bytes:
    old_path = change.path if change.old_path is None else change.old_path
    a, b = quoted(b"a/" + old_path), quoted(b"b/" + change.path)
    head = [b"diff --git %s %s\n" % (a, b), *_mode_lines(old, new)]
    if change.kind == "renamed":
        head.append(b"similarity index %d%%\n" % change.similarity)
        head.append(b"rename from %s\nrename to %s\n" % (quoted(old_path), quoted(change.path)))
    if _has_same_content(old, new):
        if isinstance(old, Link) and isinstance(new, Link):
            head.append(_index_line(old, new, old.target, new.target))
        return b"".join(head)
    a, b = a if old else b"/dev/null", b if new else b"/dev/null"
    if _is_large(old, new):
        return b"".join([*head, b"Files %s and %s differ\n" % (a, b)])
    before, after = _read_side(change, old, read), _read_side(change, new, read)
    head.append(_index_line(old, new, before, after))
    if is_binary(before) or is_binary(after):
        return b"".join([*head, b"Binary files %s and %s differ\n" % (a, b)])
    if before or after:
        head.append(b"--- %s\n+++ %s\n" % (a, b))
    return b"".join([*head, *_Aligned(before, after).hunks()])


def _read_side(change: Change, entry: File | Link | None, read: Read) -> bytes:
    if entry is None:
        return b""
    try:
        return read_content(entry, read)
    except IntegrityError as error:
        name = quoted(change.path).decode()
        raise IntegrityError(f"{name} cannot be compared: {error}", hint=error.hint, **error.details) from error


def _is_large(*entries: Entry | None) -> bool:
    return any(isinstance(entry, File) and entry.size > LARGEST_TEXT for entry in entries)


def _has_same_content(old: Entry | None, new: Entry | None) -> bool:
    if isinstance(old, File) and isinstance(new, File):
        return old.digest == new.digest
    return isinstance(old, Link) and isinstance(new, Link) and old.target == new.target


def _mode_lines(old: File | Link | None, new: File | Link | None) -> list[bytes]:
    """In git's words where git has some; a change between modes that are one to git, with all digits."""
    if old is None:
        return [b"new file mode %o\n" % _git_mode(new)]
    if new is None:
        return [b"deleted file mode %o\n" % _git_mode(old)]
    modes = _git_mode(old), _git_mode(new)
    if modes[0] == modes[1] and isinstance(old, File) and isinstance(new, File):
        modes = 0o100000 | old.mode, 0o100000 | new.mode
    return [b"old mode %o\nnew mode %o\n" % modes] if modes[0] != modes[1] else []


def _git_mode(entry: Entry | None) -> int:
    if isinstance(entry, Link):
        return 0o120000
    return 0o100755 if isinstance(entry, File) and entry.mode & 0o100 else 0o100644


def _index_line(old: File | Link | None, new: File | Link | None, before: bytes, after: bytes) -> bytes:
    """With git's own ids, in full: `git apply` finds binary content and three-way bases by them, and `patch` learns
    from them that a file is empty or a link."""
    ids = (_git_id(data) if entry else b"0" * 40 for entry, data in ((old, before), (new, after)))
    mode = b" %o" % _git_mode(old) if old and new and _git_mode(old) == _git_mode(new) else b""
    return b"index %s..%s%s\n" % (*ids, mode)


def _git_id(data: bytes) -> bytes:
    hashed = sha1(b"blob %d\0" % len(data), usedforsecurity=False)
    hashed.update(data)
    return hashed.hexdigest().encode()


class _Aligned:
    """Two texts, and which of their lines belong together. `lines` is the result in numbers."""

    def __init__(self, old: bytes, new: bytes) -> None:
        start, rest = _find_window(old, new)
        self._first = old.count(b"\n", 0, start)
        self._old, self._new = old[start : len(old) - rest], new[start : len(new) - rest]
        self._sizes = _count(self._old), _count(self._new)
        self._matches: list[tuple[int, int, int]] = []
        if self._old and self._new and sum(self._sizes) <= MOST_LINES:
            self._olds, self._news = _split(self._old), _split(self._new)
            self._matches = _match(self._olds, self._news)
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


def _count(data: bytes) -> int:
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


def _match(olds: Sequence[bytes], news: Sequence[bytes]) -> list[tuple[int, int, int]]:
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
