"""`lastgood retry`"""

from __future__ import annotations

from lastgood.cli.asking import ask, subcommand_that_asks, task_argument
from lastgood.cli.invocation import Invocation


@subcommand_that_asks
@task_argument()
def command(call: Invocation, work: str | None, wait: float | None, request_id: str | None) -> None:
    """Try work again that was stopped or has failed, from its last checkpoint."""
    ask(call, work, lambda control: control.retry(id=request_id), wait)
