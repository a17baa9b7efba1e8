"""What changed, for people: a line for each path, and one paragraph for all of it."""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import commonpath, dirname
from typing import Literal, NamedTuple

from lastgood.compare.lines import LineCounts
from lastgood.compare.text import count_lines, quoted
from lastgood.compare.trees import Kind, Read, TreeChange
from lastgood.model.tree import Entry, File, Folder

MOST_READ = 64 << 20
"""Content that is read to count lines, in all; a change that would need more is not counted."""
_LONGEST_PATH = 80

Note = Literal["", "binary", "not counted"]


class Stat(NamedTuple):
    """A changed path, fit to be printed. `lines` is None where there are none; `note` says why if it was a file."""

    path: str
    kind: Kind
    lines: LineCounts | None
    note: Note = ""
    old_path: str | None = None
    is_folder: bool = False


def count_changes(changes: Sequence[TreeChange], read: Read, *, max_read: int = MOST_READ) -> list[Stat]:
    """Count the lines that each change adds and removes, in the order given."""
    stats = []
    for change in changes:
        size = _size_to_read(change)
        lines = None
        note: Note = "not counted"
        if size <= max_read:
            max_read -= size
            lines = count_lines(change, read)
            note = "binary" if size and lines is None else ""
        old_path = None if change.old_path is None else path_text(change.old_path)
        is_folder = isinstance(change.new, Folder) or (change.new is None and isinstance(change.old, Folder))
        stats.append(Stat(path_text(change.path), change.kind, lines, note, old_path, is_folder))
    return stats


def stat_line(stat: Stat) -> str:
    """Return a line such as `src/lexer.py +100 -2`; a path without lines is followed by what happened to it."""
    name = f"{stat.old_path} => {stat.path}" if stat.old_path is not None else stat.path
    if stat.is_folder:
        name += "/"
    words = [f"+{stat.lines.added} -{stat.lines.removed}"] if stat.lines and any(stat.lines) else []
    words += [stat.note] if stat.note else []
    if not words or stat.kind not in ("modified", "renamed"):
        words.append(f"({_WORDS[stat.kind]})")
    return " ".join([name, *words])


def summarize(stats: Sequence[Stat]) -> str:
    """Return one paragraph: how many paths, of which kinds and where; how many lines; the largest change."""
    if not stats:
        return "Nothing changed."
    groups = []
    for is_folder, noun in ((False, "file"), (True, "folder")):
        named = False
        for kind, word in _WORDS.items():
            if group := [stat for stat in stats if stat.kind == kind and stat.is_folder == is_folder]:
                count = f"{len(group):,}"
                if not named:
                    count += f" {noun}" if len(group) == 1 else f" {noun}s"
                named = True
                groups.append(f"{count} {word}{_where(group)}")
    return "; ".join([", ".join(groups), *_lines_part(stats), *_largest_part(stats)]) + "."


def path_text(path: bytes) -> str:
    """Return a path as people read it; quoted as in a diff where it holds what cannot be printed."""
    try:
        text = path.decode()
    except UnicodeDecodeError:
        text = ""
    return text if text.isprintable() and text else quoted(path).decode()


_WORDS: dict[Kind, str] = {
    "modified": "changed",
    "added": "added",
    "deleted": "deleted",
    "renamed": "renamed",
    "mode": "with another mode",
    "type": "of another kind",
    "captured": "captured now",
    "uncaptured": "no longer captured",
}


def _size_to_read(change: TreeChange) -> int:
    if change.kind in ("mode", "captured", "uncaptured") or change.similarity == 100:
        return 0
    return _size(change.old) + _size(change.new)


def _size(entry: Entry | None) -> int:
    return entry.size if isinstance(entry, File) else 0


def _where(group: Sequence[Stat]) -> str:
    if len(group) == 1:
        old = f"{_shortened(group[0].old_path)} to " if group[0].old_path is not None else ""
        return f" ({old}{_shortened(group[0].path)})"
    if any(stat.path.startswith('"') for stat in group):
        return ""
    folder = commonpath([dirname(stat.path) for stat in group])
    return f" in {_shortened(folder)}" if folder else ""


def _lines_part(stats: Sequence[Stat]) -> list[str]:
    counted = [stat.lines for stat in stats if stat.lines]
    added, removed = sum(lines.added for lines in counted), sum(lines.removed for lines in counted)
    least = "at least " if any(stat.note == "not counted" for stat in stats) else ""
    words = [f"{least}{added:,} {'line' if added == 1 else 'lines'} added"] if added else []
    if removed:
        words.append(
            f"{removed:,} removed" if words else f"{least}{removed:,} {'line' if removed == 1 else 'lines'} removed"
        )
    return [", ".join(words)] if words else []


def _largest_part(stats: Sequence[Stat]) -> list[str]:
    counted = [stat for stat in stats if stat.lines and any(stat.lines)]
    if len(counted) < 2:
        return []
    largest = max(counted, key=lambda stat: sum(stat.lines or ()))
    assert largest.lines is not None
    return [f"the largest change is {_shortened(largest.path)} (+{largest.lines.added:,} -{largest.lines.removed:,})"]


def _shortened(path: str) -> str:
    half = _LONGEST_PATH // 2
    return path if len(path) <= _LONGEST_PATH else f"{path[: half - 1]}…{path[-half:]}"
