"""Files of checkpoints as every surface shows them: what is there, what changed, what could not be put back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lastgood.errors import NotFoundError
from lastgood.views.document import View

if TYPE_CHECKING:
    from lastgood import Checkpoint, FileChange, FileInfo, Store


class FileView(View, frozen=True, kw_only=True):
    """A path in a checkpoint. `mode` is octal text; `target` is where a link points, `why` it was left out."""

    path: str
    kind: str
    mode: str | None
    size: int | None
    sha256: str | None
    target: str | None
    why: str | None


class FailedFileView(View, frozen=True, kw_only=True):
    """A path that could not be put back, and why."""

    path: str
    reason: str


def view_failed(failed: Sequence[tuple[str, str]]) -> list[FailedFileView]:
    """Return paths that could not be put back as JSON shows them."""
    return [FailedFileView(path=path, reason=reason) for path, reason in failed]


def view_file(info: FileInfo) -> FileView:
    """Return a path in a checkpoint as JSON shows it."""
    return FileView.of(info, mode=None if info.mode is None else f"{info.mode:04o}")


def list_files(store: Store, checkpoint: Checkpoint, path: str, owner: str | None, *, deep: bool) -> Iterator[FileInfo]:
    """List a folder of a checkpoint, or what else `path` names; `deep`: with all that is below.

    Depth first without recursion: a tree may be deeper than Python's stack.
    """
    waiting = list(reversed(_list(store, checkpoint.id, path, owner)))
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


def holds_whole_folders(checkpoint: Checkpoint) -> bool:
    """Whether it can be compared: it has files, and not only some that were listed."""
    return any(not root.partial for root in checkpoint.record.files or ())


def _list(store: Store, checkpoint_id: str, path: str, owner: str | None) -> list[FileInfo]:
    """List a folder; of anything else, return itself."""
    try:
        return store.list_files(checkpoint_id, path, owner=owner)
    except NotFoundError:
        wanted = path.rstrip("/")
        above = wanted[: max(wanted.rfind("/"), wanted.find(":")) + 1]
        found = store.list_files(checkpoint_id, above, owner=owner) if wanted else []
        same = [info for info in found if info.path == wanted]
        if not same:
            raise
        return same
