"""`lastgood restore`"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from lastgood.cli.asking import settle, subcommand_that_asks
from lastgood.cli.command import workspace_options
from lastgood.cli.failure import PARTLY
from lastgood.cli.files import few, path_text, say_failed
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, counted, printable, say, size_text
from lastgood.cli.progress import counting
from lastgood.cli.standing import find_worker
from lastgood.cli.summary import place_text, summary
from lastgood.errors import EvidenceError, InvalidError, LeaseError

if TYPE_CHECKING:
    from lastgood.engine.branch import Restored, What
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.restore_files import FilesPlan
    from lastgood.model.lease import Lease
    from lastgood.store import Store
    from lastgood.task import Task


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
def command(
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
    way = Way(not override_evidence, message, force, wait, request_id)
    _restore(call, checkpoint, chosen_part, paths, way)


class Way(NamedTuple):
    """How to go back, where a session works on the branch, or none."""

    verify: bool
    message: str
    force: bool
    wait: float | None
    request_id: str | None


def _restore(call: Invocation, checkpoint: str, what: What, paths: tuple[str, ...], way: Way) -> None:
    with call.open_to_work() as store:
        worker = _find_worker(call, store)
        if worker is not None and paths and not way.force:
            raise LeaseError(
                f"{worker.executor} is working on this branch, and cannot be asked for some files alone",
                hint="leave --path out, let it end, or take its lease away with --force",
                lease=worker,
            )
        task = call.work_on(store)
        if not way.force and not paths and (worker is not None or way.request_id is not None):
            _ask_for_it(call, task, checkpoint, what, way)
            return
        if worker is not None:
            _take_lease_away(call, task, worker)
        left = task.head
        with naming_the_override(), counting(call, "restoring"):
            restored = task.restore(checkpoint, what, paths=list(paths) or None, verify=way.verify, message=way.message)
        branch = store.catalog.branch(task.owner, restored.branch_id)
        name = branch.name if branch else ""
        chosen = store.get_checkpoint(restored.checkpoint_id, owner=call.owner)
        before, new = restored.before, restored.checkpoint
        saved_first = before if before and left and before.id != left.id else None
        announced = _announced(restored)
        data = {
            "checkpoint_id": restored.checkpoint_id,
            "new_checkpoint_id": new.id,
            "branch_id": restored.branch_id,
            "branch": name,
            "before": before.id if before else None,
            "saved_first": saved_first.id if saved_first else None,
            "restored": list(restored.restored),
            "deleted": list(restored.deleted),
            "failed": [{"path": path, "reason": reason} for path, reason in restored.failed],
            "announced": announced,
            "checkpoint": summary(new),
        }
    where = f"on {printable(name)}" if what == "files" else f"on the new branch {printable(name)}"
    part = "the files of " if what == "files" else ""
    lines = [f"restored {part}@{chosen.sequence} as @{new.sequence}, {where}"]
    lines += few([f"~ {path_text(path)}" for path in restored.restored])
    answer(call, data, [*lines, *few([f"- {path_text(path)}" for path in restored.deleted])])
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


def _find_worker(call: Invocation, store: Store) -> Lease | None:
    owner = call.owner or store.user
    position = store.catalog.position(owner, call.task_id())
    return find_worker(store, owner, position.branch.id) if position else None


def _ask_for_it(call: Invocation, task: Task, checkpoint: str, what: What, way: Way) -> None:
    """Of the session that works on the branch. If it is gone, it is done here, with the files of this workspace."""
    control = task.control
    with naming_the_override():
        asked = control.restore(checkpoint, what, verify=way.verify, message=way.message, id=way.request_id)
        settle(call, task.id, control, asked, way.wait)


def _take_lease_away(call: Invocation, task: Task, worker: Lease) -> None:
    """Whoever had it is refused from now on, and learns that with its next save, or when it renews its lease."""
    from lastgood.work.lease import HeldLease, name_executor

    hold = HeldLease(task.store._engine, task.user, task.owner, name_executor(), 1.0)
    hold.acquire(worker.branch_id, over=worker.token)
    hold.release()
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
        marked: dict[str, list[str]] = {"+": [], "~": [], "-": []}
        announced: list[str] = []
        size = 0
        if what == "files" or (what == "both" and chosen.record.files is not None and call.folders() is not None):
            with counting(call, "looking"):
                plan = call.work_on(store).plan(chosen, paths=list(paths) or None)
            marked, announced, size = _marked(plan), list(plan.announced), plan.size
        changes = 0 if what == "files" else _state_changes(store, call, chosen)
    data = {
        "checkpoint_id": chosen.id,
        "dry_run": True,
        "added": marked["+"],
        "changed": marked["~"],
        "deleted": marked["-"],
        "announced": announced,
        "size": size,
        "state_changes": changes,
    }
    answer(call, data, [f"{mark} {path_text(path)}" for mark, found in marked.items() for path in found])
    _warn(call, announced, "would be written")
    count = sum(map(len, marked.values()))
    say(call, f"{counted(count, 'path')} would change, {size_text(size)} to write")
    if what != "files":
        say(call, f"the state would change in {counted(changes, 'place')}")
    say(call, "nothing was touched")


def _state_changes(store: Store, call: Invocation, chosen: Checkpoint) -> int:
    from lastgood.compare.state import compare

    head = store.find_checkpoint("HEAD", call.task_id(), owner=call.owner)
    return len(compare(head.state, chosen.state))


def _marked(plan: FilesPlan) -> dict[str, list[str]]:
    """`+` what is not there now, `~` what is, `-` what goes."""
    from lastgood.engine.restore_files import in_the_way, shown
    from lastgood.files.plan import Enter, PutFile

    hidden = in_the_way(plan)
    marked: dict[str, list[str]] = {"+": [], "~": [], "-": list(plan.deleted)}
    for root, steps in plan.roots:
        for step in steps.steps:
            if isinstance(step, PutFile):
                is_there = step.old is not None or step.path in hidden.get(root.name, ())
                marked["~" if is_there else "+"].append(shown(root, step.path))
            elif isinstance(step, Enter) and step.what in ("make", "alter"):
                marked["+" if step.what == "make" else "~"].append(shown(root, step.path))
    return marked


def _copy(call: Invocation, checkpoint: str, to: str, paths: tuple[str, ...]) -> None:
    with call.open_to_work() as store:
        task = store.task(call.task_id(), owner=call.owner)
        chosen = task.find(checkpoint)
        with counting(call, "copying"):
            copied = task.copy_files(chosen, to, paths=list(paths) or None)
    data: dict[str, Any] = {"checkpoint_id": chosen.id, "to": os.path.abspath(to), "copied": list(copied)}  # noqa: PTH100
    answer(call, data, few([f"+ {path_text(path)}" for path in copied]))
    say(call, f"{counted(len(copied), 'path')} of {place_text(chosen)} copied; nothing else changed")


def _announced(restored: Restored) -> list[str]:
    """What was written and is run by tools that nobody named."""
    from lastgood.files.plan import is_announced

    named = any(root.name for root in restored.checkpoint.record.files or ())
    return [path for path in restored.restored if is_announced(os.fsencode(path.partition(":")[2] if named else path))]


def _warn(call: Invocation, announced: list[str], what: str) -> None:
    if announced:
        say(call, f"warning: files that tools run or obey unasked {what}; look at them first:")
        for line in few([f"  {path_text(path)}" for path in announced]):
            say(call, line)


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
