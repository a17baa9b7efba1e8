"""Evidence that went stale: a command was run, and then files changed that the checkpoint holds.

What changed later is told by the stamps (ctime) that the file system gave, also to a file written for that alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from lastgood.engine.gather import CapturedFiles
from lastgood.errors import CheckpointError
from lastgood.files.index import find_newest
from lastgood.model.evidence import Evidence, EvidencePack

if TYPE_CHECKING:
    from lastgood.engine.blobs import FileBlobs
    from lastgood.engine.commit import Draft
    from lastgood.files.roots import Root
    from lastgood.local.paths import FolderWalk
    from lastgood.model.checkpoint import FileRoot

MAX_PATH = 200
PATIENCE_SECONDS = 0.05
"""Longer than any tick of the kernel's clock; file systems that count in whole seconds are not waited for."""
_PAUSE_SECONDS = 0.0002
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Run(NamedTuple):
    """A command that has ended: what it is evidence of, and by root what the files were stamped with then."""

    evidence: Evidence
    stamps: Mapping[str, int]


class LastChange(NamedTuple):
    """A last change to the files of a root, in words, and when."""

    stamp: int
    words: str


def mark_stale(
    draft: Draft,
    pack: EvidencePack,
    runs: Sequence[Run],
    before: Sequence[FileRoot],
    blobs: FileBlobs,
    roots: Sequence[Root],
) -> None:
    """Mark the evidence of commands that ended before the last change to the files in the draft.

    `pack` is what the draft proves, `before` are the files of the parent: of a removed file nothing else is left.
    """
    if draft.proof is None or not isinstance(draft.files, CapturedFiles):
        return
    last = {root.name: _last_change(root, draft.files, before, blobs) for root in roots}
    for run in runs:
        later = [last[name] for name, stamp in run.stamps.items() if last[name].stamp > stamp]
        for index, evidence in enumerate(pack.evidence_list):
            if later and evidence is run.evidence:
                draft.proof.outdate(index, f"{max(later).words} after the command had ended")


def _last_change(root: Root, files: CapturedFiles, before: Sequence[FileRoot], blobs: FileBlobs) -> LastChange:
    newest = find_newest(files.records[root.name])
    changed = LastChange(newest.stamp, f"{_shown(root, newest.path)} changed")
    try:
        stamp, path = _last_removal(root, _removed(root, files, before, blobs))
    except (CheckpointError, OSError):  # the parent's trees are damaged, or the folder is gone
        return changed
    return changed if changed.stamp >= stamp else LastChange(stamp, f"{_shown(root, path)} was removed")


def _removed(root: Root, files: CapturedFiles, before: Sequence[FileRoot], blobs: FileBlobs) -> list[bytes]:
    [new] = [each.tree for each in files.roots if each.name == root.name]
    old = [each.tree for each in before if each.name == root.name and not each.partial]
    if not old or old == [new]:
        return []
    from lastgood.compare.trees import compare_trees

    changes = compare_trees(old[0], new, blobs.read_with(files.gathered), renames=False)
    return [change.path for change in changes if change.kind == "deleted"]


def _last_removal(root: Root, paths: Iterable[bytes]) -> tuple[int, bytes]:
    """Return when the last of them can have been removed: by its folder, or what is left of the way there."""
    from lastgood.local.paths import FolderWalk, split

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
    from lastgood.compare.text import path_text

    text = path_text(path[-MAX_PATH:])
    return f"{root.name}:{text}" if root.name else text


def take_stamps(roots: Sequence[Root], own: str) -> dict[str, int]:
    """Return the present by root, as its files are stamped. `own` is a folder that is written to if it can be."""
    return {root.name: take_stamp([own, root.path] if _is_on_same(own, root.path) else [root.path]) for root in roots}


def take_stamp(folders: Sequence[str]) -> int:
    """Return a stamp (ctime) that no change made so far exceeds, and every change made from now on does.

    It is found with a file that is written there and never seen, in the first of the folders, which are on the same
    file system, that can be written to. Before Linux 6.13 files are stamped in ticks of up to 10 ms: it takes until the
    next one, so that a change right after it does not pass for one before. Where nothing can be written, the clock is
    asked, and the rest of a tick is in doubt.
    """
    for folder in folders:
        with suppress(OSError), _unseen_file(folder) as descriptor:
            stamp = os.fstat(descriptor).st_ctime_ns
            _wait_beyond(stamp, descriptor)
            return stamp
    return time.time_ns()


def _is_on_same(one: str, other: str) -> bool:
    """Return whether both folders are there, on the same file system."""
    try:
        return os.stat(one).st_dev == os.stat(other).st_dev  # noqa: PTH116
    except OSError:
        return False


@contextmanager
def _unseen_file(folder: str) -> Iterator[int]:
    descriptor = _open_unseen(folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_unseen(folder: str) -> int:
    """Open a file without a name, which does not even touch the folder; else one that loses its name at once."""
    if hasattr(os, "O_TMPFILE"):
        with suppress(OSError):  # not every file system has it
            return os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    path = f"{folder}/.lastgood-{os.urandom(8).hex()}-0.tmp"  # as captures know it, see `is_temporary`
    descriptor = os.open(path, _NEW, 0o600)
    os.unlink(path)  # noqa: PTH108
    return descriptor


def _wait_beyond(stamp: int, descriptor: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    os.utime(descriptor)
    while os.fstat(descriptor).st_ctime_ns <= stamp and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        os.utime(descriptor)
