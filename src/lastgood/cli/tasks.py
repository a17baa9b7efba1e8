"""`lastgood tasks`"""

from __future__ import annotations

import click

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, fitted, local_time, printable, say, short_id, table
from lastgood.cli.summary import moment_text
from lastgood.model.identity import moment


@subcommand
@click.option("--limit", "-n", type=click.IntRange(1, 1000), default=100, show_default=True, help="How many.")
@click.option("--after", type=click.IntRange(min=1), metavar="NUMBER", help="Go on after the task of this number.")
def command(call: Invocation, limit: int, after: int | None) -> None:
    """List tasks, newest first: everybody's, or with --owner one owner's."""
    with call.open() as store:
        found = store.tasks(owner=call.owner, after=after or 0, limit=limit)
    listed = [
        {
            "number": task.number,
            "id": task.id,
            "owner": task.owner,
            "checkpoints": task.checkpoints,
            "active_branch_id": task.active_branch_id,
            "created_at": moment_text(moment(task.created_at)),
        }
        for task in found
    ]
    rows = [
        [
            printable(task.id),
            printable(task.owner),
            str(task.checkpoints),
            short_id(task.active_branch_id),
            local_time(moment(task.created_at)),
        ]
        for task in found
    ]
    lines = table(rows, ("task", "owner", "checkpoints", "active branch", "created"))
    answer(call, {"tasks": listed}, map(fitted, lines))
    if len(found) == limit:
        say(call, f"perhaps there are more: --after {found[-1].number} goes on")
