"""`lastgood tag` and `lastgood rm`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lastgood.cli.completion import complete_checkpoints, complete_tags, complete_tasks
from lastgood.cli.failure import confirm
from lastgood.cli.invocation import Invocation, subcommand
from lastgood.cli.output import counted, print_result, printable, say, short_id, table
from lastgood.errors import NotFoundError
from lastgood.model.identity import check_tag
from lastgood.views.records import PlacedCheckpoint, find_task, resolve_place

if TYPE_CHECKING:
    from lastgood import Store


@subcommand
@click.argument("name", required=False)
@click.argument("checkpoint", required=False, shell_complete=complete_checkpoints)
@click.option("--move", is_flag=True, help="Take the tag from the checkpoint that has it.")
@click.option("--delete", metavar="NAME", help="Remove a tag; the checkpoint stays.", shell_complete=complete_tags)
def tag(call: Invocation, name: str | None, checkpoint: str | None, move: bool, delete: str | None) -> None:
    """Give CHECKPOINT (default: HEAD) the name NAME. Without arguments, list the task's tags."""
    if delete is not None and (name is not None or move):
        raise click.UsageError("tag takes NAME and perhaps CHECKPOINT, or --delete NAME, or nothing")
    with call.open() as store:
        if delete is not None:
            _report(call, delete, _delete(call, store, delete), "deleted", f"deleted {printable(delete)}")
        elif name is not None:
            check_tag("the name", name)
            found = resolve_place(store, call.owner, checkpoint or "HEAD", call.task_id())
            store.tag(found.id, name, move=move, owner=call.owner)
            _report(call, name, found.id, "tagged", f"tagged @{found.sequence} as {printable(name)}")
        else:
            tags = store.tags(call.task_id(), owner=call.owner).items()
            rows = [[printable(name), f"@{at.sequence}", short_id(at.id)] for name, at in tags]
            view = [{"tag": name, "sequence": at.sequence, "checkpointId": at.id} for name, at in tags]
            print_result(call, {"tags": view}, table(rows, ("tag", "checkpoint", "id")))


def _delete(call: Invocation, store: Store, name: str) -> str:
    found = store.tags(call.task_id(), owner=call.owner).get(name)
    if found is None:
        raise NotFoundError(f"there is no tag {name!r}", hint="`lastgood tag` lists them")
    store.untag(found.id, name, owner=call.owner)
    return found.id


def _report(call: Invocation, name: str, checkpoint_id: str, action: str, said: str) -> None:
    view = {"tag": name, "checkpointId": checkpoint_id, "action": action}
    print_result(call, view, [said])


@subcommand
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_checkpoints)
@click.option("--purge", is_flag=True, help="Remove for good; only their place in history stays.")
@click.option("--undo", is_flag=True, help="Bring deleted checkpoints back.")
@click.option(
    "--whole-task",
    metavar="ID",
    help="Remove a task and all its checkpoints, for good.",
    shell_complete=complete_tasks,
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def rm(call: Invocation, names: tuple[str, ...], purge: bool, undo: bool, whole_task: str | None, yes: bool) -> None:
    """Delete checkpoints. They are no longer listed, and --undo brings them back; --purge and --whole-task do not."""
    if (whole_task is None) == (not names) or purge + undo + (whole_task is not None) > 1:
        raise click.UsageError("rm takes NAMEs, with --purge or --undo or neither; or --whole-task ID")
    with call.open() as store:
        if whole_task is not None:
            _remove_task(call, store, whole_task, yes)
            return
        chosen = _chosen(call, store, names)
        if purge:
            confirm(call, f"remove {counted(len(chosen), 'checkpoint')} for good", "rm --purge", yes)
        how = "purged" if purge else "undeleted" if undo else "deleted"
        removed = [_remove(store, place, how) for place in chosen]
    lines = [f"{how} @{one['sequence']} {short_id(one['id'])}" for one in removed if one["changed"]]
    print_result(call, {"checkpoints": removed}, lines)
    for one in removed:
        if not one["changed"]:
            say(call, f"@{one['sequence']} {'was deleted already' if how == 'deleted' else 'is not deleted'}")


def _chosen(call: Invocation, store: Store, names: tuple[str, ...]) -> list[PlacedCheckpoint]:
    """Find all before any is touched; newest first, so that a head, which is refused, stops it at once."""
    places = [resolve_place(store, call.owner, name, call.task_id()) for name in names]
    return sorted({place.id: place for place in places}.values(), key=lambda place: place.sequence, reverse=True)


def _remove(store: Store, place: PlacedCheckpoint, how: str) -> dict[str, Any]:
    changed = True
    if how == "purged":
        store.purge_checkpoint(place.id, owner=place.owner)
    elif how == "undeleted":
        changed = place.deleted
        store.undelete_checkpoint(place.id, owner=place.owner)
    else:
        changed = store.delete_checkpoint(place.id, owner=place.owner)
    return {"id": place.id, "sequence": place.sequence, "action": how, "changed": changed}


def _remove_task(call: Invocation, store: Store, task_id: str, yes: bool) -> None:
    going = counted(find_task(store, call.owner, task_id).checkpoints, "checkpoint")
    confirm(call, f"remove the task {printable(task_id)} and its {going} for good", "rm --whole-task", yes)
    removed = store.delete_task(task_id, owner=call.owner)
    view = {"taskId": task_id, "checkpoints": removed}
    print_result(call, view, [f"removed {printable(task_id)} with {counted(removed, 'checkpoint')}"])
