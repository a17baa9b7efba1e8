"""`lastgood limit`"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from lastgood.cli.command import subcommand
from lastgood.cli.failure import FAILED
from lastgood.cli.files import few
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, counted, local_time, printable, short_id, size_text, styled, table
from lastgood.cli.progress import counting
from lastgood.cli.quantity import size
from lastgood.cli.question import confirm
from lastgood.cli.summary import moment_text
from lastgood.store import Store
from lastgood.upkeep.limit import Evicted, Limited


@subcommand
@click.argument("max_bytes", callback=size, metavar="SIZE")
@click.option("--dry-run", is_flag=True, help="Say what would go, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(call: Invocation, max_bytes: int, dry_run: bool, yes: bool) -> None:
    """Bring the store below SIZE on disk, as in 500M or 2G: garbage goes first, then the oldest checkpoints, for good.

    Heads of active branches, tagged checkpoints and the last verified of each task never go. You are told what each
    would free, and asked.
    """
    call.teller.says.add("quota_exceeded")
    with call.open_to_work() as store:
        is_told = not (dry_run or yes) and _ask(call, store, max_bytes)
        with counting(call, "measuring" if dry_run else "making room") as stage:
            limited = store.limit(max_bytes, dry_run=dry_run, progress=stage)
    listed = [] if is_told else _listed(limited)
    answer(call, _data(limited), [*listed, *_outcome(limited)])
    if not limited.met:
        click.get_current_context().exit(FAILED)


def _ask(call: Invocation, store: Store, max_bytes: int) -> bool:
    """Whether people were told what goes: not where the store is small enough, and nothing has to."""
    if store.size() <= max_bytes:
        return False
    with counting(call, "measuring"):
        planned = store.limit(max_bytes, dry_run=True)
    for line in [] if call.json else [*_listed(planned), *_outcome(planned)]:
        click.echo(line, err=True)
    going = counted(len(planned.checkpoints), "checkpoint")
    confirm(call, f"purge {going} for good, or as many as it takes", "limit", yes=False)
    return True


def _data(limited: Limited) -> dict[str, Any]:
    import msgspec

    gone = [{**each._asdict(), "created_at": moment_text(each.created_at)} for each in limited.checkpoints]
    return {**msgspec.structs.asdict(limited), "checkpoints": gone}


def _listed(limited: Limited) -> list[str]:
    if not limited.checkpoints:
        return []
    head, *rows = table(list(map(_row, limited.checkpoints)), ("checkpoint", "id", "time", "frees"))
    return [head, *few(rows)]


def _row(evicted: Evicted) -> list[str]:
    when = "" if evicted.created_at is None else local_time(evicted.created_at)
    return [f"{printable(evicted.task_id)} @{evicted.sequence}", short_id(evicted.id), when, size_text(evicted.frees)]


def _outcome(limited: Limited) -> Iterator[str]:
    if limited.checkpoints:
        yield f"{'would purge' if limited.dry_run else 'purged'} {counted(len(limited.checkpoints), 'checkpoint')}"
    before, after = size_text(limited.before), size_text(limited.after)
    takes = "would take about" if limited.dry_run else "takes"
    told = f"the store {takes} {after}, {before} before"
    if limited.met:
        yield told
    else:
        verdict = styled("limit not met", fg="red")
        yield f"{told}; {verdict}, {size_text(limited.max_bytes)}: {printable(limited.reason)}"
