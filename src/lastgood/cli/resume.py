"""`lastgood resume`"""

from __future__ import annotations

from lastgood.cli.asking import ask, subcommand_that_asks, task_argument
from lastgood.cli.invocation import Invocation


@subcommand_that_asks
@task_argument()
def command(call: Invocation, work: str | None, wait: float | None, request_id: str | None) -> None:
    """Let work go on that is paused, or was stopped, or has failed."""
    ask(call, work, lambda control: control.resume(id=request_id), wait)
