"""`lastgood collect`"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, counted, local_time, size_text
from lastgood.cli.progress import counting
from lastgood.cli.quantity import span, span_text
from lastgood.cli.summary import moment_text
from lastgood.model.identity import now
from lastgood.upkeep.collect import GRACE_SECONDS, Collected


@subcommand
@click.option(
    "--grace",
    callback=span,
    default=str(GRACE_SECONDS),
    metavar="SPAN",
    help="How long to keep what is deleted or not needed any more: 30m, 1h (default), 2d; 0 is safe, too.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and change nothing.")
def command(call: Invocation, grace: float, dry_run: bool) -> None:
    """Collect garbage (gc): remove what no checkpoint needs any more, and give the room back. Others may save.

    Checkpoints that were deleted longer than SPAN ago are purged; `rm --undo` does not bring these back. Content that
    nobody needs is removed by a run at least SPAN after the one that first found it so.
    """
    with call.open() as store, counting(call, "collecting") as stage:
        collected = store.collect(grace=grace, dry_run=dry_run, progress=stage)
        deleted = len(store.catalog.deleted_before(now())) - (collected.purged if dry_run else 0)
    until = datetime.now(UTC) + timedelta(seconds=grace) if collected.condemned else None
    answer(call, _data(collected, deleted, until), _lines(collected, deleted, until, span_text(grace)))


def _data(collected: Collected, deleted: int, until: datetime | None) -> dict[str, Any]:
    import msgspec

    figures = msgspec.structs.asdict(collected)
    del figures["was_busy"]  # that is an error here
    return {**figures, "waits_until": moment_text(until), "deleted": deleted}


def _lines(collected: Collected, deleted: int, until: datetime | None, grace: str) -> Iterator[str]:
    done = list(_done(collected))
    for verb, what in done:
        yield f"would {verb} {what}" if collected.dry_run else f"{_PAST[verb]} {what}"
    if not done:
        yield "nothing to remove"
    if until is not None:
        waiting = f"{counted(collected.condemned, 'blob')} ({size_text(collected.condemned_bytes)})"
        yield f"not needed any more: {waiting}; a run after {local_time(until)} removes them"
    if deleted:
        yield f"kept: {counted(deleted, 'checkpoint')} deleted less than {grace} ago"


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
