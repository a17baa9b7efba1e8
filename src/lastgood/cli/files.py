"""Files as lines for people: paths that cannot steer a terminal, what was left out, what changed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lastgood.cli.output import Format, printable, say
from lastgood.errors import FolderTakenError

if TYPE_CHECKING:
    from lastgood import FileChange, Skipped

MOST = 20
"""Paths that are printed for people, of each sort; programs get all."""

MARKS = {"added": "+", "deleted": "-"}
"""Before the path of a change; everything else is `~`."""


def path_text(path: str) -> str:
    """Return a path on one line, in C's quotes where it holds what cannot be printed."""
    from lastgood.compare.text import path_text as quoted

    return quoted(os.fsencode(path)) if path else ""


def few(lines: Sequence[str], most: int = MOST) -> list[str]:
    """Return the first lines, and how many more there are."""
    rest = len(lines) - most
    return list(lines) if rest <= 0 else [*lines[:most], f"  … and {rest:,} more"]


def change_line(change: FileChange) -> str:
    """Return a change with its mark before the path."""
    old = f"{path_text(change.old_path)} => " if change.old_path is not None else ""
    said = "" if change.change in ("added", "modified", "deleted", "renamed") else f" ({change.change})"
    return f"{MARKS.get(change.change, '~')} {old}{path_text(change.path)}{said}"


def say_skipped(call: Format, skipped: Sequence[Skipped]) -> None:
    """Print what was not captured."""
    for line in few([left_out(one) for one in skipped]):
        say(call, line)


def left_out(skipped: Skipped) -> str:
    """Return what was not captured, and why."""
    if rules := rules_text(skipped):
        return f"ignore rules: {rules}"
    return f"left out: {path_text(skipped.path)} ({printable(skipped.reason)})"


def rules_text(skipped: Skipped) -> str:
    """Return what is wrong with an ignore file, which is captured itself; empty when it is about something else."""
    before, _, said = skipped.reason.partition("rules: ")
    return f"{path_text(skipped.path)}: {printable(said)}" if not before and said else ""


def say_failed(call: Format, failed: Sequence[tuple[str, str]]) -> None:
    """Print what could not be put back."""
    for line in few([f"failed: {path_text(path)}: {printable(reason)}" for path, reason in failed]):
        say(call, line)


@contextmanager
def naming_the_switch() -> Iterator[None]:
    """Refuse files of another branch in the words of the command line."""
    try:
        yield
    except FolderTakenError as error:
        raise FolderTakenError(
            str(error),
            hint=f"`lastgood branch --switch` changes the files, too; `--task {error.details['branch_id']}` works on "
            "the branch they are of; --no-files saves without files",
            head=error.head,
            **error.details,
        ) from error
