"""`lastgood verify` and `lastgood last-good`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import json_text, print_result, printable, say, short_id, styled
from lastgood.cli.summary import evidence_text, line
from lastgood.errors import EvidenceError, IntegrityError, NotFoundError
from lastgood.views.checkpoint import (
    Examined,
    ExaminedResult,
    examine_all,
    examine_one,
    view_checkpoint,
    view_verification,
)

if TYPE_CHECKING:
    from lastgood import Verification

_WORDS: dict[ExaminedResult, str] = {
    "verified": "verified",
    "unverified": "unverified",
    "failed": "NOT verified",
    "damaged": "damaged",
    "intact": "intact",
}
_COLORS = {"verified": "green", "failed": "red", "damaged": "red"}


@subcommand
@click.argument("name", required=False)
@click.option("--all", "every", is_flag=True, help="Every checkpoint of the store, or of the task given with --task.")
@click.option("--bytes-only", is_flag=True, help="Leave evidence alone; look at stored bytes.")
def verify(call: Invocation, name: str | None, every: bool, bytes_only: bool) -> None:
    """Check the checkpoint NAME (default: HEAD): every stored byte is what was saved, and its evidence holds now.

    What checking evidence gave is recorded.
    """
    if every and name is not None:
        raise click.UsageError("verify takes NAME or --all, not both")
    found: list[Examined] = []
    with call.open_to_work() as store:
        if every:
            examined = examine_all(store, call.task, call.owner, bytes_only=bytes_only)
        else:
            examined = iter([examine_one(store, name or "HEAD", call.task_id(), call.owner, bytes_only=bytes_only)])
        for one in examined:
            found.append(one)
            if not call.json:
                click.echo("\n".join(_lines(one)))
    count = {result: sum(one.result == result for one in found) for result in _WORDS}
    if call.json:
        click.echo(json_text(view_verification(found)))
    elif every:
        counts = ", ".join(f"{number} {_WORDS[result]}" for result, number in count.items() if number)
        click.echo(f"{len(found)} examined: {counts or 'nothing to examine'}")
    if count["damaged"] or count["failed"]:
        wrong = IntegrityError if count["damaged"] else EvidenceError
        click.get_current_context().exit(wrong.exit_code)


@subcommand
@click.option("--verified", is_flag=True, help="Only one with evidence that holds.")
@click.option("--type", "type_", metavar="TYPE", help="Only one of this type.")
def last_good(call: Invocation, verified: bool, type_: str | None) -> None:
    """Find the newest checkpoint of the active branch that is intact and whose evidence holds now.

    One without evidence will do, unless --verified.
    """
    from lastgood.views.records import find_last_good

    refused: list[Verification] = []
    with call.open_to_work() as store:
        task_id = call.task_id()
        found = find_last_good(store, task_id, call.owner, verified=verified, type=type_, on_refused=refused.append)
        notes = [_refusal(one) for one in refused[:1]]
        if found is None:
            asked = "is intact, with evidence that holds" if verified else "is intact and not known to be bad"
            message = "; ".join([f"no checkpoint of {task_id!r} {asked}", *notes])
            raise NotFoundError(message, hint="`lastgood verify --all` says why")
        for note in notes:
            say(call, f"note: {note}")
        view = {"checkpoint": view_checkpoint(found)}
    print_result(call, view, [line(found)])


def _refusal(one: Verification) -> str:
    return f"whether {short_id(one.checkpoint_id)} is good cannot be said here: {one.refusal}"


def _lines(one: Examined) -> list[str]:
    word = styled(_WORDS[one.result], fg=_COLORS.get(one.result))
    if one.result == "unverified":
        word += " (its evidence cannot be checked)" if one.evidence else " (no evidence)"
    first = f"{printable(one.task_id)} @{one.sequence} {short_id(one.id or '')}".rstrip()
    return [
        f"{first}: {word}",
        *(f"  {printable(problem)}" for problem in one.problems),
        *(f"  {evidence_text(evidence)}" for evidence in one.evidence),
    ]
