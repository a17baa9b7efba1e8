"""`lastgood verify`"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import click
import msgspec

from lastgood.catalog.values import StoredCheckpoint
from lastgood.cli.command import subcommand
from lastgood.cli.evidence import described, said
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import json_text, printable, short_id, styled
from lastgood.engine.names import resolve
from lastgood.errors import EvidenceError, IntegrityError, InvalidError, LostCommitsError
from lastgood.model.evidence import Evidence
from lastgood.model.task import TaskInfo
from lastgood.store import Store

Result = Literal["verified", "unverified", "failed", "damaged", "intact"]
_WORDS: dict[Result, str] = {
    "verified": "verified",
    "unverified": "unverified",
    "failed": "NOT verified",
    "damaged": "damaged",
    "intact": "intact",
}
_COLORS = {"verified": "green", "failed": "red", "damaged": "red"}


class Finding(msgspec.Struct, frozen=True):
    """What was found of one checkpoint; `id` is None where it cannot be read."""

    id: str | None
    task_id: str
    sequence: int
    result: Result
    problems: list[str] = []
    evidence: list[Evidence] = []


@subcommand
@click.argument("name", required=False)
@click.option("--all", "every", is_flag=True, help="Every checkpoint of the store, or of the task given with --task.")
@click.option("--bytes-only", is_flag=True, help="Leave evidence alone; look at stored bytes.")
def command(call: Invocation, name: str | None, every: bool, bytes_only: bool) -> None:
    """Check the checkpoint NAME (default: HEAD): every stored byte is what was saved, and its evidence holds now.

    What checking evidence gave is recorded.
    """
    if every and name is not None:
        raise click.UsageError("verify takes NAME or --all, not both")
    found: list[Finding] = []
    with call.open_to_work() as store:
        for one in _all(call, store, bytes_only) if every else [_one(call, store, name or "HEAD", bytes_only)]:
            found.append(one)
            if not call.json:
                click.echo("\n".join(_lines(one)))
    count = {result: sum(one.result == result for one in found) for result in _WORDS}
    if call.json:
        click.echo(json_text(_data(found, count)))
    elif every:
        told = ", ".join(f"{number} {_WORDS[result]}" for result, number in count.items() if number)
        click.echo(f"{len(found)} examined: {told or 'nothing to examine'}")
    if count["damaged"] or count["failed"]:
        wrong = IntegrityError if count["damaged"] else EvidenceError
        click.get_current_context().exit(wrong.exit_code)


def _one(call: Invocation, store: Store, name: str, bytes_only: bool) -> Finding:
    owner = call.owner or store.user
    stored = store.catalog.checkpoint(owner, resolve(store.catalog, owner, name, call.task_id()))
    assert stored is not None, "it was found by its name"
    return _examine(store, stored, bytes_only)


def _all(call: Invocation, store: Store, bytes_only: bool) -> Iterator[Finding]:
    """By sequence and one at a time, so that damage in one place does not hide the rest."""
    for task in _tasks(call, store):
        for sequence in range(1, task.last_sequence + 1):
            try:
                stored = store.catalog.checkpoint_at(task, sequence)
            except LostCommitsError:
                raise
            except IntegrityError as error:
                yield Finding(None, task.id, sequence, "damaged", [str(error)])
                continue
            if stored is None:
                yield Finding(None, task.id, sequence, "damaged", ["it is gone without a tombstone"])
            else:
                yield _examine(store, stored, bytes_only)


def _tasks(call: Invocation, store: Store) -> Iterator[TaskInfo]:
    if call.task is not None:
        yield store.line(call.task, call.owner or store.user).task
        return
    after = 0
    while page := store.tasks(owner=call.owner, after=after):
        yield from page
        after = page[-1].number


def _examine(store: Store, stored: StoredCheckpoint, bytes_only: bool) -> Finding:
    evidence: list[Evidence] = []
    result: Result = "intact"
    try:
        if bytes_only or stored.data is None:  # of a purged one only its tombstone is left
            problems = store.examine_checkpoint(stored.id, owner=stored.owner)
        else:
            checked = store.check_checkpoint(stored.id, owner=stored.owner)
            problems, evidence = checked.problems, checked.pack.evidence_list
            neither = not evidence or checked.pack.is_undecided
            result = "verified" if checked.verified else "unverified" if neither else "failed"
    except LostCommitsError:
        raise
    except (IntegrityError, InvalidError) as error:
        problems = [str(error)]
    result = "damaged" if problems else result
    return Finding(stored.id, stored.task_id, stored.placement.sequence, result, problems, evidence)


def _lines(one: Finding) -> list[str]:
    word = styled(_WORDS[one.result], fg=_COLORS.get(one.result))
    if one.result == "unverified":
        word += " (its evidence cannot be checked)" if one.evidence else " (no evidence)"
    first = f"{printable(one.task_id)} @{one.sequence} {short_id(one.id or '')}".rstrip()
    return [
        f"{first}: {word}",
        *(f"  {printable(problem)}" for problem in one.problems),
        *(f"  {said(evidence)}" for evidence in one.evidence),
    ]


def _data(found: list[Finding], count: dict[Result, int]) -> dict[str, Any]:
    return {
        "examined": len(found),
        "verified": count["verified"],
        "unverified": count["unverified"],
        "intact": count["intact"],
        "undecided": [_explained(one) for one in found if one.result == "unverified" and one.evidence],
        "failed": [_explained(one) for one in found if one.result == "failed"],
        "damaged": [{**_place(one), "problems": one.problems} for one in found if one.result == "damaged"],
    }


def _explained(one: Finding) -> dict[str, Any]:
    return {**_place(one), "evidence": [described(evidence) for evidence in one.evidence]}


def _place(one: Finding) -> dict[str, Any]:
    return {"id": one.id, "task_id": one.task_id, "sequence": one.sequence}
