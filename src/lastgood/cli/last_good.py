"""`lastgood last-good`"""

from __future__ import annotations

import click

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, say, short_id
from lastgood.cli.summary import line as line_of
from lastgood.cli.summary import summary
from lastgood.engine.recovery import find_last_good
from lastgood.engine.verify import Verification
from lastgood.errors import NotFoundError
from lastgood.model.identity import check_type


@subcommand
@click.option("--verified", is_flag=True, help="Only one with evidence that holds.")
@click.option("--type", "type_", metavar="TYPE", help="Only one of this type.")
def command(call: Invocation, verified: bool, type_: str | None) -> None:
    """Find the newest checkpoint of the active branch that is intact and whose evidence holds now.

    One without evidence will do, unless --verified.
    """
    kind = None if type_ is None else check_type("checkpoint_type", type_)
    refused: list[Verification] = []
    with call.open_to_work() as store:
        task_id = call.task_id()
        line = store.line(task_id, call.owner or store.user, active=True)
        found = find_last_good(store.filing, store.user, line, verified=verified, type=kind, on_refused=refused.append)
        unsaid = [_unsaid(one) for one in refused[:1]]
        if found is None:
            asked = "is intact, with evidence that holds" if verified else "is intact and not known to be bad"
            told = "; ".join([f"no checkpoint of {task_id!r} {asked}", *unsaid])
            raise NotFoundError(told, hint="`lastgood verify --all` says why")
        for sentence in unsaid:
            say(call, f"note: {sentence}")
        data = {"checkpoint": summary(found)}
    answer(call, data, [line_of(found)])


def _unsaid(one: Verification) -> str:
    return f"whether {short_id(one.checkpoint_id)} is good cannot be said here: {one.refusal}"
