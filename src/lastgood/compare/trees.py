"""What changed between two trees: which paths, in which way, and what was only moved.

Only directories that differ are read. How the content of a file changed is the matter of `text`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from lastgood.errors import IntegrityError
from lastgood.model.identity import digest
from lastgood.model.tree import (
    Entry,
    EntryCount,
    File,
    Folder,
    Left,
    Link,
    attributes_of,
    decode_chunks,
    differing_entries,
    one_by_one,
    open_differing,
)

Read = Callable[[bytes], bytes]
"""The verified bytes of a blob by its id; IntegrityError when it is missing or damaged."""

Kind = Literal["added", "modified", "deleted", "renamed", "mode", "type", "captured", "uncaptured"]

MOST_CANDIDATES = 256
"""Files on each side that are compared for similarity; beyond that only files with equal content count as renamed."""
MOST_BYTES = 8 << 20
"""Content that is read for it, in all."""
LEAST_SIMILARITY = 50
_COMMON = 8  # a line of more files than this says little about which of them was renamed
_MOST_HITS = 1_000_000  # shared lines that are counted: 250 files in families of 8 take 0.9 s, and 2.4 s without it
_CLOSEST = 4  # candidates that are looked at closely, for each new file


class TreeChange(NamedTuple):
    """A path that differs.

    A folder stands here only if its mode changed, if it takes the place of something else or makes place for it, or
    if it was added or deleted and holds nothing. `captured` and `uncaptured`: the path was there on both sides, and
    only one of them knows its content; a folder is then one change. `renamed` may come with other content, too:
    `similarity` is then less than 100 (percent).
    """

    path: bytes
    kind: Kind
    old: Entry | None = None
    new: Entry | None = None
    old_path: bytes | None = None
    similarity: int = 0


def compare_trees(
    old: bytes | None, new: bytes | None, read: Read, *, renames: bool = True, files: int | None = None
) -> list[TreeChange]:
    """Return what turns the tree `old` into the tree `new`, in the order of the paths; None is an empty tree.

    What lay in a folder that a file or link replaces is deleted before that. Without `renames` no content is read
    and a renamed file is one that was deleted and one that was added. `files`: how many both have, by their records;
    IntegrityError when there are more.
    """
    changes = list(_walk(old, new, read, EntryCount(files)))
    return _find_renames(changes, read) if renames else changes


def read_content(entry: File | Link, read: Read) -> bytes:
    """Read the bytes of a file, or where a link points."""
    if isinstance(entry, Link):
        return entry.target
    if entry.chunks is None:
        return read(entry.blob)
    data = b"".join(read(chunk.digest) for chunk in decode_chunks(read(entry.chunks), entry))
    if digest(data) != entry.digest:
        raise IntegrityError("the parts of a file do not make up its content", hint="restore another checkpoint")
    return data


class _Pair(NamedTuple):
    """A directory still to be compared. `whole`: the folder itself, where only one side has it."""

    path: bytes
    old: bytes | None
    new: bytes | None
    whole: TreeChange | None = None


def _walk(old: bytes | None, new: bytes | None, read: Read, count: EntryCount) -> Iterator[TreeChange]:
    todo: list[_Pair | TreeChange] = [_Pair(b"", old, new)]
    while todo:
        step = todo.pop()
        if isinstance(step, TreeChange):
            yield step
        elif step.old != step.new:
            olds, news = map(count.take, open_differing(step.old, step.new, one_by_one(read)))
            below = [part for one, other in differing_entries(olds, news) for part in _compare(step.path, one, other)]
            if step.whole and all(isinstance(entry, Left) for entry in (*olds, *news)):
                yield step.whole
            todo.extend(reversed(below))


def _compare(folder: bytes, old: Entry | None, new: Entry | None) -> list[_Pair | TreeChange]:
    entry = old or new
    assert entry is not None
    path = folder + b"/" + entry.name if folder else entry.name
    match old, new:
        case (Left() | None, Left() | None):
            return []
        case _, Left():
            return [TreeChange(path, "uncaptured", old, new)]
        case Left(), _:
            return [TreeChange(path, "captured", old, new)]
        case None, Folder():
            return [_Pair(path, None, new.tree, TreeChange(path, "added", None, new))]
        case Folder(), None:
            return [_Pair(path, old.tree, None, TreeChange(path, "deleted", old, None))]
        case None, _:
            return [TreeChange(path, "added", None, new)]
        case _, None:
            return [TreeChange(path, "deleted", old, None)]
        case _:
            return _compare_both(path, old, new)


def _compare_both(path: bytes, old: Entry, new: Entry) -> list[_Pair | TreeChange]:
    match old, new:
        case Folder(), Folder():
            below = _Pair(path, old.tree, new.tree)
            return [TreeChange(path, "mode", old, new), below] if old.mode != new.mode else [below]
        case File(), File():
            if old.digest != new.digest:
                return [TreeChange(path, "modified", old, new)]
            is_other = old.mode != new.mode or attributes_of(old) != attributes_of(new)
            return [TreeChange(path, "mode", old, new)] if is_other else []
        case Link(), Link():
            return [TreeChange(path, "modified", old, new)]
        case Folder(), _:
            return [_Pair(path, old.tree, None), TreeChange(path, "type", old, new)]
        case _, Folder():
            return [TreeChange(path, "type", old, new), _Pair(path, None, new.tree)]
    return [TreeChange(path, "type", old, new)]


def _find_renames(changes: list[TreeChange], read: Read) -> list[TreeChange]:
    gone = [change for change in changes if change.kind == "deleted" and _has_content(change.old)]
    come = [change for change in changes if change.kind == "added" and _has_content(change.new)]
    renamed = _same_content(gone, come)
    left = {change.path for change in gone} - {change.old_path for change in renamed.values()}
    gone = [change for change in gone if change.path in left]
    come = [change for change in come if change.path not in renamed]
    renamed |= _similar_content(gone, come, read)
    moved = {change.old_path for change in renamed.values()}
    return [
        renamed.get(change.path, change) if change.kind == "added" else change
        for change in changes
        if change.kind != "deleted" or change.path not in moved
    ]


def _has_content(entry: Entry | None) -> bool:
    """Return whether it can be recognized by its content: empty files are alike for no reason."""
    return isinstance(entry, Link) or (isinstance(entry, File) and entry.size > 0)


def _renamed(gone: TreeChange, come: TreeChange, similarity: int) -> TreeChange:
    return TreeChange(come.path, "renamed", gone.old, come.new, gone.path, similarity)


def _same_content(gone: Sequence[TreeChange], come: Sequence[TreeChange]) -> dict[bytes, TreeChange]:
    """Find files that only moved, by new path.

    Of several with the same content those with the same name belong together, then in order.
    """
    sources: dict[object, dict[bytes, TreeChange]] = defaultdict(dict)
    named: dict[object, list[TreeChange]] = defaultdict(list)
    for change in gone:
        sources[_identity(change.old)][change.path] = change
        named[_identity(change.old), _base(change.path)].append(change)
    renamed: dict[bytes, TreeChange] = {}
    for change in come:
        if namesakes := named.get((_identity(change.new), _base(change.path))):
            source = namesakes.pop(0)
            del sources[_identity(change.new)][source.path]
            renamed[change.path] = _renamed(source, change, 100)
    for change in come:
        if change.path not in renamed and (others := sources.get(_identity(change.new))):
            renamed[change.path] = _renamed(others.pop(next(iter(others))), change, 100)
    return renamed


def _identity(entry: Entry | None) -> object:
    return entry.digest if isinstance(entry, File) else ("link", entry.target) if isinstance(entry, Link) else None


def _base(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


def _similar_content(gone: Sequence[TreeChange], come: Sequence[TreeChange], read: Read) -> dict[bytes, TreeChange]:
    """Find text files that share at least half of their bytes in whole lines, the most similar first.

    Time grows with the content, not with the number of pairs: candidates are found by the lines that few files have,
    and only a few of them are compared.
    """
    if not gone or not come or len(gone) > MOST_CANDIDATES or len(come) > MOST_CANDIDATES:
        return {}
    room = MOST_BYTES
    lines: list[dict[int, Counter[bytes]]] = []
    for side in ([change.old for change in gone], [change.new for change in come]):
        lines.append({})
        for index, entry in enumerate(side):
            if isinstance(entry, File) and entry.chunks is None and entry.size <= room:
                room -= entry.size
                if (counted := _counted_lines(entry, read)) is not None:
                    lines[-1][index] = counted
    olds, news = lines
    scores = [
        (_similarity(olds[i], news[j]), j, i)
        for j, candidates in _candidates(gone, come, olds, news)
        for i in candidates
    ]
    renamed: dict[bytes, TreeChange] = {}
    taken = set()
    for score, j, i in sorted(scores, key=lambda scored: (-scored[0], *scored[1:])):
        if score >= LEAST_SIMILARITY and i not in taken and come[j].path not in renamed:
            taken.add(i)
            renamed[come[j].path] = _renamed(gone[i], come[j], score)
    return renamed


def _counted_lines(file: File, read: Read) -> Counter[bytes] | None:
    """Count the lines; None for what is not text, and for damaged content, which is no reason to fail."""
    try:
        data = read(file.blob)
    except IntegrityError:
        return None
    return None if is_binary(data) else Counter(data.split(b"\n"))


def is_binary(data: bytes) -> bool:
    """Decide as git does: by a NUL near the beginning."""
    return b"\0" in data[:8000]


def _candidates(
    gone: Sequence[TreeChange],
    come: Sequence[TreeChange],
    olds: dict[int, Counter[bytes]],
    news: dict[int, Counter[bytes]],
) -> Iterator[tuple[int, Iterable[int]]]:
    """Yield for each new file the old ones that have its name, and those that share most of its telling lines."""
    by_line: dict[bytes, list[int]] = defaultdict(list)
    by_name: dict[bytes, list[int]] = defaultdict(list)
    for i, counted in olds.items():
        by_name[_base(gone[i].path)].append(i)
        for line in counted:
            by_line[line].append(i)
    hits = 0
    for j, counted in news.items():
        shared: Counter[int] = Counter()
        for line in counted if hits < _MOST_HITS else ():
            owners = by_line.get(line, ())
            if len(owners) <= _COMMON:
                hits += len(owners)
                for i in owners:
                    shared[i] += len(line) + 1
        closest = [i for i, _ in shared.most_common(_CLOSEST)]
        yield j, dict.fromkeys(by_name[_base(come[j].path)][:_CLOSEST] + closest)


def _similarity(old: Counter[bytes], new: Counter[bytes]) -> int:
    """Return how much of the larger one both share, in percent; never 100, which is for what is the same."""
    if len(new) < len(old):
        old, new = new, old
    shared = sum((len(line) + 1) * min(count, new[line]) for line, count in old.items() if line in new)
    return min(99, shared * 100 // max(_weight(old), _weight(new)))


def _weight(lines: Counter[bytes]) -> int:
    return sum((len(line) + 1) * count for line, count in lines.items())
