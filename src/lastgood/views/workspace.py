"""The files on disk beside the checkpoints: which branch they are of, and what changed since. Puts nothing back."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.engine.load import load_checkpoint
from lastgood.errors import CheckpointError, InvalidError
from lastgood.local.process import boot_id
from lastgood.views.document import compose
from lastgood.views.files import find_whole
from lastgood.views.records import engine_of

if TYPE_CHECKING:
    from pathlib import Path

    from lastgood import Checkpoint, Store, Task
    from lastgood.engine.gather import CapturedFiles
    from lastgood.engine.workspace import Folders, Workspace
    from lastgood.model.task import Journal
    from lastgood.types import BranchInfo, FileChange, Recovery, Skipped


class WorkspaceFound(msgspec.Struct, frozen=True):
    """What was found on disk. `skipped`: what a save would leave out now; known when the disk was compared.

    `is_elsewhere`: the files are those of a branch that is not the active one. `is_newest`: `since` is the newest
    checkpoint; else that holds no files, or only some that were listed.
    """

    folders: Sequence[tuple[str, str, BranchInfo | None]] = ()
    since: Checkpoint | None = None
    changes: Sequence[FileChange] = ()
    interrupted: Sequence[Journal] = ()
    problem: str = ""
    skipped: Sequence[Skipped] = ()
    is_elsewhere: bool = False
    is_newest: bool = True

    def view(self) -> dict[str, Any]:
        """Return it as JSON shows it. `since`: the checkpoint they were compared with; `problem`: why they were not."""
        return compose(
            folders=[
                compose(name=name, path=path, branch_id=branch and branch.id, branch=branch and branch.name)
                for name, path, branch in self.folders
            ],
            since=self.since.id if self.since else None,
            changes=self.changes,
            interrupted=[
                compose(checkpoint_id=one.chosen, before=one.before, pid=one.process.pid) for one in self.interrupted
            ],
            skipped=self.skipped,
            problem=self.problem or None,
        )

    def advice(self) -> list[str]:
        """Return what a person could do, in sentences."""
        if not self.is_elsewhere:
            return []
        return ["the files are those of another branch: `lastgood branch --switch` changes them, too"]


def compare_workspace(store: Store, folders: Folders, found: Recovery, *, verbose: bool) -> WorkspaceFound:
    """Compare the files on disk with the newest checkpoint of the branch that they are of. With `verbose`, what is left
    out has secrets that ignore rules name, too."""
    try:
        return _compare(store, open_workspace(store, folders), found, verbose)
    except CheckpointError as error:
        return WorkspaceFound(problem=str(error))


def open_workspace(store: Store, folders: Folders) -> Workspace:
    """Open folders to read them. Changes nothing, and finishes no restore."""
    from lastgood.engine.workspace import Workspace

    return Workspace(engine_of(store), folders)


def why_no_workspace(store: Store, folder: str) -> str | None:
    """Return why a folder cannot be a workspace, as the home directory cannot."""
    try:
        open_workspace(store, folder)
    except InvalidError as error:
        return str(error)
    return None


def _compare(store: Store, workspace: Workspace, found: Recovery, verbose: bool) -> WorkspaceFound:
    head, owner = found.head, found.owner
    in_flight = [journal for journal in found.restores if journal.made is None or not journal.is_of(boot_id())]
    interrupted = [journal for journal in in_flight if workspace.has_all(journal.folders)]
    bound = workspace.bound(owner, head.task_id) if head else [None] * len(workspace.roots)
    names = {one.id: one for one in store.branches(found.task_id, owner=owner)} if head else {}
    branches = [names.get(one or "") for one in bound]
    places = [(root.name, root.path, branch) for root, branch in zip(workspace.roots, branches, strict=True)]
    if head is None or not head.integrity_ok:
        return WorkspaceFound(places, interrupted=interrupted)
    other = next((one for one in branches if one and one.head and one.id != head.branch_id), None)
    newest = load_checkpoint(engine_of(store), owner, other.head.id) if other and other.head else head
    since = find_whole(store, newest, owner)
    if interrupted or since is None or since.record.files is None:
        return WorkspaceFound(places, interrupted=interrupted, is_elsewhere=other is not None)
    from lastgood.engine.difference import FilesDiff
    from lastgood.engine.workspace import ignored_secrets

    present, blobs = workspace.capture(since), engine_of(store).blobs
    changes = FilesDiff(since.record.files, present.roots, blobs.read_with(present.gathered)).changes
    blobs.drop(present.gathered)
    skipped = [*present.skipped, *(ignored_secrets(present) if verbose else ())]
    is_other, is_newest = other is not None, since is newest
    return WorkspaceFound(places, since, changes, skipped=skipped, is_elsewhere=is_other, is_newest=is_newest)


def save_changed(task: Task, describe: Callable[[Sequence[FileChange]], str]) -> Checkpoint | None:
    """Save the files of a task on top of its head, if they are not the head's; None: they are. `describe` makes the
    message."""
    from lastgood.engine.difference import FilesDiff
    from lastgood.engine.save import save_drifted

    def message(head: Checkpoint, present: CapturedFiles) -> str:
        read = task._handle.engine.blobs.read_with(present.gathered)
        with suppress(CheckpointError):  # while the store is away the head's cannot be read
            return describe(FilesDiff(head.record.files or (), present.roots, read).changes)
        return ""

    task.refresh()
    return save_drifted(task._handle, "automatic", "", message)


def watcher_file(store: Store, folders: Folders) -> Path:
    """Return the file that is locked by whoever watches these folders."""
    from hashlib import sha256

    roots = "\0".join(sorted(root.path for root in open_workspace(store, folders).roots))
    folder = engine_of(store).local.path()
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"watch-{sha256(os.fsencode(roots)).hexdigest()[:32]}"
