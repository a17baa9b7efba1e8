"""`lastgood du`"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import click
import msgspec

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, counted, fitted, local_time, printable, say, short_id, size_text, table
from lastgood.cli.progress import counting
from lastgood.cli.summary import moment_text
from lastgood.errors import IntegrityError
from lastgood.upkeep.usage import BranchUsage, CheckpointUsage, Growth, Share, TaskUsage, Usage

Level = Literal["tasks", "branches", "checkpoints"]

_FIGURES = ("saved", "stored", "alone", "shared", "dedup", "compr")


@subcommand
@click.argument("id", required=False, metavar="[TASK]")
@click.option("--branches", is_flag=True, help="List branches.")
@click.option("--checkpoints", is_flag=True, help="List checkpoints.")
def command(call: Invocation, id: str | None, branches: bool, checkpoints: bool) -> None:
    """Say what takes how much of the store: on the whole, over time, and by task; of a TASK (or a branch), by branch.

    Of each: bytes as they were saved, as they are stored, how many of these it has alone (so many would become free
    without it) and shares with others; how often content is used again (dedup), and how much it is compressed (compr).
    """
    if branches and checkpoints:
        raise click.UsageError("du takes --branches or --checkpoints, not both")
    if id is not None and call.task is not None:
        raise click.UsageError("du takes TASK or --task, not both")
    wanted = call.task if id is None else id
    level: Level = "checkpoints" if checkpoints else "branches" if branches or wanted is not None else "tasks"
    with call.open() as store, counting(call, "measuring"):
        usage = store.usage(wanted, owner=call.owner)
        place = str(store.catalog.file)
    facts = _of_store(place, usage) if wanted is None or not usage.tasks else _of_task(usage.tasks[0])
    answer(call, _data(place, usage, level), map(fitted, _lines(facts, usage, level)))
    if usage.unreadable:
        unread = counted(usage.unreadable, "thing")
        say(call, f"{unread} could not be read, and what belongs to it is not counted: see `lastgood verify --all`")
        click.get_current_context().exit(IntegrityError.exit_code)


# --- for programs -------------------------------------------------------------------------------------------------


def _data(place: str, usage: Usage, level: Level) -> dict[str, Any]:
    whole = {
        "store": place,
        "disk_bytes": usage.disk_bytes,
        "catalog_bytes": usage.catalog_bytes,
        "free_bytes": usage.free_bytes,
        "packs": usage.packs,
        "pack_bytes": usage.pack_bytes,
        "unreferenced_bytes": usage.unreferenced_bytes,
        "stray_bytes": usage.stray_bytes,
        "unreadable": usage.unreadable,
        "total": _described(usage.total),
        "growth": [{**period._asdict(), "since": moment_text(period.since)} for period in usage.growth()],
        "tasks": list(map(_described, usage.tasks)),
    }
    more: Sequence[Share] = getattr(usage, level)
    return whole if level == "tasks" else {**whole, level: list(map(_described, more))}


def _described(share: Share) -> dict[str, Any]:
    fields = msgspec.structs.asdict(share)
    if "created_at" in fields:
        fields["created_at"] = moment_text(fields["created_at"])
    ratios = {"deduplication": round(share.deduplication, 3), "compression": round(share.compression, 3)}
    return {**fields, "shared": share.shared, **ratios}


# --- for people ---------------------------------------------------------------------------------------------------


def _of_store(place: str, usage: Usage) -> Iterator[tuple[str, str]]:
    catalog, packs = size_text(usage.catalog_bytes), size_text(usage.pack_bytes)
    yield "store", place
    yield "on disk", f"{size_text(usage.disk_bytes)}: catalog {catalog}, {counted(usage.packs, 'pack')} {packs}"
    yield from _of_share(usage.total)
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
    yield from _of_share(task)
    yield "alone", f"{size_text(task.unique)} that would become free without it"
    yield "shared", f"{size_text(task.shared)} that other tasks need, too"


def _of_share(share: Share) -> Iterator[tuple[str, str]]:
    yield "saved", f"{size_text(share.logical)}, each checkpoint by itself"
    yield "content", f"{size_text(share.content)}, everything once (deduplication {_times(share.deduplication)})"
    yield "stored", f"{size_text(share.stored)} (compression {_times(share.compression)})"


def _lines(facts: Iterator[tuple[str, str]], usage: Usage, level: Level) -> Iterator[str]:
    for name, value in facts:
        yield f"{name:<12} {printable(value)}"
    growth = usage.growth()
    if len(growth) > 1:
        yield ""
        yield from _columns(list(map(_growth, growth)), ("since", "checkpoints", "added", "in all"), 1)
    yield ""
    if level == "tasks":
        names = [[printable(one.id), printable(one.owner), f"{one.checkpoints:,}"] for one in usage.tasks]
        head: tuple[str, ...] = ("task", "owner", "checkpoints")
    elif level == "branches":
        names = [
            [_branch(one), short_id(one.id), printable(one.task_id), f"{one.checkpoints:,}"] for one in usage.branches
        ]
        head = ("branch", "id", "task", "checkpoints")
    else:
        names = [[_checkpoint(one), short_id(one.id), size_text(one.added)] for one in usage.checkpoints]
        head = ("checkpoint", "id", "added")
    listed: Sequence[Share] = getattr(usage, level)
    rows = [[*name, *_figures(share)] for name, share in zip(names, listed, strict=True)]
    yield from _columns(rows, (*head, *_FIGURES), len(head) - 1)


def _branch(branch: BranchUsage) -> str:
    return printable(branch.name) + (" (deleted)" if branch.deleted else "")


def _checkpoint(checkpoint: CheckpointUsage) -> str:
    deleted = " (deleted)" if checkpoint.deleted else ""
    return f"{printable(checkpoint.task_id)} @{checkpoint.sequence}{deleted}"


def _growth(period: Growth) -> list[str]:
    return [local_time(period.since)[:16], f"{period.checkpoints:,}", size_text(period.added), size_text(period.total)]


def _figures(share: Share) -> list[str]:
    sizes = map(size_text, (share.logical, share.stored, share.unique, share.shared))
    return [*sizes, _times(share.deduplication), _times(share.compression)]


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.1f}x"


def _columns(rows: Sequence[Sequence[str]], head: Sequence[str], text: int) -> list[str]:
    """As a table; behind the first `text` columns stand numbers, which end below each other."""
    every = [head, *rows]
    widths = [0 if at < text else max(len(row[at]) for row in every) for at in range(len(head))]
    aligned = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in every]
    return table(aligned[1:], aligned[0])
