"""`lastgood diff`"""

from __future__ import annotations

from typing import Any

import click

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, fitted, json_text, printable, say, short_id, shortened, styled
from lastgood.content.difference import Change, compare

LONGEST = 200


@subcommand
@click.argument("before", default="HEAD~1")
@click.argument("after", default="HEAD")
def command(call: Invocation, before: str, after: str) -> None:
    """Compare the state of the checkpoint BEFORE with that of AFTER."""
    with call.open() as store:
        task_id = call.task_id()
        old = store.find_checkpoint(before, task_id, owner=call.owner)
        new = store.find_checkpoint(after, task_id, owner=call.owner)
        changes = compare(old.state, new.state)
    data = {"before": old.id, "after": new.id, "changes": [_for_programs(change) for change in changes]}
    answer(call, data, (line for change in changes for line in _for_people(change)))
    if not changes:
        say(call, f"the states of {short_id(old.id)} and {short_id(new.id)} are the same")


def path_text(path: tuple[Any, ...]) -> str:
    """A path as people write it: `messages[3].role`; other keys in brackets, as JSON."""
    text = ""
    for step in path:
        if type(step) is str and step.isidentifier():
            text += f".{step}" if text else step
        else:
            text += f"[{json_text(step)}]"
    return text or "(all of it)"


def _for_programs(change: Change) -> dict[str, Any]:
    shown: dict[str, Any] = {"kind": change.kind, "path": list(change.path), "text": path_text(change.path)}
    if change.kind != "added":
        shown["before"] = change.before
    if change.kind != "removed":
        shown["after"] = change.after
    return shown


def _for_people(change: Change) -> list[str]:
    path = printable(path_text(change.path))
    lines = []
    if change.kind != "added":
        lines.append(styled(fitted(f"- {path}: {_value(change.before)}"), fg="red"))
    if change.kind != "removed":
        lines.append(styled(fitted(f"+ {path}: {_value(change.after)}"), fg="green"))
    return lines


def _value(value: Any) -> str:
    return shortened(json_text(value), LONGEST)
