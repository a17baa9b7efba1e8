"""Changes as text: the unified diff, as `git apply` and `patch -p1` take it, on bytes; and, for people, a line for each
path and one paragraph for all of them.

The diff is made in bounded time: beyond that it gets coarser (more is removed and added than need be) and stays right.
Which lines belong together is the matter of `lines`.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from posixpath import commonpath, dirname
from typing import Literal, NamedTuple

from lastgood.compare.lines import Aligned, LineCounts, line_count
from lastgood.compare.trees import Kind, Read, TreeChange, is_binary, read_content
from lastgood.errors import IntegrityError
from lastgood.model.tree import Entry, File, Folder, Link

LARGEST_TEXT = 128 << 20
"""A larger file is not read; the diff says that it differs."""


def unified(changes: Sequence[TreeChange], read: Read, *, max_bytes: int | None = None) -> bytes:
    """Return the whole diff. One longer than `max_bytes` is cut at the end of a line, and a last line says so.

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
            break
    return b"".join(parts)


def section(change: TreeChange, read: Read) -> bytes:
    """Return the diff of one change; IntegrityError when its content cannot be had.

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


def count_lines(change: TreeChange, read: Read) -> LineCounts | None:
    """Count the lines that the diff adds and removes, without making it. None where no text would be compared."""
    old, new = _files(change)
    if change.kind in ("captured", "uncaptured") or (old is None and new is None) or _is_large(old, new):
        return None
    if _has_same_content(old, new):
        return LineCounts(0, 0)
    before, after = _read_side(change, old, read), _read_side(change, new, read)
    if is_binary(before) or is_binary(after):
        return None
    return LineCounts(line_count(after), line_count(before)) if change.kind == "type" else Aligned(before, after).lines


def quoted(name: bytes) -> bytes:
    """Return a path as git writes it in a diff, in C's quotes where it would be misread.

    One with a space is quoted, too: `patch` takes no other in the lines that have no content after them.
    """
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


def _folder_line(change: TreeChange) -> bytes:
    name = quoted(change.path)
    if isinstance(change.old, Folder) and isinstance(change.new, Folder):
        return b"Folder %s: mode %04o became %04o\n" % (name, change.old.mode, change.new.mode)
    return b"Empty folder %s was %s\n" % (name, change.kind.encode())


def _files(change: TreeChange) -> tuple[File | Link | None, File | Link | None]:
    old = change.old if isinstance(change.old, File | Link) else None
    return old, change.new if isinstance(change.new, File | Link) else None


def _file_section(change: TreeChange, old: File | Link | None, new: File | Link | None, read: Read) -> bytes:
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
    return b"".join([*head, *Aligned(before, after).hunks()])


def _read_side(change: TreeChange, entry: File | Link | None, read: Read) -> bytes:
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
    """Return modes in git's words where it has some; a change between modes that are one to git, with all digits."""
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
    """Return the line with git's own ids, in full.

    `git apply` finds binary content and three-way bases by them, `patch` learns that a file is empty or a link.
    """
    ids = (_git_id(data) if entry else b"0" * 40 for entry, data in ((old, before), (new, after)))
    mode = b" %o" % _git_mode(old) if old and new and _git_mode(old) == _git_mode(new) else b""
    return b"index %s..%s%s\n" % (*ids, mode)


def _git_id(data: bytes) -> bytes:
    hashed = sha1(b"blob %d\0" % len(data), usedforsecurity=False)
    hashed.update(data)
    return hashed.hexdigest().encode()


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
    size: int = 0
    """Of the file, in bytes; of one that is gone, as it was."""


def count_changes(changes: Sequence[TreeChange], read: Read) -> list[Stat]:
    """Count the lines that each change adds and removes, in the order given."""
    stats, max_read = [], MOST_READ
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
        size = next((one.size for one in (change.new, change.old) if isinstance(one, File)), 0)
        stats.append(Stat(path_text(change.path), change.kind, lines, note, old_path, is_folder, size))
    return stats


def stat_line(stat: Stat) -> str:
    """Return a line such as `src/lexer.py +100 -2`; a path without lines is followed by what happened to it."""
    name = f"{stat.old_path} => {stat.path}" if stat.old_path is not None else stat.path
    if stat.is_folder:
        name += "/"
    words = [f"+{stat.lines.added} -{stat.lines.removed}"] if stat.lines and any(stat.lines) else []
    if stat.note:
        size = f"{stat.size / 2**20:.1f} MiB" if stat.size >= 2**20 else f"{stat.size:,} bytes"
        return f"{name}  {'large' if stat.note == 'not counted' else stat.note}, {_WORDS[stat.kind]} ({size})"
    if not words or stat.kind not in ("modified", "renamed"):
        words.append(f"({_WORDS[stat.kind]})")
    return " ".join([name, *words])


def summarize(stats: Sequence[Stat]) -> str:
    """Return one paragraph: how many paths, of which kinds and where; how many lines; the largest change."""
    if not stats:
        return "No file changed."
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
