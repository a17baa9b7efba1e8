"""`lastgood tasks` and `lastgood steps`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import fitted, local_time, print_result, printable, say, short_id, table
from lastgood.errors import InvalidError, NotFoundError
from lastgood.local.process import is_alive
from lastgood.model.identity import moment
from lastgood.views.status import PROCESS, view_step

if TYPE_CHECKING:
    from lastgood import OpenStep


@subcommand
@click.option("--limit", "-n", type=click.IntRange(1, 1000), default=100, show_default=True, help="How many.")
@click.option("--after", type=click.IntRange(min=1), metavar="NUMBER", help="Go on after the task of this number.")
def tasks(call: Invocation, limit: int, after: int | None) -> None:
    """List tasks, newest first: everybody's, or with --owner one owner's."""
    with call.open() as store:
        found = store.tasks(owner=call.owner, after=after or 0, limit=limit)
    rows = [
        [
            printable(task.id),
            printable(task.owner),
            str(task.checkpoints),
            short_id(task.active_branch_id),
            local_time(moment(task.created_at)),
        ]
        for task in found
    ]
    lines = table(rows, ("task", "owner", "checkpoints", "active branch", "created"))
    print_result(call, {"tasks": found}, map(fitted, lines))
    if len(found) == limit:
        say(call, f"perhaps there are more: --after {found[-1].number} goes on")


@subcommand
@click.option("--abandon", metavar="ID", help="Give this step up; an id, or its beginning.")
def steps(call: Invocation, abandon: str | None) -> None:
    """List the task's steps that were begun and not ended: who began them, when, and whether that process is there."""
    with call.open() as store:
        task_id = store.task(call.task_id(), owner=call.owner).task_id
        found = store.open_steps(task_id, owner=call.owner)
        if abandon is None:
            rows = [_row(step) for step in found]
            view = {"steps": [view_step(step) for step in found]}
            print_result(
                call, view, map(fitted, table(rows, ("id", "step", "type", "began", "by", "process")) if rows else [])
            )
            if not rows:
                say(call, "no step is open")
            return
        step = _chosen(found, abandon)
        store.abandon_step(step.id, owner=call.owner)
    print_result(call, {"abandoned": view_step(step)}, [f"gave up {printable(step.name)} ({step.id})"])
    if is_alive(step.process):
        say(call, f"note: process {step.process.pid} is still at it; what it commits will be refused")


def _row(step: OpenStep) -> list[str]:
    where = f"{PROCESS[is_alive(step.process)]} ({step.process.pid} on {printable(step.process.host)})"
    began = local_time(moment(step.began_at))
    return [short_id(step.id), printable(step.name), step.type, began, printable(step.began_by), where]


def _chosen(steps: list[OpenStep], name: str) -> OpenStep:
    found = [step for step in steps if step.id.startswith(name)] if name else []
    if not found:
        raise NotFoundError(f"there is no open step {name!r}", hint="`lastgood steps` lists them")
    if len(found) > 1:
        raise InvalidError(f"several open steps begin with {name!r}", hint="give more characters")
    return found[0]
