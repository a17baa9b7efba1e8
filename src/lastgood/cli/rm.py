"""`lastgood rm`"""

from __future__ import annotations

from typing import Any

import click

from lastgood.catalog.values import StoredCheckpoint
from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, printable, say, short_id
from lastgood.cli.question import confirm
from lastgood.engine.names import resolve
from lastgood.store import Store


@subcommand
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--purge", is_flag=True, help="Remove for good; only a tombstone stays.")
@click.option("--undo", is_flag=True, help="Bring deleted checkpoints back.")
@click.option("--whole-task", metavar="ID", help="Remove a task with all its checkpoints, for good.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(
    call: Invocation, names: tuple[str, ...], purge: bool, undo: bool, whole_task: str | None, yes: bool
) -> None:
    """Delete checkpoints. They are no longer listed, and --undo brings them back; --purge and --whole-task do not."""
    if (whole_task is None) == (not names) or purge + undo + (whole_task is not None) > 1:
        raise click.UsageError("rm takes NAMEs, with --purge or --undo or neither; or --whole-task ID")
    with call.open() as store:
        if whole_task is not None:
            _remove_task(call, store, whole_task, yes)
            return
        chosen = _chosen(call, store, names)
        if purge:
            confirm(call, f"remove {len(chosen)} checkpoint(s) for good", "--purge", yes)
        how = "purged" if purge else "undeleted" if undo else "deleted"
        removed = [_act(store, stored, how) for stored in chosen]
    lines = [f"{how} @{one['sequence']} {short_id(one['id'])}" for one in removed if one["changed"]]
    answer(call, {"checkpoints": removed}, lines)
    for one in removed:
        if not one["changed"]:
            say(
                call,
                f"@{one['sequence']} was {how} already" if how == "deleted" else f"@{one['sequence']} is not deleted",
            )


def _chosen(call: Invocation, store: Store, names: tuple[str, ...]) -> list[StoredCheckpoint]:
    """All of them found before any is touched; newest first, so that a head, which is refused, stops it at once."""
    owner = call.owner or store.user
    ids = {resolve(store.catalog, owner, name, call.task_id()) for name in names}
    found = [stored for one in ids if (stored := store.catalog.checkpoint(owner, one)) is not None]
    return sorted(found, key=lambda stored: stored.placement.sequence, reverse=True)


def _act(store: Store, stored: StoredCheckpoint, how: str) -> dict[str, Any]:
    changed = True
    if how == "purged":
        store.purge_checkpoint(stored.id, owner=stored.owner)
    elif how == "undeleted":
        changed = stored.deleted
        store.undelete_checkpoint(stored.id, owner=stored.owner)
    else:
        changed = store.delete_checkpoint(stored.id, owner=stored.owner)
    return {"id": stored.id, "sequence": stored.placement.sequence, "action": how, "changed": changed}


def _remove_task(call: Invocation, store: Store, task_id: str, yes: bool) -> None:
    count = store.line(task_id, call.owner or store.user).task.checkpoints
    confirm(call, f"remove the task {printable(task_id)} and its {count} checkpoint(s) for good", "--whole-task", yes)
    removed = store.delete_task(task_id, owner=call.owner)
    data = {"task": task_id, "checkpoints": removed}
    answer(call, data, [f"removed {printable(task_id)} with {removed} checkpoint(s)"])
