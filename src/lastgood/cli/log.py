"""`lastgood log`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lastgood.cli.invocation import Invocation, subcommand
from lastgood.cli.output import fitted, json_text, printable, say, table
from lastgood.cli.summary import ROW_HEAD, row
from lastgood.views.checkpoint import view_listed
from lastgood.views.records import find_head_id

if TYPE_CHECKING:
    from lastgood import Store


@subcommand
@click.option("--limit", "-n", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@click.option("--type", "type_", metavar="TYPE", help="Only those of this type.")
@click.option("--before", type=click.IntRange(min=1), metavar="SEQ", help="Only those before this sequence.")
def log(call: Invocation, limit: int, type_: str | None, before: int | None) -> None:
    """List a task's checkpoints, newest first.

    * marks the head, v what is verified, x what is not, ? what has no evidence.
    """
    with call.open() as store:
        _list(call, store, limit, type_, before)


def _list(call: Invocation, store: Store, limit: int, type_: str | None, before: int | None) -> None:
    task_id = call.task_id()
    found, total = store.page_checkpoints(task_id, limit, type_, before=before, owner=call.owner)
    head_id = find_head_id(store, call.owner, task_id)
    if call.json:
        listed = [view_listed(checkpoint, head_id) for checkpoint in found]
        click.echo(json_text({"checkpoints": listed, "total": total}))
        return
    rows, head = [row(checkpoint, head_id) for checkpoint in found], list(ROW_HEAD)
    branches = {branch.id: branch.name for branch in store.branches(task_id, owner=call.owner)}
    if len(branches) > 1:
        head.insert(-1, "branch")
        for cells, checkpoint in zip(rows, found, strict=True):
            cells.insert(-1, printable(branches.get(checkpoint.branch_id or "", "")))
    for line in table(rows, head):
        click.echo(fitted(line))
    if len(found) < total:
        say(call, f"{len(found)} of {total}; -n shows more, --before goes on")
