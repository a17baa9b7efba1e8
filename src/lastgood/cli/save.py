"""`lastgood save`"""

from __future__ import annotations

from typing import Any

import click

from lastgood.cli.command import subcommand
from lastgood.cli.document import parse, parse_state, read_state
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, printable, say, short_id, size_text
from lastgood.cli.summary import summary
from lastgood.engine.checkpoint import Checkpoint
from lastgood.errors import InvalidError


@subcommand
@click.option("--state", metavar="FILE", help="The whole state, as JSON; - reads stdin.")
@click.option("--set", "settings", multiple=True, metavar="KEY=JSON", help="Change one key; may be repeated.")
@click.option("--message", "-m", default="", metavar="TEXT", help="What this checkpoint is.")
@click.option("--type", "type_", default="manual", show_default=True, metavar="TYPE", help="Why it is made.")
@click.option("--step", default="initial", show_default=True, metavar="ID", help="The step it belongs to.")
@click.option("--key", metavar="KEY", help="Saving again with this key and the same content changes nothing.")
@click.option("--metadata", metavar="JSON", help="A JSON object to keep with it.")
def command(
    call: Invocation,
    state: str | None,
    settings: tuple[str, ...],
    message: str,
    type_: str,
    step: str,
    key: str | None,
    metadata: str | None,
) -> None:
    """Save a checkpoint on top of whatever the task's head is at that moment.

    --state replaces the whole state. --set changes keys of it, or without --state of the head's state.
    """
    if state is None and not settings:
        raise InvalidError("there is nothing to save", hint="give --state FILE, or --set KEY=JSON")
    changes = read_settings(settings)
    fields: dict[str, Any] = {"message": message, "type": type_, "step_id": step, "key": key}
    if metadata is not None:
        fields["metadata"] = parse("metadata", metadata)
    whole = None if state is None else changed(read_state("state", state), changes)
    with call.open_to_work(create=True) as store:
        task = store.task(call.task_id(), owner=call.owner)
        if state is not None:
            saved = task.append(whole, **fields)
        else:
            with store.catalog.queue():
                head = task.refresh()
                saved = task.save(changed(head.state if head else {}, changes), **fields)
        large = saved.state_size > store.options.warn_state_bytes
    answer(call, {"checkpoint": summary(saved)}, [_sentence(saved)])
    if large:
        say(call, f"note: the state takes {size_text(saved.state_size)}; keep large content in files")


def read_settings(settings: tuple[str, ...]) -> dict[str, Any]:
    """What --set KEY=JSON says, wherever a command takes it."""
    return dict(map(_setting, settings))


def _setting(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise InvalidError(f"--set takes KEY=JSON, not {text[:80]!r}", hint="as in --set round=3", field="set")
    return key, parse_state(f"--set {key}", value)


def changed(state: Any, changes: dict[str, Any]) -> Any:
    """`state` with keys changed."""
    if not changes:
        return state
    if type(state) is not dict:
        raise InvalidError(
            f"--set changes keys, and the state is {type(state).__name__}", hint="give the whole --state", field="set"
        )
    return {**state, **changes}


def _sentence(saved: Checkpoint) -> str:
    return f"saved {short_id(saved.id)} @{saved.sequence} of {printable(saved.task_id)}"
