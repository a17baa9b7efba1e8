"""`lastgood log`"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from lastgood.cli.invocation import Invocation, Number, subcommand_with_paths, task_argument
from lastgood.cli.output import (
    json_text,
    local_time,
    paged,
    printable,
    say,
    short_id,
    shortened,
    styled,
    width_of_output,
)
from lastgood.cli.summary import STYLES, age_text, mark_of, place_text, tagged_message
from lastgood.views.checkpoint import verification, view_listed
from lastgood.views.files import require_paths, touches
from lastgood.views.records import find_active_line, find_head_id

if TYPE_CHECKING:
    from lastgood import Checkpoint, Store

WIDEST_TYPE, WIDEST_BRANCH = 18, 24
PAGE, MOST_PAGES = 100, 10
"""How many checkpoints are compared with their parents to find those that changed a path."""


@subcommand_with_paths
@task_argument()
@click.option("--limit", "-n", type=Number(1, 1000), default=20, show_default=True, help="How many.")
@click.option("--all", "every", is_flag=True, help="Those of all branches, not only what led to HEAD.")
@click.option("--type", "type_", metavar="TYPE", help="Only those of this type.")
@click.option("--before", type=Number(1), metavar="SEQ", help="Only those before @SEQ.")
@click.option("--verbose", "-v", is_flag=True, help="With ids and times.")
@click.option("--graph", is_flag=True, help="Draw all branches, as `lastgood branch` does.")
def log(
    call: Invocation,
    limit: int,
    every: bool,
    type_: str | None,
    before: int | None,
    verbose: bool,
    graph: bool,
    paths: tuple[str, ...],
) -> None:
    """List the checkpoints that led to HEAD, newest first; with paths after -- those in which one of them changed.

    * marks HEAD; v: its evidence holds, x: it does not, ?: there is none, !: it is damaged.
    """
    if graph and (type_ or before or verbose or call.json or paths):
        raise click.UsageError("--graph draws branches: not with --type, --before, --verbose, --json or paths")
    paths = tuple(call.in_workspace(path, pattern=True) for path in paths)
    with call.open() as store:
        if graph:
            from lastgood.cli.branch import show_tree

            show_tree(call, store, limit)
            return
        task_id = call.task_id()
        line = task_id if every else find_active_line(store, call.owner, task_id)
        found, total, older = _find(store, call.owner, line, limit, type_, before, paths)
        head_id = find_head_id(store, call.owner, task_id)
        if call.json:
            listed = [view_listed(checkpoint, head_id) for checkpoint in found]
            click.echo(json_text({"checkpoints": listed, "total": total, "older": older}))
            return
        if head_id and not (found or older or before or type_):
            require_paths(store, store.find_checkpoint(head_id, owner=call.owner), paths)
        names = _branch_names(store, call.owner, task_id) if every else {}
        paged(_lines(found, head_id, names, verbose))
        if older is not None and older > 1 and len(found) < total:
            say(call, f"{len(found)} of {total}; older ones: {call.again('--before', older)}")


def _find(
    store: Store, owner: str | None, line: str, limit: int, type_: str | None, before: int | None, paths: Sequence[str]
) -> tuple[list[Checkpoint], int, int | None]:
    """Return checkpoints, how many there are in all, and before which there may be more. With paths so many are
    compared with their parents at most."""
    found: list[Checkpoint] = []
    if not paths:
        found, total = store.page_checkpoints(line, limit, type_, before=before, owner=owner)
        return found, total, found[-1].sequence if len(found) == limit else None
    total = 0
    for _ in range(MOST_PAGES):
        page, total = store.page_checkpoints(line, PAGE, type_, before=before, owner=owner)
        for checkpoint in page:
            before = checkpoint.sequence
            if touches(store, checkpoint, paths, owner):
                found.append(checkpoint)
            if len(found) == limit:
                return found, total, before
        if len(page) < PAGE:
            return found, total, None
    return found, total, before


def _branch_names(store: Store, owner: str | None, task_id: str) -> dict[str, str]:
    branches = store.branches(task_id, owner=owner)
    return {branch.id: printable(branch.name) for branch in branches} if len(branches) > 1 else {}


def _lines(found: Sequence[Checkpoint], head_id: str | None, names: dict[str, str], verbose: bool) -> list[str]:
    """Return a line for each checkpoint: place, mark, age, type, message; the message has what is left of the width."""
    now, width = datetime.now(UTC), width_of_output()
    places = {checkpoint.id: place_text(checkpoint) for checkpoint in found}
    columns = [_cells(checkpoint, names, now, verbose) for checkpoint in found]
    widths = [max(map(len, column)) for column in zip(*columns, strict=True)]
    marks = [mark_of(checkpoint) for checkpoint in found]
    lines, widest = [], max(map(len, marks), default=1)
    for checkpoint, mark, cells in zip(found, marks, columns, strict=True):
        is_head, style = checkpoint.id == head_id, STYLES[verification(checkpoint)]
        place = f"{'*' if is_head else ' '} {place_text(checkpoint):<5}"
        about = "  ".join(cell.ljust(size) for cell, size in zip(cells, widths, strict=True))
        rest = f" {about}  {_message(checkpoint, places)}".rstrip()
        rest = shortened(rest, width - len(place) - 1 - widest) if width else rest
        lines.append(f"{styled(place, bold=True) if is_head else place} {styled(mark.ljust(widest), **style)}{rest}")
    return lines


def _message(checkpoint: Checkpoint, places: dict[str, str]) -> str:
    if not checkpoint.integrity_ok:
        return "(damaged)"
    text, origin = tagged_message(checkpoint), places.get(checkpoint.parent_id or "")
    if checkpoint.message or checkpoint.type not in ("restored", "forked"):
        return text
    if checkpoint.type == "restored" and (checkpoint.version or 1) > 1:
        return f"{text} files of an earlier checkpoint".lstrip()
    return f"{text} from {origin}".lstrip() if origin else text


def _cells(checkpoint: Checkpoint, names: dict[str, str], now: datetime, verbose: bool) -> list[str]:
    if not checkpoint.integrity_ok:
        cells = ["", ""]
    else:
        cells = [f"{age_text(now - checkpoint.created_at):>4}", shortened(checkpoint.type, WIDEST_TYPE)]
    if verbose:
        cells[:1] = [short_id(checkpoint.id), local_time(checkpoint.created_at) if checkpoint.integrity_ok else ""]
    if names:
        cells.append(shortened(names.get(checkpoint.branch_id or "", ""), WIDEST_BRANCH))
    return cells
