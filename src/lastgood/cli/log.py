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
    from lastgood import Checkpoint, Store

PAGE = 1000


@subcommand
@click.option("--limit", "-n", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@click.option("--type", "type_", metavar="TYPE", help="Only those of this type.")
@click.option("--before", type=click.IntRange(min=1), metavar="SEQ", help="Only those before this sequence.")
@click.option("--all", "everything", is_flag=True, help="All that happened, as `lastgood history`.")
@click.option("--follow", "-f", is_flag=True, help="Oldest first, and then each new one as it comes; Ctrl-C ends it.")
def log(call: Invocation, limit: int, type_: str | None, before: int | None, everything: bool, follow: bool) -> None:
    """List a task's checkpoints, newest first.

    * marks the head, v what is verified, x what is not, ? what has no evidence.
    """
    if follow:
        if before is not None:
            raise click.UsageError("log takes --follow or --before, not both")
        from lastgood.cli.following import follow as follow_task

        follow_task(call, limit, type_, everything=everything)
        return
    if everything:
        from lastgood.cli.history import list_history

        list_history(call, limit, before, types=None if type_ is None else [type_])
        return
    with call.open() as store:
        _list(call, store, limit, type_, before)


def _list(call: Invocation, store: Store, limit: int, type_: str | None, before: int | None) -> None:
    found: list[Checkpoint] = []
    task_id = call.task_id()
    while len(found) < limit:
        wanted = min(limit - len(found), PAGE)
        page = store.page_checkpoints(task_id, wanted, type_, before=before, owner=call.owner)
        found += page.checkpoints
        if len(page.checkpoints) < wanted or found[-1].sequence is None:
            break
        before = found[-1].sequence
    head_id = find_head_id(store, call.owner, task_id)
    if call.json:
        listed = [view_listed(checkpoint, head_id) for checkpoint in found]
        click.echo(json_text({"checkpoints": listed, "total": page.total}))
        return
    rows, head = [row(checkpoint, head_id) for checkpoint in found], list(ROW_HEAD)
    branches = {branch.id: branch.name for branch in store.branches(task_id, owner=call.owner)}
    if len(branches) > 1:
        head.insert(-1, "branch")
        for cells, checkpoint in zip(rows, found, strict=True):
            cells.insert(-1, printable(branches.get(checkpoint.branch_id or "", "")))
    for line in table(rows, head):
        click.echo(fitted(line))
    if len(found) < page.total:
        say(call, f"{len(found)} of {page.total}; -n shows more, --before goes on")
