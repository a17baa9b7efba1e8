"""`lastgood branch`"""

from __future__ import annotations

from typing import Any

import click

from lastgood.cli.command import subcommand, workspace_options
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, printable, say
from lastgood.cli.summary import moment_text
from lastgood.model.identity import moment
from lastgood.model.task import BranchInfo
from lastgood.store import Store


@subcommand
@click.option("--switch", metavar="NAME", help="Make this branch the active one; a name or an id.")
@click.option("--delete", metavar="NAME", help="Delete this branch and what only it has.")
@click.option("--limit", "-n", type=click.IntRange(min=1), default=20, show_default=True, help="How many are drawn.")
@workspace_options
def command(call: Invocation, switch: str | None, delete: str | None, limit: int) -> None:
    """Draw the tree of the task's branches and their checkpoints, newest at the top, the active one leftmost.

    Of each checkpoint: whether its evidence held (v verified, x not, ? there is none), its age, type, tags and
    message. Long runs are folded; `lastgood log` lists them.
    """
    if switch is not None and delete is not None:
        raise click.UsageError("branch takes --switch or --delete, not both")
    if switch is not None:
        from lastgood.cli.undo import move

        move(call, "switched", lambda task: task.switch(switch))
    elif delete is not None:
        _delete(call, delete)
    else:
        with call.open() as store:
            _draw(call, store, limit)


def _delete(call: Invocation, name: str) -> None:
    with call.open_to_work() as store:
        task = store.task(call.task_id(), owner=call.owner)
        count = task.delete_branch(name)
    answer(call, {"deleted": name, "checkpoints": count}, [f"deleted {printable(name)} with {count} checkpoint(s)"])


def _draw(call: Invocation, store: Store, limit: int) -> None:
    from lastgood.cli.drawing import draw, terminal_glyphs, terminal_width
    from lastgood.cli.tree import read_tree

    task = store.line(call.task_id(), call.owner or store.user).task
    if call.json:
        found = store.catalog.branches(task)
        answer(call, {"branches": [_described(one, task.active_branch_id) for one in found]}, [])
        return
    tree = read_tree(store, task, limit)
    for line in draw(tree, store, glyphs=terminal_glyphs(), width=terminal_width()):
        click.echo(line)
    if tree.left_out:
        say(call, f"{tree.left_out} older branch(es) are not shown; -n shows more")


def _described(branch: BranchInfo, active: str) -> dict[str, Any]:
    return {
        "id": branch.id,
        "name": branch.name,
        "description": branch.description,
        "active": branch.id == active,
        "deleted": branch.deleted,
        "origin_id": branch.origin_id,
        "origin_sequence": branch.origin_sequence,
        "head_id": branch.head.id if branch.head else None,
        "head_sequence": branch.head.sequence if branch.head else None,
        "version": branch.version,
        "control_state": branch.control_state,
        "checkpoints": branch.checkpoints,
        "created_at": moment_text(moment(branch.created_at)),
        "created_by": branch.created_by,
        "metadata": branch.metadata,
    }
