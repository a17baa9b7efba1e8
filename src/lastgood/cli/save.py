"""`lastgood save`"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from lastgood.cli.input import parse, parse_state, read_text
from lastgood.cli.invocation import ANY_PATH, Invocation, subcommand, telling, workspace_options
from lastgood.cli.output import (
    counted,
    counting,
    json_text,
    printable,
    say,
    say_skipped,
    short_id,
    size_text,
    value_text,
)
from lastgood.errors import ConflictError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from lastgood import Checkpoint, Store, Task

TRIES = 50
"""How often a save is retried because others were faster; each time one of them has succeeded."""


@subcommand
@click.option("--state", type=ANY_PATH, metavar="FILE", help="The whole state, as JSON; - reads stdin.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change one key, to JSON or else text; repeatable."
)
@click.option("--message", "-m", default="", metavar="TEXT", help="What this checkpoint is.")
@click.option("--type", "type_", default="manual", show_default=True, metavar="TYPE", help="Category label.")
@click.option("--step", default="initial", show_default=True, metavar="ID", help="The step it belongs to.")
@click.option("--key", metavar="KEY", help="Saving again with this key and the same content changes nothing.")
@click.option("--metadata", metavar="JSON", help="A JSON object, kept with it.")
@click.option("--always", is_flag=True, help="Save even if nothing has changed.")
@click.option("--files", type=ANY_PATH, multiple=True, metavar="PATH...", help="Only these, even if ignored.")
@click.argument("more_files", nargs=-1, metavar="")
@workspace_options
def save(
    call: Invocation,
    state: str | None,
    settings: tuple[str, ...],
    message: str,
    type_: str,
    step: str,
    key: str | None,
    metadata: str | None,
    always: bool,
    files: tuple[str, ...],
    more_files: tuple[str, ...],
) -> None:
    """Save a checkpoint of the task's state, and of the files in its workspace, if there is one.

    --state replaces the whole state. --set changes keys of it, or, without --state, of the newest checkpoint's state.

    If neither state nor files have changed nothing is saved, except with --always, --key, --metadata, --type or --step.
    """
    if more_files and not files:
        raise click.UsageError(f"save does not take {more_files[0]!r}; files are listed after --files")
    folders = call.folders()
    if state is None and not settings and folders is None:
        hint = "`lastgood init` sets this folder up, to save its files; or give --state FILE, or --set KEY=VALUE"
        raise InvalidError("there is nothing to save: no workspace, and no state", hint=hint)
    changes = dict(map(_setting, settings))
    fields: dict[str, Any] = {"message": message, "type": type_, "step_id": step, "key": key}
    if metadata is not None:
        fields["metadata"] = parse("metadata", metadata)
    if files:
        fields["files"] = _below_workspace(folders, (*files, *more_files))
    whole = None if state is None else _changed(parse_state("state", read_text("state", state)), changes)
    only_if_changed = not always and (key, metadata, type_, step) == (None, None, "manual", "initial")
    with call.open_to_work(create=True) as store:
        task = call.work_on(store)
        head = task.head
        with telling(call, task, "nothing was saved"), counting(call, "saving"):
            if state is not None:
                saved = task.append(whole, only_if_changed=only_if_changed, **fields)
            elif settings and not (only_if_changed and head is not None and _holds(head, changes)):
                saved = _save_changed(task, changes, fields)
            else:
                from lastgood.engine.commit import KEPT

                saved = task.append(KEPT, only_if_changed=only_if_changed, **fields)
        is_new = head is None or saved.id != head.id
        if call.json:
            from lastgood.views.checkpoint import view_checkpoint

            about = {"checkpoint": view_checkpoint(saved), "saved": is_new, "skipped": saved.skipped if is_new else ()}
            click.echo(json_text(about))
            return
        sentence = _sentence(store, saved)
    if not is_new:
        since = saved.status if saved.sequence is None else f"@{saved.sequence}"
        click.echo(f"nothing has changed since {since}: nothing was saved (--always saves anyway)")
        return
    click.echo(sentence)
    say_skipped(call, saved, saved.skipped)
    if saved.state_size > call.options().warn_state_bytes:
        say(call, f"note: the state takes {size_text(saved.state_size)}; keep large content in files")


def _holds(head: Checkpoint, changes: dict[str, Any]) -> bool:
    """Return whether the head's state has these values already, of exactly these types."""
    state = head.state
    if type(state) is not dict:
        return False
    return all(key in state and value_text(state[key]) == value_text(value) for key, value in changes.items())


def _save_changed(task: Task, changes: dict[str, Any], fields: dict[str, Any]) -> Checkpoint:
    """Save the head's state with keys changed, as one turn: if another writer came between, try again."""
    for _ in range(TRIES - 1):
        head = task.refresh()
        try:
            return task.save(_changed(head.state if head else {}, changes), **fields)
        except ConflictError:
            now = task.refresh()
            if (now and now.id) == (head and head.id):
                raise  # nothing has moved: it is about something else
    head = task.refresh()
    return task.save(_changed(head.state if head else {}, changes), **fields)


def _below_workspace(folders: str | dict[str, str] | None, files: tuple[str, ...]) -> list[str]:
    """Convert paths as one types them here to those of the workspace."""
    if not isinstance(folders, str):
        what = "there is no workspace" if folders is None else "the workspace has several folders"
        raise InvalidError(f"--files lists files of one folder, and {what}", hint="give --workspace DIR", field="files")
    root = os.path.realpath(folders)
    listed = []
    for file in files:
        if not os.path.lexists(file):
            hint = "paths begin at the current folder; nothing was saved"
            raise NotFoundError(f"--files: there is no file or folder {file[:200]!r}", hint=hint)
        folder, name = os.path.split(os.path.abspath(file))  # noqa: PTH100
        listed.append(os.path.relpath(os.path.join(os.path.realpath(folder), name), root))  # noqa: PTH118
    return listed


def _setting(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise InvalidError(f"--set takes KEY=VALUE, not {text[:80]!r}", hint="as in --set round=3", field="set")
    try:
        return key, parse_state(f"--set {key}", value)
    except InvalidError as error:
        from json import JSONDecodeError

        if not isinstance(error.__cause__, JSONDecodeError) or value.lstrip()[:1] in ("{", "[", '"'):
            raise
        return key, value  # text, such as done; what looks like JSON and is not, is a mistake


def _changed(state: Any, changes: dict[str, Any]) -> Any:
    if not changes:
        return state
    if type(state) is not dict:
        raise InvalidError(
            f"--set changes keys, and the state is {type(state).__name__}", hint="give the whole --state", field="set"
        )
    return {**state, **changes}


def _sentence(store: Store, saved: Checkpoint) -> str:
    roots = saved.record.files or ()
    size = size_text(sum(root.total_size for root in roots))
    listed = "only " if roots and all(root.partial for root in roots) else ""
    files = f" with {listed}{counted(saved.file_count, 'file')} ({size})" if roots else ""
    if saved.status == "spooled":
        from lastgood.cli.status import spool_text

        return f"spooled {short_id(saved.id)} of {printable(saved.task_id)}{files}: {spool_text(store, saved)}"
    return f"saved @{saved.sequence} of {printable(saved.task_id)}{files}"
