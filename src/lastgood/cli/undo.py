"""`lastgood undo`"""

from __future__ import annotations

from collections.abc import Callable

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, printable
from lastgood.cli.summary import line, summary
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.task import Task


@subcommand
def command(call: Invocation) -> None:
    """Take back the last restore or switch of the task, any number of times. No checkpoint is lost by it."""
    move(call, "undone", Task.undo)


def move(call: Invocation, action: str, make: Callable[[Task], Checkpoint]) -> None:
    """Make another branch the active one, and say where the task stands now."""
    with call.open_to_work() as store:
        task = store.task(call.task_id(), owner=call.owner)
        head = make(task)
        branch = store.catalog.branch(task.owner, head.branch_id or "")
        name = branch.name if branch else ""
        data = {"action": action, "branch_id": head.branch_id, "branch": name, "head": summary(head)}
    answer(call, data, [f"{action}: on {printable(name)} now", line(head)])
