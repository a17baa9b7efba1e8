"""`lastgood log`"""

from __future__ import annotations

import click

from lastgood.catalog.contract import MAX_PAGE
from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, fitted, say, table
from lastgood.cli.summary import ROW_HEAD, row, summary
from lastgood.engine.checkpoint import Checkpoint


@subcommand
@click.option("--limit", "-n", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@click.option("--type", "type_", metavar="TYPE", help="Only those of this type.")
@click.option("--before", type=click.IntRange(min=1), metavar="SEQ", help="Only those before this sequence.")
def command(call: Invocation, limit: int, type_: str | None, before: int | None) -> None:
    """List a task's checkpoints, newest first; * marks the head."""
    found: list[Checkpoint] = []
    task_id = call.task_id()
    with call.open() as store:
        branch = store.line(task_id, call.owner or store.user, active=True).branch
        while len(found) < limit:
            wanted = min(limit - len(found), MAX_PAGE)
            page = store.page_checkpoints(task_id, wanted, type_, before=before, owner=call.owner)
            found += page.checkpoints
            if len(page.checkpoints) < wanted:
                break
            before = found[-1].sequence
    head_id = branch.head.id if branch and branch.head else None
    lines = table([row(checkpoint, head_id) for checkpoint in found], ROW_HEAD)
    listed = [{**summary(checkpoint), "head": checkpoint.id == head_id} for checkpoint in found]
    answer(call, {"checkpoints": listed, "total": page.total}, map(fitted, lines))
    if len(found) < page.total:
        say(call, f"{len(found)} of {page.total}; -n shows more, --before goes on")
