"""`lastgood restore`"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, printable, say
from lastgood.cli.summary import summary
from lastgood.errors import EvidenceError


@subcommand
@click.argument("checkpoint")
@click.option("--override-evidence", is_flag=True, help="Restore it although its evidence does not hold.")
@click.option("--message", "-m", default="", metavar="TEXT", help="Why.")
def command(call: Invocation, checkpoint: str, override_evidence: bool, message: str) -> None:
    """Go back to CHECKPOINT: a new branch begins there and becomes the active one.

    What was saved later stays on the branch that is left; `lastgood undo` goes back to it.
    """
    with call.open_to_work() as store:
        task = store.task(call.task_id(), owner=call.owner)
        with naming_the_override():
            restored = task.restore(checkpoint, verify=not override_evidence, message=message)
        branch = store.catalog.branch(task.owner, restored.branch_id)
        name = branch.name if branch else ""
        chosen = store.get_checkpoint(restored.checkpoint_id, owner=call.owner)
        new = restored.checkpoint
        data = {
            "checkpoint_id": restored.checkpoint_id,
            "new_checkpoint_id": new.id,
            "branch_id": restored.branch_id,
            "branch": name,
            "before": restored.before.id if restored.before else None,
            "checkpoint": summary(new),
        }
    answer(call, data, [f"restored @{chosen.sequence} as @{new.sequence}, on the new branch {printable(name)}"])
    say(call, "`lastgood undo` takes it back")


@contextmanager
def naming_the_override() -> Iterator[None]:
    """Evidence that does not hold is refused in the words of the command line."""
    try:
        yield
    except EvidenceError as error:
        raise EvidenceError(
            str(error),
            hint="`lastgood last-good` finds one that is good; --override-evidence goes back to this one all the same",
            **error.details,
        ) from error
