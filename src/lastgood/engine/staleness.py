"""Evidence that went stale: a command was run, and then files changed that the checkpoint holds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lastgood.engine.blobs import CapturedFiles
from lastgood.errors import CheckpointError
from lastgood.model.evidence import Evidence, EvidencePack

if TYPE_CHECKING:
    from lastgood.engine.blobs import FileBlobs
    from lastgood.engine.commit import Draft
    from lastgood.engine.workspace import Workspace
    from lastgood.files.folders import FolderWalk
    from lastgood.files.roots import Root
    from lastgood.model.checkpoint import FileRoot

MAX_PATH = 200


class Run(NamedTuple):
    """A command that has ended: what it is evidence of, and by root what the files were stamped with then."""

    evidence: Evidence
    stamps: Mapping[str, int]


class Event(NamedTuple):
    """What happened last to the files of a root, in words, and when."""

    stamp: int
    words: str


def mark_stale(
    draft: Draft,
    pack: EvidencePack,
    runs: Sequence[Run],
    before: Sequence[FileRoot],
    blobs: FileBlobs,
    workspace: Workspace,
) -> None:
    """Mark the evidence of commands that ended before the last change to the files in the draft.

    `pack` is what the draft proves, `before` are the files of the parent: of a removed file nothing else is left.
    """
    if draft.proof is None or not isinstance(draft.files, CapturedFiles):
        return
    last = {root.name: _last_event(root, draft.files, before, blobs) for root in workspace.roots}
    for run in runs:
        later = [last[name] for name, stamp in run.stamps.items() if last[name].stamp > stamp]
        for index, evidence in enumerate(pack.evidence_list):
            if later and evidence is run.evidence:
                draft.proof.outdate(index, f"{max(later).words} after the command had ended")


def _last_event(root: Root, files: CapturedFiles, before: Sequence[FileRoot], blobs: FileBlobs) -> Event:
    newest = files.newest[root.name]()
    changed = Event(newest.stamp, f"{_shown(root, newest.path)} changed")
    try:
        stamp, path = _last_removal(root, _removed(root, files, before, blobs))
    except (CheckpointError, OSError):  # the parent's trees are damaged, or the folder is gone
        return changed
    return changed if changed.stamp >= stamp else Event(stamp, f"{_shown(root, path)} was removed")


def _removed(root: Root, files: CapturedFiles, before: Sequence[FileRoot], blobs: FileBlobs) -> list[bytes]:
    [new] = [each.tree for each in files.roots if each.name == root.name]
    old = [each.tree for each in before if each.name == root.name and not each.partial]
    if not old or old == [new]:
        return []
    from lastgood.compare.trees import compare_trees

    changes = compare_trees(old[0], new, blobs.read_with(files.gathered), renames=False)
    return [change.path for change in changes if change.kind == "deleted"]


def _last_removal(root: Root, paths: Iterable[bytes]) -> tuple[int, bytes]:
    """When the last of them can have been removed: by the folder that it lay in, or what is left of the way there."""
    from lastgood.files.folders import FolderWalk, split

    last = 0, b""
    with FolderWalk(root.path) as walk:
        for folder, path in {split(path)[0]: path for path in paths}.items():
            while (stamp := _stamp_of(walk, folder)) is None:
                folder = split(folder)[0]
            last = max(last, (stamp, path))
    return last


def _stamp_of(walk: FolderWalk, folder: bytes) -> int | None:
    try:
        return os.fstat(walk.folder(folder)).st_ctime_ns
    except OSError:
        if not folder:
            raise
        return None


def _shown(root: Root, path: bytes) -> str:
    from lastgood.compare.summary import path_text

    text = path_text(path[-MAX_PATH:])
    return f"{root.name}:{text}" if root.name else text
