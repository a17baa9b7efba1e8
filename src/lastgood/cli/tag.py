"""`lastgood tag`"""

from __future__ import annotations

from typing import Any

import click

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, printable, short_id, table
from lastgood.engine.names import resolve
from lastgood.errors import NotFoundError
from lastgood.store import Store


@subcommand
@click.argument("name", required=False)
@click.argument("tag", required=False)
@click.option("--move", is_flag=True, help="Take the tag from the checkpoint that has it.")
@click.option("--delete", metavar="TAG", help="Remove a tag; the checkpoint stays.")
def command(call: Invocation, name: str | None, tag: str | None, move: bool, delete: str | None) -> None:
    """Give the checkpoint NAME the name TAG. Without arguments, list the task's tags."""
    if (name is None) != (tag is None) or (delete is not None and (name is not None or move)):
        raise click.UsageError("tag takes NAME and TAG, or --delete TAG, or nothing")
    with call.open() as store:
        if delete is not None:
            _report(call, delete, _delete(call, store, delete), "deleted")
        elif name is not None and tag is not None:
            checkpoint_id = resolve(store.catalog, call.owner or store.user, name, call.task_id())
            store.tag(checkpoint_id, tag, move=move, owner=call.owner)
            _report(call, tag, checkpoint_id, "tagged")
        else:
            found = store.tags(call.task_id(), owner=call.owner).items()
            rows = [[printable(tag), f"@{at.sequence}", short_id(at.id)] for tag, at in found]
            data = [{"tag": tag, "sequence": at.sequence, "checkpoint_id": at.id} for tag, at in found]
            answer(call, {"tags": data}, table(rows, ("tag", "seq", "checkpoint")))


def _delete(call: Invocation, store: Store, tag: str) -> str:
    task = store.line(call.task_id(), call.owner or store.user).task
    if (stored := store.catalog.tagged(task, tag)) is None:
        raise NotFoundError(f"there is no tag {tag!r}", hint="`lastgood tag` lists them")
    store.untag(stored.id, tag, owner=call.owner)
    return stored.id


def _report(call: Invocation, tag: str, checkpoint_id: str, action: str) -> None:
    data: dict[str, Any] = {"tag": tag, "checkpoint_id": checkpoint_id, "action": action}
    answer(call, data, [f"{action} {printable(tag)} ({short_id(checkpoint_id)})"])
