"""Files of checkpoints as every surface shows them, and how two checkpoints, or one and the disk, differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.engine.load import load_checkpoint
from lastgood.errors import IntegrityError, NotFoundError
from lastgood.views.checkpoint import holds_whole_folders
from lastgood.views.document import compose, tagged
from lastgood.views.records import engine_of

if TYPE_CHECKING:
    from lastgood import Checkpoint, Store, Task
    from lastgood.compare.state import StateChange
    from lastgood.types import FileChange, FileInfo, FilesDiff


NEAR = 100
ON_DISK = ", nor among the files on disk that are captured"


class Compared(msgspec.Struct, frozen=True):
    """Two sides, compared. `new` None: the files on disk. `state` or `files` None: they were not compared."""

    old: Checkpoint
    new: Checkpoint | None
    state: list[StateChange] | None
    files: FilesDiff | None

    def summary(self) -> str:
        """Return what differs in one paragraph."""
        from lastgood.engine.difference import summarize

        return summarize(self.files, self.state)


def view_failed(failed: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Return paths that could not be put back as JSON shows them."""
    return [{"path": path, "reason": reason} for path, reason in failed]


def view_file(info: FileInfo) -> dict[str, Any]:
    """Return a path in a checkpoint as JSON shows it; `mode` is octal text."""
    return compose(info, mode=None if info.mode is None else f"{info.mode:04o}")


def list_files(store: Store, checkpoint: Checkpoint, path: str, owner: str | None, *, deep: bool) -> Iterator[FileInfo]:
    """List a folder of a checkpoint, or what else `path` names; `deep`: with all that is below.

    Depth first without recursion: a tree may be deeper than Python's stack.
    """
    waiting = list(reversed(_list(store, checkpoint, path, owner)))
    while waiting:
        info = waiting.pop()
        yield info
        if deep and info.kind == "folder":
            waiting.extend(reversed(store.list_files(checkpoint.id, info.path, owner=owner)))


def changes_between(store: Store, old: Checkpoint | None, new: Checkpoint, owner: str | None) -> list[FileChange]:
    """Compare the files of two checkpoints; nothing differs where one of them holds none."""
    if old is None or old.record.files is None or new.record.files is None or old.id == new.id:
        return []
    return store.compare_files(old.id, new.id, owner=owner).changes


def find_whole(store: Store, checkpoint: Checkpoint, owner: str) -> Checkpoint | None:
    """Return it, or the nearest before it that holds whole folders: neither one without files, nor one with some that
    were listed, tells what has changed in a folder. None when there is none near."""
    for _ in range(NEAR):
        if holds_whole_folders(checkpoint):
            return checkpoint
        if checkpoint.parent_id is None:
            break
        try:
            checkpoint = load_checkpoint(engine_of(store), owner, checkpoint.parent_id)
        except (NotFoundError, IntegrityError):
            break
    return None


def touches(store: Store, checkpoint: Checkpoint, paths: Sequence[str], owner: str | None) -> bool:
    """Return whether one of the paths changed in a checkpoint; also where damage leaves that open."""
    if not checkpoint.integrity_ok or checkpoint.record.files is None:
        return not checkpoint.integrity_ok
    try:
        return store.compare_files(None, checkpoint.id, paths=paths, owner=owner).touches()
    except IntegrityError:
        return True


def compare_states(task: Task, old: Checkpoint, new: Checkpoint | None) -> list[StateChange] | None:
    """Compare states. The disk has none: the head's stands for it, unless that is what is compared with the disk."""
    from lastgood.compare.state import compare

    newer = new or task.find("HEAD")
    return None if new is None and newer.id == old.id else compare(old.state, newer.state)


def compare_files(
    store: Store, task: Task, old: Checkpoint, new: Checkpoint | None, paths: tuple[str, ...]
) -> FilesDiff:
    """Compare the files of two checkpoints, or of one with those on disk; of `paths` alone if there are any, each of
    which must name something."""

    def compare(only: Sequence[str]) -> FilesDiff:
        if new is None:
            return task.diff(old, None, paths=only or None).files
        return store.compare_files(old.id, new.id, paths=only or None, owner=task.owner)

    but = ON_DISK if new is None else f", nor in @{new.sequence}"
    require_paths(store, old, paths, lambda only: [one.path for one in compare(only).changes], but)
    return compare(paths)


def without_folders(old: Checkpoint, new: Checkpoint | None) -> Checkpoint | None:
    """Return the first of them whose files cannot be compared: it has none, or only some that were listed."""
    return next((one for one in (old, new) if one is not None and not holds_whole_folders(one)), None)


def view_diff(found: Compared) -> dict[str, Any]:
    """Return a comparison as JSON shows it; `files` None: files were not compared."""
    return compose(
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


def _view_change(change: StateChange) -> dict[str, Any]:
    """`before` is left out for what was added, `after` for what was removed."""
    return compose(
        kind=change.kind,
        path=tagged(list(change.path)),
        text=path_text(change.path),
        before=msgspec.UNSET if change.kind == "added" else tagged(change.before),
        after=msgspec.UNSET if change.kind == "removed" else tagged(change.after),
    )


def _view_files(files: FilesDiff) -> list[dict[str, Any]]:
    """Each path with the lines that were added and removed; None where lines were not counted."""
    return [
        compose(
            change,
            added=stat.lines.added if stat.lines else None,
            removed=stat.lines.removed if stat.lines else None,
            note=stat.note,
        )
        for change, stat in zip(files.changes, files.stats, strict=True)
    ]


def require_paths(
    store: Store,
    held: Checkpoint,
    paths: Sequence[str],
    known: Callable[[Sequence[str]], Sequence[str]] = lambda only: (),
    but: str = "",
) -> None:
    """Raise NotFoundError for a path or pattern that names no file of the checkpoint, nor one of those that `known`
    returns, which `but` says in words; its hint names the one that is most like it."""
    from lastgood.engine.browse import suggest
    from lastgood.engine.difference import FilesDiff

    def select(only: Sequence[str]) -> list[str]:
        files = FilesDiff((), held.record.files or (), engine_of(store).blobs.read, only or None)
        return [*(change.path for change in files.changes), *known(only)]

    for path in paths if held.record.files is not None else ():
        if path != "**" and not select([path]):
            raise NotFoundError(f"there is no {path[:200]!r} in @{held.sequence}{but}", hint=suggest(path, select(())))


def _list(store: Store, checkpoint: Checkpoint, path: str, owner: str | None) -> list[FileInfo]:
    """List a folder; of anything else, return itself."""
    wanted = path.rstrip("/")
    above = wanted[: max(wanted.rfind("/"), wanted.find(":")) + 1]
    found = store.list_files(checkpoint.id, above, owner=owner) if wanted else []
    same = [info for info in found if info.path == wanted and info.kind != "folder"]
    return same or store.list_files(checkpoint.id, path, owner=owner)
