"""`lastgood stop`"""

from __future__ import annotations

from lastgood.cli.asking import ask, subcommand_that_asks, task_argument
from lastgood.cli.invocation import Invocation


@subcommand_that_asks
@task_argument()
def command(call: Invocation, work: str | None, wait: float | None, request_id: str | None) -> None:
    """End work at its next boundary: it is saved there, and can be retried."""
    ask(call, work, lambda control: control.stop(id=request_id), wait)
