"""What restoring, undoing, switching and forking came to, or would come to, as every surface shows it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lastgood.errors import CheckpointError, IntegrityError, NotFoundError
from lastgood.model.checkpoint import VALUES, Skipped
from lastgood.views.checkpoint import verification, view_checkpoint
from lastgood.views.document import View, compose
from lastgood.views.files import ON_DISK, changes_between, require_paths, view_failed

if TYPE_CHECKING:
    from lastgood import Checkpoint, Store, Task
    from lastgood.engine.branch import What
    from lastgood.types import FileChange, FilesPlan, Restored


class PlanView(View, frozen=True, kw_only=True):
    """What a restore would do: paths, bytes to write, and in how many places the state would change."""

    checkpoint_id: str
    dry_run: bool = True
    added: Sequence[str] = ()
    changed: Sequence[str] = ()
    deleted: Sequence[str] = ()
    announced: Sequence[str] = ()
    missing: Sequence[Skipped] = ()
    size: int = 0
    state_changes: int = 0


def view_restore(
    restored: Restored, branch: str, saved_first: Checkpoint | None, announced: list[str]
) -> dict[str, Any]:
    """Return what a restore came to as JSON shows it. `before`: the head that was left; `saved_first`: the same, if it
    was made for this; `announced`: what was written and is run by tools without being asked."""
    return compose(
        restored,
        branch=branch,
        before=restored.before.id if restored.before else None,
        saved_first=saved_first.id if saved_first else None,
        failed=view_failed(restored.failed),
        announced=announced,
        checkpoint=view_checkpoint(restored.checkpoint),
    )


def view_plan(plan: FilesPlan | None, checkpoint_id: str, state_changes: int) -> PlanView:
    """Return what a restore would do as JSON shows it; without a plan no files are touched."""
    if plan is None:
        return PlanView(checkpoint_id=checkpoint_id, state_changes=state_changes)
    added = plan.added
    return PlanView(
        checkpoint_id=checkpoint_id,
        added=added,
        changed=without(plan.restored, added),
        deleted=list(plan.deleted),
        announced=list(plan.announced),
        missing=plan.missing(),
        size=plan.size,
        state_changes=state_changes,
    )


def plan_restore(store: Store, task: Task, chosen: Checkpoint, paths: Sequence[str]) -> FilesPlan:
    """Plan what restoring files would do; of `paths` alone if there are any, each of which must name something."""
    require_paths(store, chosen, paths, lambda only: task.plan(chosen, paths=only or None).deleted, ON_DISK)
    return task.plan(chosen, paths=list(paths) or None)


def without(paths: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the paths that are not among the others, in their order."""
    left_out = set(others)
    return [path for path in paths if path not in left_out]


def has_same_content(store: Store, owner: str, chosen: Checkpoint, head: Checkpoint, what: What) -> bool:
    """Return whether restoring that part of `chosen` leaves the task as `head` has it, and as good; the disk is not
    looked at, nor what was left out."""
    standing = verification(chosen)
    if standing != verification(head) or (standing != "verified" and (chosen.has_evidence or chosen.judge())):
        return False
    names = () if what == "files" else (*VALUES, "control_state")
    if any(getattr(chosen.record, name) != getattr(head.record, name) for name in names):
        return False
    if what == "state" or chosen.record.files is None:
        return True
    ours, theirs = ([(root.name, root.partial) for root in one.record.files or ()] for one in (chosen, head))
    with suppress(IntegrityError):  # the restore says what is damaged
        return ours == theirs and not changes_between(store, chosen, head, owner)
    return False


def view_unchanged(chosen: Checkpoint, head: Checkpoint, branch: str, missing: tuple[Skipped, ...]) -> dict[str, Any]:
    """Return as JSON shows it that a restore was not needed: the task is at `head` as before."""
    from lastgood.engine.branch import Restored

    nothing = Restored(chosen.id, head, head, missing=missing)
    return compose(view_restore(nothing, branch, None, []), new_checkpoint_id=None)


def has_workspace(task: Task) -> bool:
    """Return whether files go where the task goes; the folder that is known to have them is looked for."""
    from lastgood.engine.restore import find_workspace

    find_workspace(task._handle)
    return task._handle.workspace is not None


def deleted_paths(changes: list[FileChange]) -> list[str]:
    """Return what is not there any more under its old name."""
    gone = [one.path if one.change == "deleted" else one.old_path for one in changes]
    return [path for path in gone if path is not None]


def newest_sequence(store: Store, task: Task) -> int:
    """Return the sequence of the task's newest checkpoint; 0 for none."""
    found = store.list_checkpoints(task.task_id, 1, owner=task.owner) if task.head else []
    return (found[0].sequence or 0) if found else 0


def find_saved(store: Store, task: Task, name: str) -> Checkpoint | None:
    """Return what HEAD, or HEAD~1, would be if restores had put no files, and no unsaved changes, on top of what was
    saved. None: it is another name, or they did not."""
    saved = task.head if name.partition("~")[0] == "HEAD" else None
    while saved and (saved.type == "before_restore" or (saved.type == "restored" and (saved.version or 1) > 1)):
        saved = store.get_checkpoint(saved.parent_id, owner=task.owner) if saved.parent_id else None
    with suppress(NotFoundError):  # so far back there is only something with them
        return None if saved is None or saved is task.head else task.find(name.replace("HEAD", saved.id, 1))
    return None


def advise_partial(store: Store, head: Checkpoint, owner: str | None) -> str | None:
    """Say how to go on where a restore made `head` and could not put everything back; None: it is no such one."""
    from lastgood.engine.restore_files import IN_PART

    if not head.integrity_ok or head.type != "restored" or IN_PART not in head.message:
        return None
    wanted, then = head.parent_id, "`lastgood restore {}` tries again"  # where a branch begins, or a move ends
    if (head.version or 1) > 1:
        moves = store.history(head.task_id, kinds=("restored", "undone", "redone", "switched"), owner=owner)
        last = next((one for one in moves if one.data.get("by") != "fork"), None)
        if last is not None and last.kind == "restored":
            wanted, then = last.checkpoint_id, "`lastgood diff {}` shows what differs"  # of which paths is not known
    found = store.get_checkpoint(wanted, owner=owner) if wanted else None
    if found is None:
        return None
    place = f"@{found.sequence}"
    return f"@{head.sequence} is {place} in part, some was not put back: {then.format(place)}"


def find_saved_first(store: Store, task: Task, left: Checkpoint | None, head: Checkpoint) -> Checkpoint | None:
    """Return the checkpoint that was made of the files as they were, if they were not those of `left`."""
    if left is None:
        return None
    if head.branch_id == left.branch_id:
        before = store.get_checkpoint(head.parent_id, owner=task.owner) if head.parent_id else None
    else:
        branches = store.branches(task.task_id, owner=task.owner)
        newest = next((one.head for one in branches if one.id == left.branch_id), None)
        before = store.get_checkpoint(newest.id, owner=task.owner) if newest else None
    return before if before and before.type == "before_restore" and before.id != left.id else None


def find_failed(store: Store, task: Task, action: str, head: Checkpoint, newest: int) -> list[tuple[str, str]]:
    """Return what is not on disk as it should be: `head` was made because of that, and differs from what was wanted."""
    if (head.sequence or 0) <= newest:
        return []
    try:
        entry = store.history(task.task_id, kinds=[action], limit=1, owner=task.owner)[0]
        wanted_id = entry.checkpoint_id or head.parent_id
        wanted = store.get_checkpoint(wanted_id, owner=task.owner) if wanted_id else None
    except (CheckpointError, IndexError):
        return []
    return [(one.path, "it could not be put back") for one in changes_between(store, wanted, head, task.owner)]


def find_announced(restored: Restored) -> list[str]:
    """Return what was written and is run by tools that nobody named."""
    from lastgood.files.plan import is_announced

    named = any(root.name for root in restored.checkpoint.record.files or ())
    return [path for path in restored.restored if is_announced(os.fsencode(path.partition(":")[2] if named else path))]
