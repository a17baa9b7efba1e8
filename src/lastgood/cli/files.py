"""Files as commands print them: paths that cannot steer a terminal, what was left out, what changed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lastgood.cli.output import printable, say
from lastgood.errors import ConflictError

if TYPE_CHECKING:
    from lastgood.cli.invocation import Invocation
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.difference import FileChange
    from lastgood.model.checkpoint import Skipped
    from lastgood.model.journal import Journal
    from lastgood.store import Store

MOST = 20
"""Paths that are printed for people, of each sort; programs get all."""

MARKS = {"added": "+", "deleted": "-"}
"""Before the path of a change; everything else is `~`."""


def path_text(path: str) -> str:
    """A path on one line, in C's quotes where it holds what cannot be printed."""
    from lastgood.compare.summary import path_text as quoted

    return quoted(os.fsencode(path)) if path else ""


def few(lines: Sequence[str], most: int = MOST) -> list[str]:
    """The first of them, and how many more there are."""
    rest = len(lines) - most
    return list(lines) if rest <= 0 else [*lines[:most], f"  … and {rest:,} more"]


def change_line(change: FileChange) -> str:
    old = f"{path_text(change.old_path)} => " if change.old_path is not None else ""
    said = "" if change.change in ("added", "modified", "deleted", "renamed") else f" ({change.change})"
    return f"{MARKS.get(change.change, '~')} {old}{path_text(change.path)}{said}"


def described(change: FileChange) -> dict[str, Any]:
    """For programs."""
    return {
        "path": change.path,
        "change": change.change,
        "size": change.size,
        "sha256": change.sha256,
        "old_path": change.old_path,
    }


def say_skipped(call: Invocation, skipped: Sequence[Skipped]) -> None:
    for line in few([left_out(one) for one in skipped]):
        say(call, line)


def left_out(skipped: Skipped) -> str:
    if rules := rules_text(skipped):
        return f"ignore rules: {rules}"
    return f"left out: {path_text(skipped.path)} ({printable(skipped.reason)})"


def rules_text(skipped: Skipped) -> str:
    """What is wrong with an ignore file, which is captured itself; empty when it is about something else."""
    before, _, said = skipped.reason.partition("rules: ")
    return f"{path_text(skipped.path)}: {printable(said)}" if not before and said else ""


def say_failed(call: Invocation, failed: Sequence[tuple[str, str]]) -> None:
    for line in few([f"failed: {path_text(path)}: {printable(reason)}" for path, reason in failed]):
        say(call, line)


def changes_between(store: Store, old: Checkpoint | None, new: Checkpoint) -> list[FileChange]:
    """How the files of two checkpoints differ; nothing where one of them holds none."""
    if old is None or old.record.files is None or new.record.files is None or old.id == new.id:
        return []
    from lastgood.engine.difference import FilesDiff

    return FilesDiff(old.record.files, new.record.files, store.filing.blobs.read).changes


def holds_whole_folders(checkpoint: Checkpoint) -> bool:
    """Whether it can be compared: it has files, and not only some that were listed."""
    return any(not root.partial for root in checkpoint.record.files or ())


def interrupted_restores(call: Invocation, store: Store) -> list[Journal]:
    """Restores of the task's files, in the folders of the workspace, that were begun by a process that is gone.

    Looking changes nothing.
    """
    from lastgood.local.process import this_process

    folders = call.folders()
    if folders is None or not store.catalog.journals(this_process().host):
        return []
    from lastgood.engine.journals import interrupted_restores
    from lastgood.engine.workspace import Workspace

    owner = call.owner or store.user
    position = store.catalog.position(owner, call.task_id())
    found = interrupted_restores(store.catalog, position.task.id, owner) if position else []
    paths = {root.path for root in Workspace(store.filing, folders).roots}
    return [journal for journal in found if paths.issuperset(journal.paths)]


@contextmanager
def naming_the_switch() -> Iterator[None]:
    """That the files here are another branch's is said in the words of the command line."""
    try:
        yield
    except ConflictError as error:
        if "branch_id" not in error.details:
            raise
        raise ConflictError(
            str(error),
            hint=f"`lastgood branch --switch` changes the files, too; `--task {error.details['branch_id']}` works on "
            "the branch they are of; --no-files saves without files",
            head=error.head,
            **error.details,
        ) from error
