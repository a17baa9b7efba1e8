"""`lastgood undo`"""

from __future__ import annotations

from collections.abc import Callable

import click

from lastgood.cli.command import subcommand, workspace_options
from lastgood.cli.failure import PARTLY
from lastgood.cli.files import change_line, changes_between, few, say_failed
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, printable, say
from lastgood.cli.progress import counting
from lastgood.cli.summary import line, summary
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.difference import FileChange
from lastgood.errors import CheckpointError
from lastgood.store import Store
from lastgood.task import Task


@subcommand
@workspace_options
def command(call: Invocation) -> None:
    """Take back the last restore or switch of the task, any number of times. No checkpoint is lost by it.

    The files of the workspace, if there is one, go back, too; what they are now is saved first.
    """
    move(call, "undone", Task.undo)


def move(call: Invocation, action: str, make: Callable[[Task], Checkpoint]) -> None:
    """Make another branch the active one, let the files follow, and say where the task stands now."""
    with call.open_to_work() as store:
        task = call.work_on(store)
        call.teller.says.add("restore_incomplete")
        left, newest = task.head, _newest(store, task)
        with counting(call, "putting files back"):
            head = make(task)
        branch = store.catalog.branch(task.owner, head.branch_id or "")
        name = branch.name if branch else ""
        kept = _kept(store, task, left, head)
        changes = changes_between(store, kept or left, head) if call.folders() is not None else []
        failed = _failed(store, task, action, head, newest) if call.folders() is not None else []
        data = {
            "action": action,
            "branch_id": head.branch_id,
            "branch": name,
            "head": summary(head),
            "saved_first": kept.id if kept else None,
            "restored": [one.path for one in changes if one.change != "deleted"],
            "deleted": deleted_paths(changes),
            "failed": [{"path": path, "reason": reason} for path, reason in failed],
        }
    lines = [f"{action}: on {printable(name)} now", line(head)]
    answer(call, data, [*lines, *few([change_line(change) for change in changes])])
    if kept is not None:
        say(call, f"the files as they were are saved as @{kept.sequence}")
    say_failed(call, failed)
    if failed:
        click.get_current_context().exit(PARTLY)


def deleted_paths(changes: list[FileChange]) -> list[str]:
    """What is not there any more under its old name."""
    gone = [one.path if one.change == "deleted" else one.old_path for one in changes]
    return [path for path in gone if path is not None]


def _newest(store: Store, task: Task) -> int:
    """The sequence of the task's newest checkpoint; 0 for none."""
    position = store.catalog.position(task.owner, task.id)
    found = store.page_checkpoints(task.task_id, 1, owner=task.owner).checkpoints if position else []
    return (found[0].sequence or 0) if found else 0


def _kept(store: Store, task: Task, left: Checkpoint | None, head: Checkpoint) -> Checkpoint | None:
    """The checkpoint that was made of the files as they were, if they were not those of `left`."""
    if left is None:
        return None
    if head.branch_id == left.branch_id:
        before = store.get_checkpoint(head.parent_id, owner=task.owner) if head.parent_id else None
    else:
        branch = store.catalog.branch(task.owner, left.branch_id or "")
        before = store.get_checkpoint(branch.head.id, owner=task.owner) if branch and branch.head else None
    return before if before and before.type == "before_restore" and before.id != left.id else None


def _failed(store: Store, task: Task, action: str, head: Checkpoint, newest: int) -> list[tuple[str, str]]:
    """What is not on disk as it should be: `head` was made because of that, and differs from what was wanted."""
    if (head.sequence or 0) <= newest:
        return []
    try:
        entry = store.history(task.task_id, kinds=[action], limit=1, owner=task.owner)[0]
        wanted_id = entry.checkpoint_id or head.parent_id
        wanted = store.get_checkpoint(wanted_id, owner=task.owner) if wanted_id else None
    except (CheckpointError, IndexError):
        return []
    return [(one.path, "it could not be put back") for one in changes_between(store, wanted, head)]
