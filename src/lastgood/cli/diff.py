"""`lastgood diff`"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from lastgood.cli.command import subcommand_with_paths, workspace_options
from lastgood.cli.files import described as described_file
from lastgood.cli.files import holds_whole_folders
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import (
    answer,
    counted,
    fitted,
    json_text,
    printable,
    printable_lines,
    say,
    short_id,
    shortened,
    styled,
)
from lastgood.cli.progress import counting
from lastgood.cli.summary import place_text
from lastgood.compare.state import StateChange, compare

if TYPE_CHECKING:
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.difference import FilesDiff
    from lastgood.store import Store

LONGEST = 200


class _Compared(NamedTuple):
    """`new` None: the files on disk. `state` or `files` None: they were not compared."""

    old: Checkpoint
    new: Checkpoint | None
    state: list[StateChange] | None
    files: FilesDiff | None


@subcommand_with_paths
@click.argument("before", required=False)
@click.argument("after", required=False)
@click.option("--state", is_flag=True, help="The state alone.")
@click.option("--files", is_flag=True, help="The files alone: a patch that `git apply` takes.")
@click.option("--stat", is_flag=True, help="A line for each file.")
@click.option("--summary", is_flag=True, help="One paragraph.")
@workspace_options
def command(
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
    with_disk = after is None and not state and call.folders() is not None
    with call.open_to_work() as store:
        old = store.find_checkpoint(before or ("HEAD" if with_disk else "HEAD~1"), call.task_id(), owner=call.owner)
        new = None if with_disk else store.find_checkpoint(after or "HEAD", call.task_id(), owner=call.owner)
        with counting(call, "comparing"):
            found = _Compared(
                old,
                new,
                None if files or paths else _compare_states(store, call, old, new),
                None if state else _compare_files(store, call, old, new, paths),
            )
            data = _for_programs(found) if call.json else None
        if call.json:
            answer(call, data, [])
        elif summary:
            click.echo(_in_words(found))
        else:
            _print(found, stat)
        _say_sameness(call, found)


def _compare_states(
    store: Store, call: Invocation, old: Checkpoint, new: Checkpoint | None
) -> list[StateChange] | None:
    """The disk has no state: the head's stands for it, unless that is what is compared with the disk."""
    newer = new or store.find_checkpoint("HEAD", call.task_id(), owner=call.owner)
    return None if new is None and newer.id == old.id else compare(old.state, newer.state)


def _compare_files(
    store: Store, call: Invocation, old: Checkpoint, new: Checkpoint | None, paths: tuple[str, ...]
) -> FilesDiff | None:
    """None where one of the two was saved without files, or with some that were listed alone."""
    without = [one for one in (old, new) if one is not None and not holds_whole_folders(one)]
    if without:
        if new is None or paths or any(one.record.files for one in (old, new)):
            what = "only files that were listed" if without[0].record.files else "no files"
            say(call, f"note: {place_text(without[0])} holds {what}; files are not compared")
        return None
    only = list(paths) or None
    return call.work_on(store).diff(old, None, paths=only).files if new is None else _between(store, old, new, only)


def _between(store: Store, old: Checkpoint, new: Checkpoint, only: list[str] | None) -> FilesDiff:
    from lastgood.engine.browse import require_files
    from lastgood.engine.difference import FilesDiff

    return FilesDiff(require_files(old.record), require_files(new.record), store.filing.blobs.read, only)


def _for_programs(found: _Compared) -> dict[str, Any]:
    return {
        "before": found.old.id,
        "after": found.new.id if found.new else None,
        "changes": [_described(change) for change in found.state or ()],
        "files": None if found.files is None else _described_files(found.files),
        "summary": _in_words(found),
    }


def _described_files(files: FilesDiff) -> list[dict[str, Any]]:
    return [
        {
            **described_file(change),
            "added": stat.lines.added if stat.lines else None,
            "removed": stat.lines.removed if stat.lines else None,
            "note": stat.note,
        }
        for change, stat in zip(files.changes, files.stats, strict=True)
    ]


def _in_words(found: _Compared) -> str:
    words = [] if found.files is None else [printable(found.files.summary)]
    if found.state is not None:
        places = counted(len(found.state), "place")
        words.append(f"The state differs in {places}." if found.state else "The state is the same.")
    return " ".join(words) or "Nothing was compared."


def _print(found: _Compared, stat: bool) -> None:
    """The state first: what reads a patch passes over what stands before it."""
    for change in found.state or ():
        for line in _for_people(change):
            click.echo(line)
    if found.files is None:
        return
    if stat:
        from lastgood.compare.summary import stat_line

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
        style = {"+": {"fg": "green"}, "-": {"fg": "red"}, "@": {"fg": "cyan"}}.get(line[:1], style)
        yield styled(printable_lines(line), **style) if style else printable_lines(line)


def _say_sameness(call: Invocation, found: _Compared) -> None:
    old = short_id(found.old.id)
    if found.state or found.files:
        return
    if found.new is None:
        if found.files is not None:
            say(call, f"the files on disk are those of {old}")
    else:
        what = "states" if found.files is None else "files" if found.state is None else "states and files"
        say(call, f"the {what} of {old} and {short_id(found.new.id)} are the same")


def path_text(path: tuple[Any, ...]) -> str:
    """A path as people write it: `messages[3].role`; other keys in brackets, as JSON."""
    text = ""
    for step in path:
        if type(step) is str and step.isidentifier():
            text += f".{step}" if text else step
        else:
            text += f"[{json_text(step)}]"
    return text or "(all of it)"


def _described(change: StateChange) -> dict[str, Any]:
    shown: dict[str, Any] = {"kind": change.kind, "path": list(change.path), "text": path_text(change.path)}
    if change.kind != "added":
        shown["before"] = change.before
    if change.kind != "removed":
        shown["after"] = change.after
    return shown


def _for_people(change: StateChange) -> list[str]:
    path = printable(path_text(change.path))
    lines = []
    if change.kind != "added":
        lines.append(styled(fitted(f"- {path}: {_value(change.before)}"), fg="red"))
    if change.kind != "removed":
        lines.append(styled(fitted(f"+ {path}: {_value(change.after)}"), fg="green"))
    return lines


def _value(value: Any) -> str:
    return shortened(json_text(value), LONGEST)
