"""`lastgood cancel`"""

from __future__ import annotations

from lastgood.cli.asking import ask, subcommand_that_asks, task_argument
from lastgood.cli.invocation import Invocation


@subcommand_that_asks
@task_argument()
def command(call: Invocation, work: str | None, wait: float | None, request_id: str | None) -> None:
    """End work as stop does, and mark what there is as not good: `lastgood last-good` passes it over."""
    ask(call, work, lambda control: control.cancel(id=request_id), wait)
