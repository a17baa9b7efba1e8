"""`lastgood du`, `lastgood collect` and `lastgood limit`"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import click

from lastgood.cli.failure import FAILED, confirm
from lastgood.cli.input import size, span
from lastgood.cli.invocation import Invocation, subcommand, task_argument
from lastgood.cli.output import (
    counted,
    counting,
    few,
    field_lines,
    fitted,
    local_time,
    print_result,
    printable,
    say,
    short_id,
    size_text,
    styled,
    table,
)
from lastgood.errors import IntegrityError, InvalidError
from lastgood.store import Store
from lastgood.upkeep.collect import GRACE_SECONDS, Collected
from lastgood.upkeep.usage import CheckpointUsage, Evicted, Limited, TaskUsage, Usage
from lastgood.views.document import compose
from lastgood.views.records import count_deleted


@subcommand
@task_argument()
@click.option("--checkpoints", is_flag=True, help="List checkpoints.")
def du(call: Invocation, checkpoints: bool) -> None:
    """Show disk usage by task; of a TASK (or a branch), by checkpoint.

    Of each task: the bytes that its checkpoints need. Of each checkpoint: the bytes that it was the first to need
    (adds), and those that become free when it alone goes (frees).
    """
    with call.open() as store, counting(call, "measuring"):
        wanted = call.task
        usage = store.usage(wanted, owner=call.owner)
    checkpoints = checkpoints or wanted is not None
    place = str(call.locate().catalog)
    facts = _of_store(place, usage) if wanted is None or not usage.tasks else _of_task(usage.tasks[0])
    view = compose(usage, store=place, **({"checkpoints": usage.checkpoints} if checkpoints else {}))
    print_result(call, view, map(fitted, _usage_lines(facts, usage, checkpoints)))
    if usage.unreadable:
        unread = counted(usage.unreadable, "thing")
        say(call, f"{unread} could not be read, and what belongs to it is not counted: see `lastgood verify --all`")
        click.get_current_context().exit(IntegrityError.exit_code)


@subcommand
@click.option(
    "--grace",
    callback=span,
    default=str(GRACE_SECONDS),
    metavar="SPAN",
    help="How long to keep what is deleted or not needed: 30m, 1h (default), 2d; 0 is safe, too.",
)
@click.option("--dry-run", is_flag=True, help="List what would be removed; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def collect(call: Invocation, grace: float, dry_run: bool, yes: bool) -> None:
    """Collect garbage (gc): remove data that no checkpoint needs, and free its space. Others may save meanwhile.

    Checkpoints that were deleted longer than SPAN ago are purged; `rm --undo` does not bring these back. It asks before
    it purges what was deleted within the last hour. Content that nothing needs is removed by a run at least SPAN after
    the one that first found it so.
    """
    with call.open() as store:
        if not dry_run and (early := count_deleted(store, grace) - count_deleted(store, GRACE_SECONDS)) > 0:
            what = f"purge {counted(early, 'checkpoint')} for good that {'was' if early == 1 else 'were'} deleted"
            confirm(call, f"{what} within the last hour", "collect --grace", yes)
        with counting(call, "collecting") as stage:
            collected = store.collect(grace=grace, dry_run=dry_run, progress=stage)
        deleted = count_deleted(store) - (collected.purged if dry_run else 0)
    until = datetime.now(UTC) + timedelta(seconds=grace) if collected.condemned else None
    view = compose(collected, deleted=deleted, waits_until=until)
    print_result(call, view, _collect_lines(collected, deleted, until))


@subcommand
@click.argument("max_bytes", callback=size, metavar="SIZE")
@click.option("--dry-run", is_flag=True, help="List what would go; change nothing.")
@click.option("--keep", is_flag=True, help="Keep the store below SIZE from now on, without asking.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def limit(call: Invocation, max_bytes: int, dry_run: bool, keep: bool, yes: bool) -> None:
    """Bring the store below SIZE on disk, as in 500M or 2G: garbage goes first, then the oldest checkpoints, for good.

    Heads of branches, what only other branches have, tagged checkpoints and the last verified of each task never go.
    Lists what goes and what each frees, and asks; nothing else goes.
    """
    call.alerts.silenced.add("quota_exceeded")
    with call.open_to_work() as store:
        planned = None if dry_run else _ask(call, store, max_bytes, keep, yes)
        with counting(call, "measuring" if dry_run else "making room") as stage:
            limited = store.limit(max_bytes, dry_run=dry_run, planned=planned, keep=keep, progress=stage)
    listed = _listed(limited) if planned is None or yes else []
    print_result(call, limited, [*listed, *_outcome(limited)])
    if not limited.met:
        click.get_current_context().exit(FAILED)


def _ask(call: Invocation, store: Store, max_bytes: int, keep: bool, yes: bool) -> Limited | None:
    """List what goes and ask; return what was listed. None: the store is small enough. InvalidError where purging all
    that may go would not be enough: nothing is purged in vain."""
    if keep:
        what = f"purge the oldest checkpoints for good, without asking, whenever the store takes {size_text(max_bytes)}"
        confirm(call, what, "limit --keep", yes)
    if store.size() <= max_bytes:
        return None
    with counting(call, "measuring"):
        planned = store.limit(max_bytes, dry_run=True)
    if not planned.checkpoints:
        return planned
    if not planned.met:
        told = f"the store would still take about {size_text(planned.after)}, so nothing was purged: {planned.reason}"
        raise InvalidError(told, hint="give a larger SIZE, or delete tags and branches first")
    for line in [] if call.json or yes else [*_listed(planned), *_outcome(planned)]:
        click.echo(line, err=True)
    going = counted(len(planned.checkpoints), "checkpoint")
    confirm(call, f"purge {going} for good", "limit", yes)
    return planned


def _of_store(place: str, usage: Usage) -> Iterator[tuple[str, str]]:
    catalog, packs = size_text(usage.catalog_bytes), size_text(usage.pack_bytes)
    yield "store", place
    yield "on disk", f"{size_text(usage.disk_bytes)}: {catalog} database, {packs} in {counted(usage.packs, 'pack')}"
    yield "stored", f"{size_text(usage.stored_bytes)} that checkpoints need"
    if usage.unreferenced_bytes:
        yield "unreferenced", f"{size_text(usage.unreferenced_bytes)} that no checkpoint needs any more"
    if usage.stray_bytes:
        yield "stray", f"{size_text(usage.stray_bytes)} of saves that were interrupted or are under way"
    if usage.free_bytes:
        yield "free", f"{size_text(usage.free_bytes)} of the database, to be used again"


def _of_task(task: TaskUsage) -> Iterator[tuple[str, str]]:
    yield "task", task.id
    deleted = f", {task.deleted_checkpoints:,} of them deleted" if task.deleted_checkpoints else ""
    yield "checkpoints", f"{task.checkpoints:,}{deleted}"
    yield "stored", size_text(task.stored)


def _usage_lines(facts: Iterator[tuple[str, str]], usage: Usage, checkpoints: bool) -> Iterator[str]:
    yield from field_lines(facts)
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
    """Return a table; behind the first two columns stand numbers, which end below each other."""
    every = [head, *rows]
    widths = [0 if at < 2 else max(len(row[at]) for row in every) for at in range(len(head))]
    aligned = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in every]
    return table(aligned[1:], aligned[0])


def _collect_lines(collected: Collected, deleted: int, until: datetime | None) -> Iterator[str]:
    done = list(_done(collected))
    for verb, what in done:
        yield f"would {verb} {what}" if collected.dry_run else f"{_PAST[verb]} {what}"
    if not done:
        yield "nothing to remove"
    if until is not None:
        waiting = f"{counted(collected.condemned, 'blob')} ({size_text(collected.condemned_bytes)})"
        yield f"not needed any more: {waiting}; a run after {local_time(until)} removes them"
    if deleted:
        yield f"kept: {counted(deleted, 'checkpoint')} deleted within the grace period"


_PAST = {"purge": "purged", "remove": "removed", "rewrite": "rewrote", "free": "freed"}


def _done(collected: Collected) -> Iterator[tuple[str, str]]:
    if collected.purged:
        yield "purge", counted(collected.purged, "deleted checkpoint")
    if collected.removed:
        yield "remove", f"{counted(collected.removed, 'blob')} that nothing needs"
    if collected.packs_rewritten:
        yield "rewrite", f"{counted(collected.packs_rewritten, 'pack')} with much waste"
    if empty := collected.packs_removed - collected.packs_rewritten:
        yield "remove", counted(empty, "empty pack")
    if collected.strays:
        yield "remove", f"{counted(collected.strays, 'pack')} that belonged to no checkpoint"
    if collected.freed:
        yield "free", size_text(collected.freed)


def _listed(limited: Limited) -> list[str]:
    if not limited.checkpoints:
        return []
    head, *rows = table(list(map(_row, limited.checkpoints)), ("checkpoint", "id", "time", "frees"))
    return [head, *few(rows)]


def _row(evicted: Evicted) -> list[str]:
    place, when = f"{printable(evicted.task_id)} @{evicted.sequence}", local_time(evicted.created_at)
    return [place, short_id(evicted.id), when, size_text(evicted.frees)]


def _outcome(limited: Limited) -> Iterator[str]:
    if limited.checkpoints:
        yield f"{'would purge' if limited.dry_run else 'purged'} {counted(len(limited.checkpoints), 'checkpoint')}"
    before, after = size_text(limited.before), size_text(limited.after)
    takes = "would take about" if limited.dry_run else "takes"
    text = f"the store {takes} {after}, {before} before"
    if limited.met:
        yield text
    else:
        verdict = styled("limit not met", fg="red")
        yield f"{text}; {verdict}, {size_text(limited.max_bytes)}: {printable(limited.reason)}"
