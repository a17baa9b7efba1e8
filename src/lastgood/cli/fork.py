"""`lastgood fork`"""

from __future__ import annotations

import click

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, printable
from lastgood.cli.restore import naming_the_override
from lastgood.cli.summary import summary


@subcommand
@click.argument("checkpoint", default="HEAD")
@click.option("--name", metavar="NAME", help="What the branch is called.  [default: after the one it comes from]")
@click.option("--description", default="", metavar="TEXT", help="What it is for.")
@click.option("--paused", is_flag=True, help="Begin paused.")
@click.option("--override-evidence", is_flag=True, help="Begin there although its evidence does not hold.")
def command(
    call: Invocation, checkpoint: str, name: str | None, description: str, paused: bool, override_evidence: bool
) -> None:
    """Begin a branch at CHECKPOINT (default: HEAD). The task goes on where it was.

    --task with the id that is printed works on the new branch, `lastgood branch --switch` makes it the active one.
    """
    with call.open_to_work() as store:
        task = store.task(call.task_id(), owner=call.owner)
        with naming_the_override():
            forked = task.fork(
                checkpoint, name=name, description=description, paused=paused, verify=not override_evidence
            )
        branch = store.catalog.branch(task.owner, forked.branch_id or "")
        head = forked.head
        assert branch is not None, "it was made a moment ago"
        assert head is not None, "a branch begins with a checkpoint"
        data = {
            "checkpoint_id": branch.origin_id,
            "branch_id": branch.id,
            "branch": branch.name,
            "control_state": branch.control_state,
            "checkpoint": summary(head),
        }
    sentence = f"forked @{branch.origin_sequence} as @{head.sequence}, on the new branch {printable(branch.name)}"
    answer(call, data, [sentence, f"--task {branch.id} works on it"])
