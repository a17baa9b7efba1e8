"""How two checkpoints, or one and the disk, differ, in state and files. Nothing is read before it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from lastgood.compare.state import StateChange, compare
from lastgood.engine.browse import show_path
from lastgood.files.selection import select
from lastgood.model.checkpoint import FileRoot
from lastgood.model.identity import digest_text
from lastgood.model.tree import File

if TYPE_CHECKING:
    from lastgood.compare.text import Stat
    from lastgood.compare.trees import TreeChange
    from lastgood.engine.checkpoint import Checkpoint


class FileChange(NamedTuple):
    """A path that differs: what happened to it, and its size and hash afterwards (before, when it was deleted)."""

    path: str
    change: str
    size: int | None = None
    sha256: str | None = None
    old_path: str | None = None


class FilesDiff:
    """A comparison of the files of two checkpoints, or of one and the disk."""

    def __init__(
        self,
        old: Sequence[FileRoot],
        new: Sequence[FileRoot],
        read: Callable[[bytes], bytes],
        only: Sequence[str] | None = None,
    ) -> None:
        """`only`: paths and patterns (files/selection.py); InvalidError for what cannot be one."""
        self._old = _by_name(old)
        self._new = _by_name(new)
        self._read = read
        self._selected = {name: select(only, name) for name in (*self._old, *self._new)}

    @cached_property
    def _changes(self) -> list[tuple[str, list[TreeChange]]]:
        return [(name, list(self._compare(name))) for name in self._selected]

    def _compare(self, name: str, *, renames: bool = True) -> Iterator[TreeChange]:
        """Compare the roots of that name. Of a list of files nothing is known but these."""
        from lastgood.compare.trees import compare_trees

        old, new, selected = self._old.get(name), self._new.get(name), self._selected[name]
        unknown: tuple[str, ...] = ()
        if old is not None and old.partial:
            unknown += ("added", "captured")
        if new is not None and new.partial:
            unknown += ("deleted", "uncaptured")
        before, after = (None if root is None else root.tree for root in (old, new))
        files = sum(root.file_count for root in (old, new) if root is not None)
        for change in compare_trees(before, after, self._read, renames=renames and not unknown, files=files):
            if change.kind not in unknown and (selected is None or selected.covers(change.path)):
                yield change

    @cached_property
    def changes(self) -> list[FileChange]:
        """The paths that differ, with the name of their root before them if it has one."""
        return [_show(name, change) for name, changes in self._changes for change in changes]

    @cached_property
    def stats(self) -> list[Stat]:
        """The lines that were added and removed, for each path."""
        from lastgood.compare.text import count_changes

        return [
            stat._replace(path=f"{name}:{stat.path}") if name else stat
            for name, changes in self._changes
            for stat in count_changes(changes, self._read)
        ]

    @property
    def summary(self) -> str:
        """What changed, in one paragraph."""
        from lastgood.compare.text import summarize

        return summarize(self.stats)

    def patch(self, *, max_bytes: int | None = None) -> bytes:
        """Return a unified diff that `patch -p1` and `git apply` take; with several roots one after the other."""
        from lastgood.compare.text import unified

        parts = []
        for name, changes in self._changes:
            text = unified(changes, self._read, max_bytes=max_bytes)
            parts.append(b"# %s\n" % name.encode() + text if name and text else text)
        return b"".join(parts)

    def touches(self) -> bool:
        """Return whether a path differs. No content is read, and a renamed file counts by both of its names."""
        return any(True for name in self._selected for _ in self._compare(name, renames=False))

    def __bool__(self) -> bool:
        return any(changes for _, changes in self._changes)


class Difference:
    """A comparison of two checkpoints in state and files. `after` None: the files on disk, which have no state."""

    def __init__(self, before: Checkpoint, after: Checkpoint | None, files: FilesDiff) -> None:
        self.before = before
        self.after = after
        self.files = files

    @cached_property
    def state(self) -> list[StateChange]:
        """The parts of the state that were added, removed or changed."""
        return [] if self.after is None else compare(self.before.state, self.after.state)

    @property
    def summary(self) -> str:
        """What changed, in one paragraph."""
        return summarize(self.files, None if self.after is None else self.state)

    def __bool__(self) -> bool:
        return bool(self.files) or bool(self.state)

    def _repr_html_(self) -> str:
        from lastgood.engine.checkpoint import as_html

        return as_html("Difference", before=self.before, after=self.after or "the files on disk", summary=self.summary)


def summarize(files: FilesDiff | None, state: Sequence[StateChange] | None) -> str:
    """Return what changed, in one paragraph; None was not compared."""
    words = [] if files is None else [files.summary]
    if state is not None:
        places = "1 place" if len(state) == 1 else f"{len(state):,} places"
        words.append(f"The state differs in {places}." if state else "The state is the same.")
    return " ".join(words) or "Nothing was compared."


def _by_name(roots: Sequence[FileRoot]) -> dict[str, FileRoot]:
    """Return the whole roots, and where there is none, those that hold a list of files."""
    return {root.name: root for root in sorted(roots, key=lambda root: not root.partial)}


def _show(name: str, change: TreeChange) -> FileChange:
    entry = change.new if isinstance(change.new, File) else change.old
    size, sha256 = (entry.size, digest_text(entry.digest)) if isinstance(entry, File) else (None, None)
    old = None if change.old_path is None else show_path(name, change.old_path)
    return FileChange(show_path(name, change.path), change.kind, size, sha256, old)
