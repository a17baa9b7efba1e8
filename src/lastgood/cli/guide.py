"""`lastgood guide`"""

from __future__ import annotations

import click

from lastgood.cli.asking import ask, subcommand_that_asks, task_argument
from lastgood.cli.document import STDIN, read_text
from lastgood.cli.invocation import Invocation


@subcommand_that_asks
@task_argument(required=True)
@click.argument("text")
def command(call: Invocation, work: str, text: str, wait: float | None, request_id: str | None) -> None:
    """Tell work something. TEXT is what it is told; - reads it from stdin.

    It becomes part of the next checkpoint, and the work sees it from its next boundary on.
    """
    said = read_text("TEXT", STDIN).rstrip("\n") if text == STDIN else text
    ask(call, work, lambda control: control.guide(said, id=request_id), wait)
