"""`lastgood steps`"""

from __future__ import annotations

from typing import Any

import click

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, fitted, local_time, printable, say, short_id, table
from lastgood.cli.summary import moment_text
from lastgood.errors import InvalidError, NotFoundError
from lastgood.local.process import is_alive
from lastgood.model.identity import moment
from lastgood.model.step import OpenStep

STANDING = {True: "running", False: "gone", None: "unknown"}
"""Whether the process of a step is there; of another host's, nobody here can say."""


@subcommand
@click.option("--abandon", metavar="ID", help="Give this step up; an id, or its beginning.")
def command(call: Invocation, abandon: str | None) -> None:
    """List the task's steps that were begun and not ended: who began them, when, and whether that process is there."""
    with call.open() as store:
        position = store.catalog.position(call.owner or store.user, call.task_id())
        steps = store.open_steps(position.task.id if position else call.task_id(), owner=call.owner)
        if abandon is None:
            rows = [_row(step) for step in steps]
            data = {"steps": [described(step) for step in steps]}
            answer(
                call, data, map(fitted, table(rows, ("id", "step", "type", "began", "by", "process")) if rows else [])
            )
            if not rows:
                say(call, "no step is open")
            return
        step = _chosen(steps, abandon)
        store.abandon_step(step.id, owner=call.owner)
    answer(call, {"abandoned": described(step)}, [f"gave up {printable(step.name)} ({step.id})"])
    if is_alive(step.process):
        say(call, f"note: process {step.process.pid} is still at it; what it commits will be refused")


def described(step: OpenStep) -> dict[str, Any]:
    """For programs."""
    return {
        "id": step.id,
        "task_id": step.task_id,
        "branch_id": step.branch_id,
        "name": step.name,
        "type": step.type,
        "began_at": moment_text(moment(step.began_at)),
        "began_by": step.began_by,
        "host": step.process.host,
        "pid": step.process.pid,
        "process": STANDING[is_alive(step.process)],
    }


def _row(step: OpenStep) -> list[str]:
    where = f"{STANDING[is_alive(step.process)]} ({step.process.pid} on {printable(step.process.host)})"
    began = local_time(moment(step.began_at))
    return [short_id(step.id), printable(step.name), step.type, began, printable(step.began_by), where]


def _chosen(steps: list[OpenStep], name: str) -> OpenStep:
    found = [step for step in steps if step.id.startswith(name)] if name else []
    if not found:
        raise NotFoundError(f"there is no open step {name!r}", hint="`lastgood steps` lists them")
    if len(found) > 1:
        raise InvalidError(f"several open steps begin with {name!r}", hint="give more characters")
    return found[0]
