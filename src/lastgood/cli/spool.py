"""`lastgood spool`"""

from __future__ import annotations

from typing import Any

import click

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, counted, fitted, local_time, printable, say, short_id, size_text, table
from lastgood.cli.summary import moment_text
from lastgood.engine.checkpoint import Checkpoint
from lastgood.model.identity import moment
from lastgood.spool.replay import Replayed
from lastgood.spool.spool import Spool, SpoolFigures
from lastgood.store import Store


@subcommand
@click.option("--replay", is_flag=True, help="Bring them into the store now, or say why that cannot be.")
def command(call: Invocation, replay: bool) -> None:
    """List the checkpoints that wait for the store, because it could not take them, and those that were set aside.

    Every command that opens the store brings them there, if it is back.
    """
    with call.open() as store:
        done = store.replay() if replay else None
        figures = store.spool_figures()
        waiting = [] if store.spool is None else _listed(store.spool)
    rows = [[one["task_id"], short_id(one["id"]), one["shown_at"], one["reason"] or "waits"] for one in waiting]
    data = {
        **figures_data(figures),
        "checkpoints": [{key: value for key, value in one.items() if key != "shown_at"} for one in waiting],
        "replayed": None if done is None else _replayed(done),
    }
    answer(call, data, map(fitted, table(rows, ("task", "id", "since", "")) if rows else []))
    if done is not None:
        say(call, f"{counted(done.stored, 'checkpoint')} came into the store")
    for left in figures.left:
        say(call, f"a spool was put out of the way: {printable(left)}")
    if figures.away is not None:
        say(call, f"the store is away: {figures.away}")
    elif not rows:
        say(call, "nothing is spooled")


def figures_data(figures: SpoolFigures) -> dict[str, Any]:
    """For programs."""
    return {
        "depth": figures.depth,
        "bytes": figures.bytes,
        "max_bytes": figures.max_bytes,
        "oldest": moment_text(figures.oldest),
        "aside": figures.aside,
        "away": figures.away,
        "durable": figures.durable,
        "folder": figures.folder,
        "left": list(figures.left),
    }


def in_words(figures: SpoolFigures) -> str | None:
    """For people; None when there is nothing to say."""
    said = [] if figures.away is None else [f"the store is away ({figures.away})"]
    if figures.depth:
        since = "" if figures.oldest is None else f" since {local_time(figures.oldest)}"
        waiting = f"{counted(figures.depth, 'checkpoint')} wait{'s' if figures.depth == 1 else ''} for it{since}"
        said.append(f"{waiting}, {size_text(figures.bytes)}")
    if figures.aside:
        said.append(f"{counted(figures.aside, 'checkpoint')} set aside")
    said += [f"a spool was put out of the way: {printable(left)}" for left in figures.left]
    return "; ".join(said) or None


def waits(store: Store, checkpoint: Checkpoint) -> str | None:
    """In words, with how many others a checkpoint waits for the store; None when it is there."""
    return None if checkpoint.sequence is not None else in_words(store.spool_figures())


def _listed(spool: Spool) -> list[dict[str, Any]]:
    both = [*((each, None) for each in spool.file.pending()), *spool.file.aside()]
    return [
        {
            "id": each.id,
            "owner": each.owner,
            "task_id": printable(each.task_id),
            "since": moment_text(moment(each.at)),
            "shown_at": local_time(moment(each.at)),
            "reason": reason,
        }
        for each, reason in both
    ]


def _replayed(done: Replayed) -> dict[str, Any]:
    return {
        "stored": done.stored,
        "left": done.left,
        "diverged": [each._asdict() for each in done.diverged],
        "aside": [each._asdict() for each in done.aside],
    }
