"""`lastgood restore`, `lastgood undo` and `lastgood redo`"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from shlex import join, quote
from typing import TYPE_CHECKING, Any, Literal

import click

from lastgood.cli.asking import report_result, subcommand_that_asks
from lastgood.cli.completion import complete_checkpoints, complete_inside
from lastgood.cli.failure import FAILED, PARTLY, can_ask
from lastgood.cli.invocation import ANY_PATH, Invocation, subcommand, task_argument, telling, workspace_options
from lastgood.cli.output import (
    change_line,
    counted,
    counting,
    few,
    fitted,
    folded,
    path_text,
    print_result,
    printable,
    say,
    say_failed,
    size_text,
)
from lastgood.cli.summary import line, place_text
from lastgood.errors import CheckpointError, InvalidError, LeaseError, NotFoundError
from lastgood.secrets.filenames import is_secret_path
from lastgood.views.branch import find_branch
from lastgood.views.checkpoint import holds_whole_folders, view_checkpoint
from lastgood.views.document import compose
from lastgood.views.files import changes_between, require_paths, view_failed
from lastgood.views.restore import (
    advise_partial,
    deleted_paths,
    find_announced,
    find_failed,
    find_saved,
    find_saved_first,
    has_same_content,
    has_workspace,
    newest_sequence,
    plan_restore,
    view_plan,
    view_restore,
    view_unchanged,
    without,
)
from lastgood.views.status import find_worker, take_lease

if TYPE_CHECKING:
    from pathlib import Path

    from lastgood import Checkpoint, Store, Task
    from lastgood.engine.branch import What
    from lastgood.model.checkpoint import Skipped
    from lastgood.types import Lease

LAST_GOOD = "last-good"
UNTOUCHED = "nothing was restored, and the files are as they were"


@subcommand_that_asks
@click.argument("checkpoint", required=False, shell_complete=complete_checkpoints)
@click.argument("more_paths", nargs=-1, metavar="[PATH]...", shell_complete=complete_inside)
@click.option("--what", type=click.Choice(["both", "state", "files"]), help="What to restore.  [default: both]")
@click.option(
    "--path",
    "paths",
    multiple=True,
    metavar="GLOB",
    help="Only these files, and no state; repeatable.",
    shell_complete=complete_inside,
)
@click.option("--dry-run", is_flag=True, help="Show what would happen to files; change nothing.")
@click.option("--to", type=ANY_PATH, metavar="DIR", help="Copy the files into this folder; change nothing else.")
@click.option("--override-evidence", is_flag=True, help="Restore it although its evidence does not hold.")
@click.option("--skip-damaged", is_flag=True, help="Restore what is intact, and list the rest.")
@click.option("--message", "-m", default="", metavar="TEXT", help="Reason, kept with the restore.")
@click.option("--force", is_flag=True, help="Take the lease from a session that works there, instead of asking it.")
@workspace_options
def restore(
    call: Invocation,
    checkpoint: str | None,
    more_paths: tuple[str, ...],
    what: What | None,
    paths: tuple[str, ...],
    dry_run: bool,
    to: str | None,
    override_evidence: bool,
    skip_damaged: bool,
    message: str,
    force: bool,
    wait: float | None,
    request_id: str | None,
) -> None:
    """Restore CHECKPOINT: a new branch begins there and becomes the active one. Without CHECKPOINT, offer the last good
    one.

    The files of the workspace, if there is one, are restored, too. Unsaved changes are saved first; files that were
    never captured stay. With PATHs (files, folders, patterns) only these are restored, and no state. What was saved
    later stays on the other branch: `lastgood undo` returns to it.

    While a session works on the branch, it is asked to restore, and does so at its next boundary.
    """
    paths = tuple(call.in_workspace(path, pattern=True) for path in (*paths, *more_paths))
    offered = checkpoint is None
    if checkpoint is None:
        if call.json or not can_ask():
            hint = "`lastgood restore last-good` restores the last good one, `lastgood log` lists all"
            raise InvalidError("restore needs a checkpoint, and there is no terminal to ask on", hint=hint)
        checkpoint = LAST_GOOD
    if to is not None:
        if dry_run or skip_damaged or what in ("state", "both"):
            raise click.UsageError(
                "--to copies files, and nothing else: not with --dry-run, --skip-damaged, nor with another --what"
            )
        _copy(call, checkpoint, to, paths)
        return
    chosen_part: What = what or ("files" if paths else "both")
    if dry_run:
        _show_plan(call, checkpoint, chosen_part, paths)
        say(call, "nothing was changed")
        return
    if offered:
        checkpoint = _offer(call, chosen_part, paths)
    how: dict[str, Any] = {"verify": not override_evidence, "skip_damaged": skip_damaged, "message": message}
    _restore(call, checkpoint, chosen_part, paths, how, force, wait, request_id)


@subcommand
@task_argument()
@workspace_options
def undo(call: Invocation) -> None:
    """Undo the last restore or switch of the task; repeat it to undo earlier ones. No checkpoint is lost.

    The files of the workspace, if there is one, are restored, too; unsaved changes are saved first.
    """
    move(call, "undone", lambda task: task.undo())


@subcommand
@task_argument()
@workspace_options
def redo(call: Invocation) -> None:
    """Reapply the last undone restore or switch. A save, a restore or a switch in between makes that impossible."""
    move(call, "redone", lambda task: task.redo())


def move(call: Invocation, action: Literal["undone", "redone", "switched"], make: Callable[[Task], Checkpoint]) -> None:
    """Make another branch the active one, let the files follow, and print where the task stands now."""
    with call.open_to_work() as store:
        task = call.work_on(store)
        call.alerts.silenced.add("restore_incomplete")
        left, newest = task.head, newest_sequence(store, task)
        with telling(call, task, UNTOUCHED), counting(call, "putting files back"):
            head = make(task)
        name, has_files = _branch_name(store, task, head), has_workspace(task)
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
    lines = [f"{action}: {printable(name)} is the active branch", fitted(line(head))]
    print_result(call, view, [*lines, *few([change_line(change) for change in changes])])
    if kept is not None:
        say(call, f"Unsaved changes were saved first, as @{kept.sequence}")
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
    catalog = call.locate().catalog
    with call.open_to_work() as store:
        seen = store.task(call.task_id(), owner=call.owner)
        worker = find_worker(store, call.owner, seen.branch_id) if seen.head else None
        if worker is not None and paths and not force:
            raise LeaseError(
                f"{worker.executor} is working on this branch, and cannot be asked for some files alone",
                hint="name no paths, let it end, or take its lease away with --force",
                lease=worker,
            )
        task = call.work_on(store)
        if not force and not paths and (worker is not None or request_id is not None):
            control = task.control  # if the session is gone meanwhile, it is restored here
            report_result(call, task.id, control, control.restore(checkpoint, what, id=request_id, **how), wait)
            return
        if worker is not None:
            _take_lease_away(call, store, task, worker)
        left, saved = task.head, find_saved(store, task, checkpoint)
        chosen, missing = _choose(store, task, checkpoint, saved, what, paths)
        if left is not None and missing is not None:
            view = view_unchanged(chosen, left, _branch_name(store, task, left), missing)
            same = "nothing that these paths name differs from" if paths else "everything is already as in"
            print_result(call, view, [f"nothing to restore: {same} {place_text(chosen)}"])
            _note_missing_files(call, chosen, what)
            _say_missing(call, missing)
            if chosen.id == left.id and (partial := advise_partial(store, left, task.owner)):
                say(call, f"warning: {partial}")
                click.get_current_context().exit(PARTLY)
            return
        with telling(call, task, UNTOUCHED), counting(call, "restoring"):
            restored = task.restore(chosen, what, paths=list(paths) or None, **how)
        name = _branch_name(store, task, restored.checkpoint)
        before, new = restored.before, restored.checkpoint
        saved_first = before if before and left and before.id != left.id else None
        announced = find_announced(restored)
        view = view_restore(restored, name, saved_first, announced)
    where = f"on {printable(name)}" if what == "files" else f"on the new branch {printable(name)}"
    part = "the files of " if what == "files" else ""
    lines = [f"restored {part}@{chosen.sequence} as @{new.sequence}, {where}"]
    changed = without(restored.restored, restored.added)
    print_result(call, view, [*lines, *_marked(restored.added, changed, restored.deleted)])
    if saved_first is not None:
        say(call, f"Unsaved changes were saved first, as @{saved_first.sequence}")
    _note_missing_files(call, chosen, what)
    if saved is not None:
        more = "" if chosen.id == saved.id else f": `lastgood restore {place_text(saved)}`"
        say(call, f"HEAD was made by a restore; without restores {checkpoint} is {place_text(saved)}{more}")
    _warn(call, announced, "were written")
    say_failed(call, restored.failed)
    if restored.failed:
        words = [place_text(chosen) if word == checkpoint else word for word in call.arguments]
        say(call, f"these are as they were: `lastgood {join(words)}` tries again")
    if _finds(call, catalog):
        say(call, "Undo with `lastgood undo`")
    else:
        say(call, f"warning: lastgood.toml is that of @{chosen.sequence} now and no longer leads to this store")
        say(call, f"Undo with `lastgood --store {quote(str(catalog))} undo`")
    _say_missing(call, restored.missing)
    if restored.failed:
        click.get_current_context().exit(PARTLY)


def _finds(call: Invocation, catalog: Path | None) -> bool:
    """Return whether commands find this store still: a restored lastgood.toml may name another."""
    try:
        return call.locate().catalog == catalog
    except CheckpointError:
        return False


def _choose(
    store: Store, task: Task, name: str, saved: Checkpoint | None, what: What, paths: tuple[str, ...]
) -> tuple[Checkpoint, tuple[Skipped, ...] | None]:
    """Return the checkpoint to restore, and what `_find_only_missing` finds. HEAD that a restore made itself, and that
    would change nothing, stands for the newest that was saved: `restore HEAD a` does not change what `restore HEAD b`
    means."""
    chosen = task.find(name)
    try:
        missing = _find_only_missing(store, task, chosen, what, paths)
    except NotFoundError:  # a path of it was gone already when the restore was made
        if saved is None:
            raise
        return saved, _find_only_missing(store, task, saved, what, paths)
    if missing is not None and saved is not None and _find_only_missing(store, task, saved, what, paths) is None:
        return saved, None
    return chosen, missing


def _find_only_missing(
    store: Store, task: Task, chosen: Checkpoint, what: What, paths: tuple[str, ...]
) -> tuple[Skipped, ...] | None:
    """Return what a restore cannot bring back, where it would change nothing at all; None: it would change some."""
    if task.head is None or (not paths and not has_same_content(store, task.owner, chosen, task.head, what)):
        return None
    if what == "state" or chosen.record.files is None or not has_workspace(task):
        return None if paths else ()
    plan = plan_restore(store, task, chosen, paths)
    return None if plan.restored or plan.deleted else plan.missing()


def _note_missing_files(call: Invocation, chosen: Checkpoint, what: What) -> None:
    if what == "both" and call.folders() is not None and not holds_whole_folders(chosen):
        held = "holds only files that were listed; others" if chosen.record.files else "holds no files; those on disk"
        say(call, f"note: {place_text(chosen)} {held} stay as they are")


def _branch_name(store: Store, task: Task, checkpoint: Checkpoint) -> str:
    branch = find_branch(store, task.task_id, checkpoint.branch_id, task.owner)
    return branch.name if branch else ""


def _marked(added: Sequence[str], changed: Sequence[str], deleted: Sequence[str]) -> list[str]:
    """Return what happens to files, for people; of each sort the first."""
    marks = (("+", added), ("~", changed), ("-", deleted))
    return [text for mark, paths in marks for text in few([f"{mark} {one}" for one in folded(paths)])]


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


def _show_plan(call: Invocation, checkpoint: str, what: What, paths: tuple[str, ...]) -> bool:
    """Print what a restore would do; return whether it would change anything."""
    with call.open_to_work() as store:
        plan = None
        task = call.work_on(store)
        chosen, _ = _choose(store, task, checkpoint, find_saved(store, task, checkpoint), what, paths)
        if what == "files" or (what == "both" and chosen.record.files is not None and has_workspace(task)):
            with counting(call, "planning"):
                plan = plan_restore(store, task, chosen, paths)
        changes = 0 if what == "files" else _state_changes(store, call, chosen)
        view = view_plan(plan, chosen.id, changes)
    shown = (view.added, view.changed, view.deleted)
    print_result(call, view, _marked(*shown))
    _warn(call, view.announced, "would be written")
    _say_missing(call, view.missing)
    count = sum(len(set(paths) - {path.rpartition("/")[0] for path in paths}) for paths in shown)
    if count or changes:
        say(call, f"{counted(count, 'path')} would change, {size_text(view.size)} to write")
    else:
        say(call, f"nothing would change: everything is already as in {place_text(chosen)}")
    if changes:
        say(call, f"the state would change in {counted(changes, 'place')}")
    return bool(count or changes)


def _offer(call: Invocation, what: What, paths: tuple[str, ...]) -> str:
    """Show the last good checkpoint and what restoring it would change, and ask; return its id."""
    with call.open_to_work() as store:
        found = store.find_checkpoint(LAST_GOOD, call.task_id(), owner=call.owner)
    click.echo(fitted(line(found)), err=True)
    if not _show_plan(call, found.id, what, paths):
        click.get_current_context().exit()
    if not click.confirm(f"restore {place_text(found)}?", err=True):
        click.get_current_context().exit(FAILED)
    return found.id


def _state_changes(store: Store, call: Invocation, chosen: Checkpoint) -> int:
    from lastgood.compare.state import compare

    head = store.find_checkpoint("HEAD", call.task_id(), owner=call.owner)
    return len(compare(head.state, chosen.state))


def _copy(call: Invocation, checkpoint: str, to: str, paths: tuple[str, ...]) -> None:
    with call.open_to_work() as store:
        task = store.task(call.task_id(), owner=call.owner)
        chosen = task.find(checkpoint)
        require_paths(store, chosen, paths)
        with counting(call, "copying"):
            copied = task.copy_files(chosen, to, paths=list(paths) or None)
    view = compose(checkpoint_id=chosen.id, to=os.path.abspath(to), copied=copied)  # noqa: PTH100
    print_result(call, view, few([f"+ {path_text(path)}" for path in copied]))
    say(call, f"{counted(len(copied), 'path')} of {place_text(chosen)} copied; nothing else changed")


def _say_missing(call: Invocation, missing: Sequence[Skipped]) -> None:
    """Say what the checkpoint never had, and the disk has not any more."""
    if missing:
        say(call, "warning: gone from disk, and not in the checkpoint, which left them out:")
        ignored = [one.reason == "ignored" and not is_secret_path(os.fsencode(one.path)) for one in missing]
        first = sorted(zip(ignored, missing, strict=True), key=lambda one: one[0])
        for text in few([f"  {path_text(one.path)} ({one.reason})" for _, one in first]):
            say(call, text)


def _warn(call: Invocation, announced: Sequence[str], what: str) -> None:
    if announced:
        say(call, f"warning: files that tools run by themselves {what}; look at them first:")
        for line in few([f"  {path_text(path)}" for path in announced]):
            say(call, line)
