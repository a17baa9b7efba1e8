"""The files of checkpoints, looked at: listed, read, compared with each other and with the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from lastgood.engine.blobs import FileBlobs
from lastgood.errors import NotFoundError
from lastgood.files.selection import locate, select, split_exact
from lastgood.model.checkpoint import FileRoot
from lastgood.model.digest import to_text
from lastgood.model.tree import Entry, File, Folder, Left, Link

if TYPE_CHECKING:
    from collections.abc import Callable

    from lastgood.compare.summary import Stat
    from lastgood.compare.trees import TreeChange
    from lastgood.engine.checkpoint import Checkpoint

FileKind = Literal["file", "folder", "link", "left out"]


class FileInfo(NamedTuple):
    """One path in a checkpoint. `why` says why something was left out; `target` is where a link points."""

    path: str
    kind: FileKind
    mode: int | None = None
    size: int | None = None
    sha256: str | None = None
    target: str | None = None
    why: str | None = None


class FileChange(NamedTuple):
    """One path that differs: what happened to it, and its size and hash afterwards (before, when it was deleted)."""

    path: str
    change: str
    size: int | None = None
    sha256: str | None = None
    old_path: str | None = None


def list_files(blobs: FileBlobs, checkpoint: Checkpoint, path: str = "") -> list[FileInfo]:
    """What lies in a folder of the checkpoint, without going deeper. With several roots their names come first."""
    roots = require_files(checkpoint)
    if not path and _are_named(roots):
        return [FileInfo(root.name, "folder", size=root.total_size) for root in roots]
    root, inside = _locate(roots, path)
    tree = root.tree
    for name in split_exact(inside):
        entry = _find(blobs, tree, name)
        if not isinstance(entry, Folder):
            raise _missing(path)
        tree = entry.tree
    return [_info(_join(root, inside), entry) for entry in blobs.read_tree(tree)]


def walk_files(blobs: FileBlobs, root: FileRoot) -> Iterator[tuple[bytes, Entry]]:
    """Every entry of a root but its folders that hold something, in the order of the paths."""
    waiting: list[tuple[bytes, bytes]] = [(b"", root.tree)]
    while waiting:
        path, tree = waiting.pop()
        below = []
        for entry in blobs.read_tree(tree):
            place = path + b"/" + entry.name if path else entry.name
            yield place, entry
            if isinstance(entry, Folder):
                below.append((place, entry.tree))
        waiting.extend(reversed(below))


def read_file(blobs: FileBlobs, checkpoint: Checkpoint, path: str) -> Iterator[bytes]:
    """The content of a file, piece by piece; of a link, where it points."""
    root, inside = _locate(require_files(checkpoint), path)
    entry, tree = None, root.tree
    parts = split_exact(inside)
    for index, name in enumerate(parts):
        entry = _find(blobs, tree, name)
        if isinstance(entry, Folder) and index + 1 < len(parts):
            tree = entry.tree
        elif index + 1 < len(parts):
            raise _missing(path)
    match entry:
        case File():
            return blobs.stream(entry)
        case Link():
            return iter([entry.target])
        case Left():
            raise NotFoundError(f"{path!r} was left out of this checkpoint ({entry.why})", hint="it was not captured")
    raise _missing(path)


class FilesDiff:
    """How the files of two checkpoints, or of one and the disk, differ. Nothing is read before it is asked for."""

    def __init__(
        self,
        old: Sequence[FileRoot],
        new: Sequence[FileRoot],
        read: Callable[[bytes], bytes],
        only: Sequence[str] | None = None,
    ) -> None:
        self._old = _by_name(old)
        self._new = _by_name(new)
        self._read = read
        self._selected = {name: select(only, name) for name in (*self._old, *self._new)}

    @cached_property
    def _changes(self) -> list[tuple[str, list[TreeChange]]]:
        return [(name, list(self._compare(name))) for name in dict.fromkeys((*self._old, *self._new))]

    def _compare(self, name: str) -> Iterator[TreeChange]:
        """Of a list of files nothing is known but these."""
        from lastgood.compare.trees import compare_trees

        old, new = self._old.get(name), self._new.get(name)
        unknown: tuple[str, ...] = ()
        if old is not None and old.partial:
            unknown += ("added", "captured")
        if new is not None and new.partial:
            unknown += ("deleted", "uncaptured")
        before, after = (None if root is None else root.tree for root in (old, new))
        for change in compare_trees(before, after, self._read, renames=not unknown):
            if change.kind not in unknown and self._selected[name].covers(change.path):
                yield change

    @cached_property
    def changes(self) -> list[FileChange]:
        return [_change(name, change) for name, changes in self._changes for change in changes]

    @cached_property
    def stats(self) -> list[Stat]:
        """Lines added and removed, for each path."""
        from lastgood.compare.summary import count_changes

        return [
            stat._replace(path=f"{name}:{stat.path}") if name else stat
            for name, changes in self._changes
            for stat in count_changes(changes, self._read)
        ]

    @property
    def summary(self) -> str:
        """What changed, in one paragraph."""
        from lastgood.compare.summary import summarize

        return summarize(self.stats)

    def patch(self, *, max_bytes: int | None = None) -> bytes:
        """A unified diff that `patch -p1` and `git apply` take; with several roots one after the other."""
        from lastgood.compare.text import unified

        parts = []
        for name, changes in self._changes:
            text = unified(changes, self._read, max_bytes=max_bytes).text
            parts.append(b"# %s\n" % name.encode() + text if name and text else text)
        return b"".join(parts)

    def __bool__(self) -> bool:
        return any(changes for _, changes in self._changes)


def require_files(checkpoint: Checkpoint) -> tuple[FileRoot, ...]:
    if checkpoint.record.files is None:
        raise NotFoundError(f"checkpoint {checkpoint.id} holds no files", hint="it was saved without a workspace")
    return checkpoint.record.files


def _by_name(roots: Sequence[FileRoot]) -> dict[str, FileRoot]:
    """The whole ones, and where there is none, those that hold a list of files."""
    return {root.name: root for root in sorted(roots, key=lambda root: not root.partial)}


def _are_named(roots: Sequence[FileRoot]) -> bool:
    return any(root.name for root in roots)


def _locate(roots: Sequence[FileRoot], path: str) -> tuple[FileRoot, str]:
    name, inside = locate(path, [root.name for root in roots])
    for root in sorted(roots, key=lambda root: root.partial):
        if root.name == name:
            return root, inside
    raise _missing(path)


def _find(blobs: FileBlobs, tree: bytes, name: bytes) -> Entry | None:
    return next((entry for entry in blobs.read_tree(tree) if entry.name == name), None)


def _info(folder: str, entry: Entry) -> FileInfo:
    path = folder + os.fsdecode(entry.name)
    match entry:
        case File():
            return FileInfo(path, "file", entry.mode, entry.size, to_text(entry.digest))
        case Folder():
            return FileInfo(path, "folder", entry.mode)
        case Link():
            return FileInfo(path, "link", target=os.fsdecode(entry.target))
        case Left():
            return FileInfo(path, "left out", why=entry.why)


def _change(name: str, change: TreeChange) -> FileChange:
    entry = change.new if isinstance(change.new, File) else change.old
    size, sha256 = (entry.size, to_text(entry.digest)) if isinstance(entry, File) else (None, None)
    old = None if change.old_path is None else _shown(name, change.old_path)
    return FileChange(_shown(name, change.path), change.kind, size, sha256, old)


def _join(root: FileRoot, inside: str) -> str:
    folder = b"/".join(split_exact(inside))
    return _shown(root.name, folder + b"/" if folder else b"")


def _shown(name: str, path: bytes) -> str:
    text = os.fsdecode(path)
    return f"{name}:{text}" if name else text


def _missing(path: str) -> NotFoundError:
    return NotFoundError(f"there is no {path!r} in this checkpoint", hint="`lastgood ls` shows what there is")
