"""`lastgood undo` and `lastgood redo`"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import click

from lastgood.cli.command import subcommand, workspace_options
from lastgood.cli.failure import PARTLY
from lastgood.cli.files import change_line, few, say_failed
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import print_result, printable, say
from lastgood.cli.progress import counting
from lastgood.cli.summary import line
from lastgood.task import Task
from lastgood.views.branch import find_branch
from lastgood.views.checkpoint import view_checkpoint
from lastgood.views.files import changes_between, view_failed
from lastgood.views.restore import MoveView, deleted_paths, find_failed, find_saved_first, newest_sequence

if TYPE_CHECKING:
    from lastgood import Checkpoint


@subcommand
@workspace_options
def undo(call: Invocation) -> None:
    """Take back the last restore or switch of the task, any number of times. No checkpoint is lost by it.

    The files of the workspace, if there is one, go back, too; what they are now is saved first.
    """
    move(call, "undone", Task.undo)


@subcommand
@workspace_options
def redo(call: Invocation) -> None:
    """Do again what `lastgood undo` took back. A save, a restore or a switch in between ends that."""
    move(call, "redone", Task.redo)


def move(call: Invocation, action: Literal["undone", "redone", "switched"], make: Callable[[Task], Checkpoint]) -> None:
    """Make another branch the active one, let the files follow, and print where the task stands now."""
    with call.open_to_work() as store:
        task = call.work_on(store)
        call.alerts.silenced.add("restore_incomplete")
        left, newest = task.head, newest_sequence(store, task)
        with counting(call, "putting files back"):
            head = make(task)
        branch = find_branch(store, task.task_id, head.branch_id, task.owner)
        name, has_files = branch.name if branch else "", call.folders() is not None
        kept = find_saved_first(store, task, left, head)
        changes = changes_between(store, kept or left, head, task.owner) if has_files else []
        failed = find_failed(store, task, action, head, newest) if has_files else []
        view = MoveView(
            action=action,
            branch_id=head.branch_id,
            branch=name,
            head=view_checkpoint(head),
            saved_first=kept.id if kept else None,
            restored=[one.path for one in changes if one.change != "deleted"],
            deleted=deleted_paths(changes),
            failed=view_failed(failed),
        )
    lines = [f"{action}: on {printable(name)} now", line(head)]
    print_result(call, view, [*lines, *few([change_line(change) for change in changes])])
    if kept is not None:
        say(call, f"the files as they were are saved as @{kept.sequence}")
    say_failed(call, failed)
    if failed:
        click.get_current_context().exit(PARTLY)
