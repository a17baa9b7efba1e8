"""`lastgood rounds`"""

from __future__ import annotations

import click

from lastgood.cli.asking import ask, subcommand_that_asks, task_argument
from lastgood.cli.invocation import Invocation


@subcommand_that_asks
@task_argument(required=True)
@click.argument("number", metavar="N", type=click.IntRange(min=1))
def command(call: Invocation, work: str, number: int, wait: float | None, request_id: str | None) -> None:
    """Give work N rounds more than were planned; also work that is completed: then run it again."""
    ask(call, work, lambda control: control.add_rounds(number, id=request_id), wait)
