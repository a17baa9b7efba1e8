"""`lastgood du`"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, counted, fitted, printable, say, short_id, size_text, table
from lastgood.cli.progress import counting
from lastgood.cli.summary import moment_text
from lastgood.errors import IntegrityError
from lastgood.upkeep.usage import CheckpointUsage, TaskUsage, Usage


@subcommand
@click.argument("id", required=False, metavar="[TASK]")
@click.option("--checkpoints", is_flag=True, help="List checkpoints.")
def command(call: Invocation, id: str | None, checkpoints: bool) -> None:
    """Show disk usage by task; of a TASK (or a branch), by checkpoint.

    Of each task: the bytes that its checkpoints need. Of each checkpoint: the bytes that it was the first to need
    (adds), and those that become free when it alone goes (frees).
    """
    if id is not None and call.task is not None:
        raise click.UsageError("du takes TASK or --task, not both")
    wanted = call.task if id is None else id
    checkpoints = checkpoints or wanted is not None
    with call.open() as store, counting(call, "measuring"):
        usage = store.usage(wanted, owner=call.owner)
        place = str(store.catalog.file)
    facts = _of_store(place, usage) if wanted is None or not usage.tasks else _of_task(usage.tasks[0])
    answer(call, _data(place, usage, checkpoints), map(fitted, _lines(facts, usage, checkpoints)))
    if usage.unreadable:
        unread = counted(usage.unreadable, "thing")
        say(call, f"{unread} could not be read, and what belongs to it is not counted: see `lastgood verify --all`")
        click.get_current_context().exit(IntegrityError.exit_code)


# --- for programs -------------------------------------------------------------------------------------------------


def _data(place: str, usage: Usage, checkpoints: bool) -> dict[str, Any]:
    whole = {
        "store": place,
        "disk_bytes": usage.disk_bytes,
        "catalog_bytes": usage.catalog_bytes,
        "free_bytes": usage.free_bytes,
        "packs": usage.packs,
        "pack_bytes": usage.pack_bytes,
        "stored_bytes": usage.stored_bytes,
        "unreferenced_bytes": usage.unreferenced_bytes,
        "stray_bytes": usage.stray_bytes,
        "unreadable": usage.unreadable,
        "tasks": list(map(msgspec.structs.asdict, usage.tasks)),
    }
    return whole | {"checkpoints": list(map(_checkpoint, usage.checkpoints))} if checkpoints else whole


def _checkpoint(checkpoint: CheckpointUsage) -> dict[str, Any]:
    return {**msgspec.structs.asdict(checkpoint), "created_at": moment_text(checkpoint.created_at)}


# --- for people ---------------------------------------------------------------------------------------------------


def _of_store(place: str, usage: Usage) -> Iterator[tuple[str, str]]:
    catalog, packs = size_text(usage.catalog_bytes), size_text(usage.pack_bytes)
    yield "store", place
    yield "on disk", f"{size_text(usage.disk_bytes)}: catalog {catalog}, {counted(usage.packs, 'pack')} {packs}"
    yield "stored", f"{size_text(usage.stored_bytes)} that checkpoints need"
    if usage.unreferenced_bytes:
        yield "unreferenced", f"{size_text(usage.unreferenced_bytes)} that no checkpoint needs any more"
    if usage.stray_bytes:
        yield "stray", f"{size_text(usage.stray_bytes)} of saves that were interrupted or are under way"
    if usage.free_bytes:
        yield "free", f"{size_text(usage.free_bytes)} of the catalog, to be used again"


def _of_task(task: TaskUsage) -> Iterator[tuple[str, str]]:
    yield "task", task.id
    deleted = f", {task.deleted_checkpoints:,} of them deleted" if task.deleted_checkpoints else ""
    yield "checkpoints", f"{task.checkpoints:,}{deleted}"
    yield "stored", size_text(task.stored)


def _lines(facts: Iterator[tuple[str, str]], usage: Usage, checkpoints: bool) -> Iterator[str]:
    for name, value in facts:
        yield f"{name:<12} {printable(value)}"
    yield ""
    if checkpoints:
        rows = [[_name(one), short_id(one.id), size_text(one.adds), size_text(one.frees)] for one in usage.checkpoints]
        yield from _columns(rows, ("checkpoint", "id", "adds", "frees"))
    else:
        rows = [
            [printable(one.id), printable(one.owner), f"{one.checkpoints:,}", size_text(one.stored)]
            for one in usage.tasks
        ]
        yield from _columns(rows, ("task", "owner", "checkpoints", "stored"))


def _name(checkpoint: CheckpointUsage) -> str:
    deleted = " (deleted)" if checkpoint.deleted else ""
    return f"{printable(checkpoint.task_id)} @{checkpoint.sequence}{deleted}"


def _columns(rows: Sequence[Sequence[str]], head: Sequence[str]) -> list[str]:
    """As a table; behind the first two columns stand numbers, which end below each other."""
    every = [head, *rows]
    widths = [0 if at < 2 else max(len(row[at]) for row in every) for at in range(len(head))]
    aligned = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in every]
    return table(aligned[1:], aligned[0])
