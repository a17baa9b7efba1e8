"""`lastgood diff`"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from lastgood.cli.completion import complete_checkpoints
from lastgood.cli.invocation import Invocation, subcommand_with_paths, workspace_options
from lastgood.cli.output import (
    counting,
    fitted,
    json_text,
    printable,
    printable_lines,
    say,
    shortened,
    styled,
    value_text,
)
from lastgood.cli.summary import place_text
from lastgood.views.files import (
    Compared,
    compare_files,
    compare_states,
    find_whole,
    path_text,
    view_diff,
    without_folders,
)

if TYPE_CHECKING:
    from lastgood import Checkpoint, Store
    from lastgood.compare.state import StateChange
    from lastgood.types import FilesDiff

LONGEST = 200


@subcommand_with_paths
@click.argument("before", required=False, shell_complete=complete_checkpoints)
@click.argument("after", required=False, shell_complete=complete_checkpoints)
@click.option("--state", is_flag=True, help="Only the state.")
@click.option("--files", is_flag=True, help="Only the files, as a patch that `git apply` takes.")
@click.option("--stat", is_flag=True, help="A line for each file: lines added and removed.")
@click.option("--summary", is_flag=True, help="One paragraph.")
@workspace_options
def diff(
    call: Invocation,
    before: str | None,
    after: str | None,
    state: bool,
    files: bool,
    stat: bool,
    summary: bool,
    paths: tuple[str, ...],
) -> None:
    """Compare the checkpoint BEFORE with AFTER, in state and files.

    Without AFTER the files of BEFORE (default: HEAD) are compared with those on disk, if there is a workspace;
    else with HEAD (default: HEAD~1 with HEAD). Paths after -- limit it to those files and folders.
    """
    if state and (files or paths):
        raise click.UsageError("--state leaves files out: not with --files, nor with paths")
    if stat and summary:
        raise click.UsageError("diff takes --stat or --summary, not both")
    paths = tuple(call.in_workspace(path, pattern=True) for path in paths)
    with_disk = after is None and not state and call.folders() is not None
    with call.open_to_work() as store:
        task = store.task(call.task_id(), owner=call.owner)
        old = task.find(before or ("HEAD" if with_disk else "HEAD~1"))
        if with_disk and before is None:
            old = _find_whole(store, call, old, task.owner)
        new = None if with_disk else task.find(after or "HEAD")
        with counting(call, "comparing"):
            found = Compared(
                old,
                new,
                None if files or paths else compare_states(task, old, new),
                None if state else _compare_files(store, call, old, new, paths),
            )
            document = json_text(view_diff(found)) if call.json else ""
        if call.json:
            click.echo(document)
        elif summary:
            click.echo(printable(found.summary()))
        else:
            _print(found, stat)
        _say_sameness(call, found)


def _find_whole(store: Store, call: Invocation, head: Checkpoint, owner: str) -> Checkpoint:
    found = find_whole(store, head, owner)
    if found is None or found.id == head.id:
        return head
    what = "only files that were listed" if head.record.files else "no files"
    say(call, f"note: {place_text(head)} holds {what}; compared with {place_text(found)}")
    return found


def _compare_files(
    store: Store, call: Invocation, old: Checkpoint, new: Checkpoint | None, paths: tuple[str, ...]
) -> FilesDiff | None:
    """Compare files; None where one of the two was saved without files, or with some that were listed alone."""
    if (without := without_folders(old, new)) is not None:
        if new is None or paths or any(one.record.files for one in (old, new)):
            what = "only files that were listed" if without.record.files else "no files"
            say(call, f"note: {place_text(without)} holds {what}; files are not compared")
        return None
    task = call.work_on(store) if new is None else store.task(call.task_id(), owner=call.owner)
    return compare_files(store, task, old, new, paths)


def _print(found: Compared, stat: bool) -> None:
    """Print the state first: what reads a patch passes over what stands before it."""
    for change in found.state or ():
        for line in _change_lines(change):
            click.echo(line)
    if found.files is None:
        return
    if stat:
        from lastgood.compare.text import stat_line

        for one in found.files.stats:
            click.echo(printable(stat_line(one)))
    elif sys.stdout.isatty():
        for line in _colored(found.files.patch()):
            click.echo(line)
    else:
        click.echo(found.files.patch(), nl=False)


def _colored(patch: bytes) -> Iterator[str]:
    for line in patch.decode("utf-8", "backslashreplace").split("\n")[:-1]:
        style: dict[str, Any] = {"bold": True} if line.startswith("diff ") else {}
        line = re.sub(r"^(index \w{7})\w{33}\.\.(\w{7})\w{33}", r"\1..\2", line)  # as git shows it
        style = {"+": {"fg": "green"}, "-": {"fg": "red"}, "@": {"fg": "cyan"}}.get(line[:1], style)
        yield styled(printable_lines(line), **style) if style else printable_lines(line)


def _say_sameness(call: Invocation, found: Compared) -> None:
    old = place_text(found.old)
    if found.state or found.files:
        return
    if found.new is None:
        if found.files is not None:
            say(call, f"the files on disk are those of {old}")
    else:
        what = "states" if found.files is None else "files" if found.state is None else "states and files"
        say(call, f"the {what} of {old} and {place_text(found.new)} are the same")


def _change_lines(change: StateChange) -> list[str]:
    path = printable(path_text(change.path))
    lines = []
    if change.kind != "added":
        lines.append(styled(fitted(f"- {path}: {_value(change.before)}"), fg="red"))
    if change.kind != "removed":
        lines.append(styled(fitted(f"+ {path}: {_value(change.after)}"), fg="green"))
    return lines


def _value(value: Any) -> str:
    return shortened(value_text(value), LONGEST)
