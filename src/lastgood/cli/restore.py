"""`lastgood restore`, `lastgood undo` and `lastgood redo`"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from lastgood.cli.asking import report_result, subcommand_that_asks
from lastgood.cli.failure import PARTLY
from lastgood.cli.invocation import Invocation, subcommand, workspace_options
from lastgood.cli.output import (
    change_line,
    counted,
    counting,
    few,
    path_text,
    print_result,
    printable,
    say,
    say_failed,
    size_text,
)
from lastgood.cli.summary import line, place_text
from lastgood.errors import InvalidError, LeaseError
from lastgood.views.branch import find_branch
from lastgood.views.checkpoint import view_checkpoint
from lastgood.views.document import compose
from lastgood.views.files import changes_between, view_failed
from lastgood.views.restore import (
    deleted_paths,
    find_announced,
    find_failed,
    find_saved_first,
    newest_sequence,
    view_plan,
    view_restore,
)
from lastgood.views.status import find_worker, take_lease

if TYPE_CHECKING:
    from lastgood import Checkpoint, Lease, Store, Task
    from lastgood.engine.branch import What


@subcommand_that_asks
@click.argument("checkpoint")
@click.option("--what", type=click.Choice(["both", "state", "files"]), help="What goes back.  [default: both]")
@click.option("--path", "paths", multiple=True, metavar="GLOB", help="Only these files, and no state; repeatable.")
@click.option("--dry-run", is_flag=True, help="Show what would happen to files; change nothing.")
@click.option("--to", metavar="DIR", help="Copy the files into this folder instead; nothing else changes.")
@click.option("--override-evidence", is_flag=True, help="Restore it although its evidence does not hold.")
@click.option("--message", "-m", default="", metavar="TEXT", help="Why.")
@click.option("--force", is_flag=True, help="Do not ask the session that works on the branch: take its lease away.")
@workspace_options
def restore(
    call: Invocation,
    checkpoint: str,
    what: What | None,
    paths: tuple[str, ...],
    dry_run: bool,
    to: str | None,
    override_evidence: bool,
    message: str,
    force: bool,
    wait: float | None,
    request_id: str | None,
) -> None:
    """Go back to CHECKPOINT: a new branch begins there and becomes the active one.

    The files of the workspace, if there is one, become the checkpoint's; what they are now is saved first, and what
    was never captured stays. What was saved later stays on the branch that is left; `lastgood undo` goes back to it.

    While a session works on the branch, it is asked to go back, and does so at its next boundary.
    """
    if to is not None:
        if dry_run or what in ("state", "both"):
            raise click.UsageError("--to copies files, and nothing else: not with --dry-run, nor with another --what")
        _copy(call, checkpoint, to, paths)
        return
    chosen_part: What = what or ("files" if paths else "both")
    if call.folders() is None and chosen_part == "files":
        raise InvalidError(
            "there is no workspace to put files into",
            hint='give --workspace DIR, or write workspace = "." in lastgood.toml',
        )
    if dry_run:
        _show_plan(call, checkpoint, chosen_part, paths)
        return
    how: dict[str, Any] = {"verify": not override_evidence, "message": message}
    _restore(call, checkpoint, chosen_part, paths, how, force, wait, request_id)


@subcommand
@workspace_options
def undo(call: Invocation) -> None:
    """Take back the last restore or switch of the task, any number of times. No checkpoint is lost by it.

    The files of the workspace, if there is one, go back, too; what they are now is saved first.
    """
    move(call, "undone", lambda task: task.undo())


@subcommand
@workspace_options
def redo(call: Invocation) -> None:
    """Do again what `lastgood undo` took back. A save, a restore or a switch in between ends that."""
    move(call, "redone", lambda task: task.redo())


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
        view = compose(
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


def _restore(
    call: Invocation,
    checkpoint: str,
    what: What,
    paths: tuple[str, ...],
    how: dict[str, Any],
    force: bool,
    wait: float | None,
    request_id: str | None,
) -> None:
    with call.open_to_work() as store:
        seen = store.task(call.task_id(), owner=call.owner)
        worker = find_worker(store, call.owner, seen.branch_id) if seen.head else None
        if worker is not None and paths and not force:
            raise LeaseError(
                f"{worker.executor} is working on this branch, and cannot be asked for some files alone",
                hint="leave --path out, let it end, or take its lease away with --force",
                lease=worker,
            )
        task = call.work_on(store)
        if not force and not paths and (worker is not None or request_id is not None):
            control = task.control  # if the session is gone meanwhile, it is restored here
            report_result(call, task.id, control, control.restore(checkpoint, what, id=request_id, **how), wait)
            return
        if worker is not None:
            _take_lease_away(call, store, task, worker)
        left = task.head
        with counting(call, "restoring"):
            restored = task.restore(checkpoint, what, paths=list(paths) or None, **how)
        branch = find_branch(store, task.task_id, restored.branch_id, task.owner)
        name = branch.name if branch else ""
        chosen = store.get_checkpoint(restored.checkpoint_id, owner=call.owner)
        before, new = restored.before, restored.checkpoint
        saved_first = before if before and left and before.id != left.id else None
        announced = find_announced(restored)
        view = view_restore(restored, name, saved_first, announced)
    where = f"on {printable(name)}" if what == "files" else f"on the new branch {printable(name)}"
    part = "the files of " if what == "files" else ""
    lines = [f"restored {part}@{chosen.sequence} as @{new.sequence}, {where}"]
    lines += few([f"~ {path_text(path)}" for path in restored.restored])
    print_result(call, view, [*lines, *few([f"- {path_text(path)}" for path in restored.deleted])])
    if saved_first is not None:
        say(call, f"what was not saved yet is saved as @{saved_first.sequence}")
    if what == "both" and call.folders() is not None and chosen.record.files is None:
        say(call, f"note: {place_text(chosen)} holds no files; those on disk stay as they are")
    if paths and not (restored.restored or restored.deleted or restored.failed):
        say(call, "note: nothing that these paths name is different there")
    _warn(call, announced, "were written")
    say_failed(call, restored.failed)
    say(call, "`lastgood undo` takes it back")
    if restored.failed:
        click.get_current_context().exit(PARTLY)


def _take_lease_away(call: Invocation, store: Store, task: Task, worker: Lease) -> None:
    """Take it: its holder is refused from now on, and learns that with its next save, or when it renews its lease."""
    take_lease(store, task.owner, worker)
    process = worker.process
    say(call, f"WARNING: the lease of {worker.executor} was taken away: all that it saves from now on is refused.")
    say(
        call,
        f"WARNING: its process ({process.pid} on {process.host}) is not ended by that, and may still change files.",
    )
    task.refresh()


def _show_plan(call: Invocation, checkpoint: str, what: What, paths: tuple[str, ...]) -> None:
    with call.open_to_work() as store:
        chosen = store.find_checkpoint(checkpoint, call.task_id(), owner=call.owner)
        plan = None
        if what == "files" or (what == "both" and chosen.record.files is not None and call.folders() is not None):
            with counting(call, "looking"):
                plan = call.work_on(store).plan(chosen, paths=list(paths) or None)
        changes = 0 if what == "files" else _state_changes(store, call, chosen)
        view = view_plan(plan, chosen.id, changes)
    marked = {"+": view.added, "~": view.changed, "-": view.deleted}
    print_result(call, view, [f"{mark} {path_text(path)}" for mark, found in marked.items() for path in found])
    _warn(call, view.announced, "would be written")
    count = sum(map(len, marked.values()))
    say(call, f"{counted(count, 'path')} would change, {size_text(view.size)} to write")
    if what != "files":
        say(call, f"the state would change in {counted(changes, 'place')}")
    say(call, "nothing was touched")


def _state_changes(store: Store, call: Invocation, chosen: Checkpoint) -> int:
    from lastgood.compare.state import compare

    head = store.find_checkpoint("HEAD", call.task_id(), owner=call.owner)
    return len(compare(head.state, chosen.state))


def _copy(call: Invocation, checkpoint: str, to: str, paths: tuple[str, ...]) -> None:
    with call.open_to_work() as store:
        task = store.task(call.task_id(), owner=call.owner)
        chosen = task.find(checkpoint)
        with counting(call, "copying"):
            copied = task.copy_files(chosen, to, paths=list(paths) or None)
    view = compose(checkpoint_id=chosen.id, to=os.path.abspath(to), copied=copied)  # noqa: PTH100
    print_result(call, view, few([f"+ {path_text(path)}" for path in copied]))
    say(call, f"{counted(len(copied), 'path')} of {place_text(chosen)} copied; nothing else changed")


def _warn(call: Invocation, announced: Sequence[str], what: str) -> None:
    if announced:
        say(call, f"warning: files that tools run or obey unasked {what}; look at them first:")
        for line in few([f"  {path_text(path)}" for path in announced]):
            say(call, line)
