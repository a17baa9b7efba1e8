"""`lastgood pause`"""

from __future__ import annotations

from lastgood.cli.asking import ask, subcommand_that_asks, task_argument
from lastgood.cli.invocation import Invocation


@subcommand_that_asks
@task_argument()
def command(call: Invocation, work: str | None, wait: float | None, request_id: str | None) -> None:
    """Pause work at its next boundary: it is saved there, and waits."""
    ask(call, work, lambda control: control.pause(id=request_id), wait)
