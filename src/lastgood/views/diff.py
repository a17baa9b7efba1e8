"""How two checkpoints, or one and the files on disk, differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from lastgood.compare.state import StateChange, compare
from lastgood.views.document import View, tagged
from lastgood.views.files import holds_whole_folders

if TYPE_CHECKING:
    from lastgood import Checkpoint, FilesDiff, Store, Task


class StateChangeView(View, frozen=True, kw_only=True):
    """A place in the state that differs. `before` is left out for what was added, `after` for what was removed."""

    kind: Literal["added", "removed", "changed"]
    path: Any
    text: str
    before: Any = msgspec.UNSET
    after: Any = msgspec.UNSET


class FileDiffView(View, frozen=True, kw_only=True):
    """A path that differs, with the lines that were added and removed; None where lines were not counted."""

    path: str
    change: str
    size: int | None
    sha256: str | None
    old_path: str | None
    added: int | None
    removed: int | None
    note: str


class DiffView(View, frozen=True, kw_only=True):
    """How two sides differ; `after` None: the files on disk. `files` None: files were not compared."""

    before: str
    after: str | None
    changes: list[StateChangeView]
    files: list[FileDiffView] | None
    summary: str


class Compared(msgspec.Struct, frozen=True):
    """Two sides, compared. `new` None: the files on disk. `state` or `files` None: they were not compared."""

    old: Checkpoint
    new: Checkpoint | None
    state: list[StateChange] | None
    files: FilesDiff | None

    def summary(self) -> str:
        """Return what differs in one paragraph."""
        words = [] if self.files is None else [self.files.summary]
        if self.state is not None:
            count = len(self.state)
            places = "1 place" if count == 1 else f"{count:,} places"
            words.append(f"The state differs in {places}." if self.state else "The state is the same.")
        return " ".join(words) or "Nothing was compared."


def compare_states(task: Task, old: Checkpoint, new: Checkpoint | None) -> list[StateChange] | None:
    """Compare states. The disk has none: the head's stands for it, unless that is what is compared with the disk."""
    newer = new or task.find("HEAD")
    return None if new is None and newer.id == old.id else compare(old.state, newer.state)


def compare_files(
    store: Store, task: Task, old: Checkpoint, new: Checkpoint | None, paths: tuple[str, ...]
) -> FilesDiff:
    """Compare the files of two checkpoints, or of one with those on disk; of `paths` alone if there are any."""
    only = list(paths) or None
    if new is None:
        return task.diff(old, None, paths=only).files
    return store.compare_files(old.id, new.id, paths=only, owner=task.owner)


def without_folders(old: Checkpoint, new: Checkpoint | None) -> Checkpoint | None:
    """Return the first of them whose files cannot be compared: it has none, or only some that were listed."""
    return next((one for one in (old, new) if one is not None and not holds_whole_folders(one)), None)


def view_diff(found: Compared) -> DiffView:
    """Return a comparison as JSON shows it."""
    return DiffView(
        before=found.old.id,
        after=found.new.id if found.new else None,
        changes=[_view_change(change) for change in found.state or ()],
        files=None if found.files is None else _view_files(found.files),
        summary=found.summary(),
    )


def path_text(path: tuple[Any, ...]) -> str:
    """Return a path in the state as people write it: `messages[3].role`; other keys in brackets, as JSON."""
    text = ""
    for step in path:
        if type(step) is str and step.isidentifier():
            text += f".{step}" if text else step
        else:
            text += f"[{msgspec.json.encode(tagged(step)).decode()}]"
    return text or "(all of it)"


def _view_change(change: StateChange) -> StateChangeView:
    before = msgspec.UNSET if change.kind == "added" else tagged(change.before)
    after = msgspec.UNSET if change.kind == "removed" else tagged(change.after)
    path, text = tagged(list(change.path)), path_text(change.path)
    return StateChangeView(kind=change.kind, path=path, text=text, before=before, after=after)


def _view_files(files: FilesDiff) -> list[FileDiffView]:
    return [
        FileDiffView.of(
            change,
            added=stat.lines.added if stat.lines else None,
            removed=stat.lines.removed if stat.lines else None,
            note=stat.note,
        )
        for change, stat in zip(files.changes, files.stats, strict=True)
    ]
