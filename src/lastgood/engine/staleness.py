"""Evidence that went stale: a command was run, and then files changed that the checkpoint holds.

What changed later is told by the stamps (ctime) that the file system gave, also to a file written for that alone; what
was removed later by the names that were there when the command ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from stat import S_ISDIR
from typing import TYPE_CHECKING, NamedTuple

from lastgood.engine.gather import CapturedFiles
from lastgood.errors import CheckpointError
from lastgood.files.index import find_newest
from lastgood.local.paths import split
from lastgood.model.evidence import Evidence, EvidencePack

if TYPE_CHECKING:
    from lastgood.engine.blobs import FileBlobs
    from lastgood.engine.commit import Draft
    from lastgood.files.index import Newest
    from lastgood.files.roots import Root
    from lastgood.model.checkpoint import FileRoot

MAX_PATH = 200
PATIENCE_SECONDS = 0.05
"""Longer than any tick of the kernel's clock; file systems that count in whole seconds are not waited for."""
_PAUSE_SECONDS = 0.0002
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


Names = Mapping[bytes, frozenset[bytes] | None]
"""What is in each folder; None: whatever was there when the step began. Of others nothing is known."""


class Run(NamedTuple):
    """A command that has ended: what it is evidence of, and by root which names there were then, and what a file that
    was written then was stamped with."""

    evidence: Evidence
    names: Mapping[str, Names]
    stamps: Mapping[str, int]


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
    newest = {root.name: find_newest(draft.files.records[root.name]) for root in roots}
    removed = {root.name: _removed(root, draft.files, before, blobs) for root in roots}
    for run in runs:
        later = [f"{_shown(root, newest[root.name].path)} changed" for root in roots if _is_later(newest, run, root)]
        later += [f"{_shown(root, path)} was removed" for root in roots for path in _had(run, root, removed)]
        for index, evidence in enumerate(pack.evidence_list):
            if later and evidence is run.evidence:
                draft.proof.outdate(index, f"{later[0]} after the command had ended")


def _is_later(newest: Mapping[str, Newest], run: Run, root: Root) -> bool:
    return root.name in run.stamps and newest[root.name].stamp > run.stamps[root.name]


def _had(run: Run, root: Root, removed: Mapping[str, Sequence[bytes]]) -> Iterator[bytes]:
    """Yield those that are known to have been there when the command ended. The time of a folder would not tell: it is
    also that of ignored files, which come and go."""
    known = run.names.get(root.name, {})
    for path in removed[root.name]:
        folder, name = split(path)
        names = known.get(folder, frozenset())
        if names is None or name in names:
            yield path


def _removed(root: Root, files: CapturedFiles, before: Sequence[FileRoot], blobs: FileBlobs) -> list[bytes]:
    """Return the paths that the parent has and the draft has not; none where the parent's trees are damaged."""
    [new] = [each.tree for each in files.roots if each.name == root.name]
    old = [each.tree for each in before if each.name == root.name and not each.partial]
    if not old or old == [new]:
        return []
    from lastgood.compare.trees import compare_trees

    try:
        changes = compare_trees(old[0], new, blobs.read_with(files.gathered), renames=False)
        return [change.path for change in changes if change.kind == "deleted"]
    except CheckpointError:
        return []


def _shown(root: Root, path: bytes) -> str:
    from lastgood.compare.text import path_text

    text = path_text(path[-MAX_PATH:])
    return f"{root.name}:{text}" if root.name else text


def list_names(root: str, folders: Iterable[bytes], since: int) -> dict[bytes, frozenset[bytes] | None]:
    """Return what is in each of these folders now; None of one that has not changed since a stamp: looking at 5,000 of
    them takes 10 ms, listing them 70."""
    found: dict[bytes, frozenset[bytes] | None] = {}
    for folder in folders:
        path = os.fsencode(root) + b"/" + folder
        with suppress(OSError):
            stat = os.lstat(path)
            if S_ISDIR(stat.st_mode):
                found[folder] = frozenset(os.listdir(path)) if stat.st_ctime_ns >= since else None  # noqa: PTH208
    return found


def take_stamps(roots: Sequence[Root], own: str, *, wait: bool = True) -> dict[str, int]:
    """Return the present by root, as its files are stamped. `own` is a folder that is written to if it can be."""
    folders = {root.name: [own, root.path] if _is_on_same(own, root.path) else [root.path] for root in roots}
    return {name: take_stamp(each, wait=wait) for name, each in folders.items()}


def take_stamp(folders: Sequence[str], *, wait: bool = True) -> int:
    """Return a stamp (ctime) that no change made so far exceeds, and every change made from now on does; without `wait`
    it may have that stamp, too.

    It is found with a file that is written there and never seen, in the first of the folders, which are on the same
    file system, that can be written to. Before Linux 6.13 files are stamped in ticks of up to 10 ms: it takes until the
    next one, so that a change right after it does not pass for one before. Where nothing can be written, the clock is
    asked, and the rest of a tick is in doubt.
    """
    for folder in folders:
        with suppress(OSError), _unseen_file(folder) as descriptor:
            stamp = os.fstat(descriptor).st_ctime_ns
            if wait:
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
