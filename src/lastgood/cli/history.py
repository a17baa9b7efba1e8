"""`lastgood history`"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

import click

from lastgood.cli.input import since_moment
from lastgood.cli.invocation import Invocation, Number, subcommand, task_argument
from lastgood.cli.output import fitted, local_time, print_result, printable, say, short_id, table
from lastgood.cli.summary import mark_of
from lastgood.model.task import Event, EventKind
from lastgood.views.document import compose
from lastgood.views.history import TaskNames, view_entries

if TYPE_CHECKING:
    from lastgood.types import Entry

HEADINGS = ("entry", "time", "what", "by", "about")


@subcommand
@task_argument()
@click.option("--limit", "-n", type=Number(1, 1000), default=20, show_default=True, help="How many.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    type=click.Choice(get_args(EventKind)),
    help="Only this kind: created, restored, tagged, …; repeatable.",
)
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only checkpoints of this type; repeatable.")
@click.option("--since", metavar="WHEN", help="Only since then: 2h, 3d, or a date and time.")
@click.option("--whole-store", is_flag=True, help="The store's own log: deleted tasks, repairs.")
@click.option("--before", type=Number(1), metavar="NUMBER", help="Only what is older than this entry.")
def history(
    call: Invocation,
    limit: int,
    kinds: tuple[str, ...],
    types: tuple[str, ...],
    since: str | None,
    whole_store: bool,
    before: int | None,
) -> None:
    """List everything that happened to a task, newest first: checkpoints, restores, failures, verifications, tags.

    Covers all branches; with --task BRANCH, that branch and what it began from.
    """
    if whole_store:
        _show_store(call, limit, before)
        return
    with call.open() as store:
        wanted: dict[str, Any] = {
            "kinds": list(kinds) or None,
            "types": list(types) or None,
            "since": None if since is None else since_moment(since),
            "owner": call.owner,
        }
        found = store.history(call.task_id(), before=before, limit=limit, **wanted)
        is_full = len(found) == limit
        older = is_full and store.history(call.task_id(), before=found[-1].sequence, limit=1, **wanted)
        names = TaskNames(store, call.task_id(), call.owner)
        rows = [] if call.json else [_cells(entry, _about(entry, names)) for entry in found]
        view = {"entries": list(view_entries(found, names))} if call.json else None
    print_result(call, view, map(fitted, table(rows, HEADINGS)))
    if older:
        say(call, f"Older entries: {call.again('--before', found[-1].sequence)}")


def _show_store(call: Invocation, limit: int, before: int | None) -> None:
    """Show the log of the store itself, which is short: it is read whole."""
    found: list[Event] = []
    with call.open() as store:
        while page := store.events(after=found[-1].sequence if found else 0, limit=1000):
            found += page
    found = [event for event in reversed(found) if before is None or event.sequence < before][:limit]
    rows = [_cells(event, ", ".join(f"{name} {value}" for name, value in event.data.items())) for event in found]
    print_result(call, {"entries": [compose(event) for event in found]}, map(fitted, table(rows, HEADINGS)))


def _cells(entry: Entry | Event, about: str) -> list[str]:
    when = "" if entry.data.get("damaged") else local_time(entry.at)
    return [f"#{entry.sequence}", when, entry.kind, printable(entry.actor), printable(about)]


def _about(entry: Entry, names: TaskNames) -> str:
    """Return the entry in words, on one line."""
    build = _WORDS.get(entry.kind)
    return printable(build(entry, names).partition("\n")[0]) if build else _checkpoint(names, entry.checkpoint_id)


def _checkpoint(names: TaskNames, checkpoint_id: str | None) -> str:
    sequence = names.sequence(checkpoint_id)
    return short_id(checkpoint_id or "") if sequence is None else f"@{sequence}"


def _branch(names: TaskNames, branch_id: str) -> str:
    return printable(names.branch(branch_id) or short_id(branch_id))


def _mark(names: TaskNames, checkpoint_id: str | None) -> str:
    checkpoint = names.checkpoint(checkpoint_id)
    return " " if checkpoint is None else mark_of(checkpoint)


def _made(entry: Entry, names: TaskNames) -> str:
    if entry.data.get("damaged"):
        return f"{_checkpoint(names, entry.checkpoint_id)} (damaged)"
    about = [
        _checkpoint(names, entry.checkpoint_id),
        _mark(names, entry.checkpoint_id),
        entry.type or "",
        entry.message,
    ]
    return " ".join(part for part in about if part.strip())


def _branched(entry: Entry, names: TaskNames) -> str:
    return f"{_made(entry, names)} begins {_branch(names, entry.branch_id)}"


def _restored(entry: Entry, names: TaskNames) -> str:
    how = "forked" if entry.data.get("by") == "fork" else "back to"
    if entry.data.get("what") == "files":
        return f"files {how} {_checkpoint(names, entry.checkpoint_id)}"
    return f"{how} {_checkpoint(names, entry.checkpoint_id)}, on {_branch(names, entry.data.get('branch', ''))}"


def _step(entry: Entry, names: TaskNames) -> str:
    return f"{entry.data.get('name', '')}: {entry.data.get('reason') or 'no reason given'}"


def _request(entry: Entry, more: str) -> str:
    return f"{entry.data.get('kind', '')}{more} ({entry.data.get('request', '')})"


def _said(entry: Entry, names: TaskNames) -> str:
    """Return what was asked for, beside its kind."""
    said = next((entry.data[name] for name in ("text", "answer", "artifact", "rounds") if name in entry.data), None)
    if said is None and (chosen := entry.data.get("checkpoint")) is not None:
        return f" {_checkpoint(names, chosen)}"
    return "" if said is None else f": {str(said).partition(chr(10))[0]}"


def _met(entry: Entry, names: TaskNames) -> str:
    """Return the checkpoint that met a request; some need none."""
    return "" if entry.checkpoint_id is None else f" by {_checkpoint(names, entry.checkpoint_id)}"


def _verified(entry: Entry, names: TaskNames) -> str:
    return f"{_checkpoint(names, entry.checkpoint_id)} {'verified' if entry.data.get('verified') else 'NOT verified'}"


_WORDS: dict[str, Callable[[Entry, TaskNames], str]] = {
    "created": _made,
    "branched": _branched,
    "diverged": lambda entry, names: f"what was spooled goes on on {_branch(names, entry.data.get('branch', ''))}",
    "restored": _restored,
    "switched": lambda entry, names: f"to {_branch(names, entry.branch_id)}",
    "undone": lambda entry, names: f"back on {_branch(names, entry.branch_id)}",
    "redone": lambda entry, names: f"again on {_branch(names, entry.branch_id)}",
    "branch_deleted": lambda entry, names: str(entry.data.get("name", "")),
    "step_failed": _step,
    "step_abandoned": _step,
    "taken_over": lambda entry, names: f"from {entry.data.get('from', '')} by {entry.data.get('to', '')}",
    "requested": lambda entry, names: _request(entry, _said(entry, names)),
    "request_fulfilled": lambda entry, names: _request(entry, _met(entry, names)),
    "request_refused": lambda entry, names: f"{entry.data.get('kind', '')}: {entry.data.get('reason', '')}",
    "tagged": lambda entry, names: f"{_checkpoint(names, entry.checkpoint_id)} {entry.data.get('name', '')}",
    "untagged": lambda entry, names: f"{_checkpoint(names, entry.checkpoint_id)} {entry.data.get('name', '')}",
    "verified": _verified,
}
