"""`lastgood last-good`"""

from __future__ import annotations

import click

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer
from lastgood.cli.summary import line, summary
from lastgood.errors import NotFoundError


@subcommand
@click.option("--verified", is_flag=True, help="Only one with evidence that holds.")
@click.option("--type", "type_", metavar="TYPE", help="Only one of this type.")
def command(call: Invocation, verified: bool, type_: str | None) -> None:
    """Find the newest checkpoint of the active branch that is intact and whose evidence holds now.

    One without evidence will do, unless --verified.
    """
    with call.open_to_work() as store:
        task_id = call.task_id()
        found = store.last_good(task_id, verified=verified, checkpoint_type=type_, owner=call.owner)
        if found is None:
            asked = "is intact, with evidence that holds" if verified else "is intact and not known to be bad"
            raise NotFoundError(f"no checkpoint of {task_id!r} {asked}", hint="`lastgood verify --all` says why")
        data = {"checkpoint": summary(found)}
    answer(call, data, [line(found)])
