"""`lastgood repair`"""

from __future__ import annotations

import click

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer
from lastgood.errors import InvalidError


@subcommand
@click.option("--accept-loss", is_flag=True, help="Go on without the acknowledged commits that are gone.")
def command(call: Invocation, accept_loss: bool) -> None:
    """Go on with a store whose last acknowledged commits were lost. A copy of the store is the better way."""
    if not accept_loss:
        raise InvalidError("repair does nothing unasked", hint="say --accept-loss if no copy of the store has them")
    with call.open() as store:
        lost = store.catalog.accept_loss()
    sentence = f"{lost} acknowledged commit(s) are given up" if lost else "nothing was lost"
    answer(call, {"lost": lost}, [sentence])
