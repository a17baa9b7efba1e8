"""`lastgood history`"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, get_args

import click

from lastgood.catalog.values import MAX_PAGE
from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, fitted, local_time, printable, say, short_id, table
from lastgood.cli.summary import MARKS, moment_text, verification
from lastgood.engine.history import Entry
from lastgood.errors import InvalidError
from lastgood.model.task import EventKind
from lastgood.store import Store

_AGO = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@subcommand
@click.option("--limit", "-n", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(get_args(EventKind)), help="Only this; repeatable.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only checkpoints of this type; repeatable.")
@click.option("--since", metavar="WHEN", help="Only from then on: 2h, 3d, or a date and time.")
@click.option("--before", type=click.IntRange(min=1), metavar="NUMBER", help="Only what is older than this entry.")
def command(
    call: Invocation,
    limit: int,
    kinds: tuple[str, ...],
    types: tuple[str, ...],
    since: str | None,
    before: int | None,
) -> None:
    """List all that happened to a task, newest first: checkpoints, restores, failures, verifications, tags.

    Of every branch; with --task BRANCH, of that branch and before it began.
    """
    at = None if since is None else _moment(since)
    list_history(call, limit, before, kinds=list(kinds) or None, types=list(types) or None, since=at)


def list_history(call: Invocation, limit: int, before: int | None, **wanted: Any) -> None:
    """Print the entries that `wanted` (see `Store.history`) lets through."""
    found: list[Entry] = []
    with call.open() as store:
        while len(found) < limit:
            size = min(limit - len(found), MAX_PAGE)
            page = store.history(call.task_id(), before=before, limit=size, owner=call.owner, **wanted)
            found += page
            if len(page) < size:
                break
            before = found[-1].sequence
        names = Names(call, store)
        data = {"entries": [described(entry, names) for entry in found]}
        rows = [entry_row(entry, names) for entry in found]
    answer(call, data, map(fitted, table(rows, ("entry", "time", "what", "by", "about"))))
    if len(found) == limit:
        say(call, f"perhaps there is more: --before {found[-1].sequence} goes on")


class Names:
    """What people call the branches and checkpoints of a task."""

    def __init__(self, call: Invocation, store: Store) -> None:
        self._store = store
        self._task_id = call.task_id()
        self._owner = call.owner or store.user
        self._branches = {one.id: one.name for one in store.branches(self._task_id, owner=call.owner)}

    def branch(self, branch_id: str) -> str:
        return printable(self._branches.get(branch_id) or self._deleted.get(branch_id) or short_id(branch_id))

    @cached_property
    def _deleted(self) -> dict[str, str]:
        """Branches of which nothing is left but what the log says."""
        found = self._store.history(self._task_id, kinds=["branch_deleted"], limit=MAX_PAGE, owner=self._owner)
        return {str(entry.data.get("branch")): str(entry.data.get("name", "")) for entry in found}

    def sequence(self, checkpoint_id: str | None) -> int | None:
        stored = self._store.catalog.checkpoint(self._owner, checkpoint_id) if checkpoint_id else None
        return stored.placement.sequence if stored else None

    def checkpoint(self, checkpoint_id: str | None) -> str:
        sequence = self.sequence(checkpoint_id)
        return short_id(checkpoint_id or "") if sequence is None else f"@{sequence}"

    def mark(self, checkpoint_id: str | None) -> str:
        stored = self._store.catalog.checkpoint(self._owner, checkpoint_id) if checkpoint_id else None
        return " " if stored is None or stored.data is None else MARKS[verification(self._store.wrap(stored))]


def described(entry: Entry, names: Names) -> dict[str, Any]:
    """For programs."""
    return {
        "sequence": entry.sequence,
        "at": moment_text(entry.at),
        "kind": entry.kind,
        "actor": entry.actor,
        "branch_id": entry.branch_id,
        "checkpoint_id": entry.checkpoint_id,
        "checkpoint_sequence": names.sequence(entry.checkpoint_id),
        "type": entry.type,
        "iteration": entry.iteration,
        "message": entry.message,
        "correlation_id": entry.correlation_id,
        "data": entry.data,
    }


def entry_row(entry: Entry, names: Names) -> list[str]:
    """For people, in a table."""
    return [f"#{entry.sequence}", _when(entry), entry.kind, printable(entry.actor), _told(entry, names)]


def _when(entry: Entry) -> str:
    return "" if entry.data.get("damaged") else local_time(entry.at)


def _told(entry: Entry, names: Names) -> str:
    """The entry in words, on one line."""
    build = _WORDS.get(entry.kind)
    return printable(build(entry, names).partition("\n")[0]) if build else names.checkpoint(entry.checkpoint_id)


def _made(entry: Entry, names: Names) -> str:
    if entry.data.get("damaged"):
        return f"{names.checkpoint(entry.checkpoint_id)} (damaged)"
    about = [names.checkpoint(entry.checkpoint_id), names.mark(entry.checkpoint_id), entry.type or "", entry.message]
    return " ".join(part for part in about if part.strip())


def _branched(entry: Entry, names: Names) -> str:
    return f"{_made(entry, names)} begins {names.branch(entry.branch_id)}"


def _restored(entry: Entry, names: Names) -> str:
    how = "forked" if entry.data.get("by") == "fork" else "back to"
    if entry.data.get("what") == "files":
        return f"files {how} {names.checkpoint(entry.checkpoint_id)}"
    return f"{how} {names.checkpoint(entry.checkpoint_id)}, on {names.branch(entry.data.get('branch', ''))}"


def _step(entry: Entry, names: Names) -> str:
    return f"{entry.data.get('name', '')}: {entry.data.get('reason') or 'no reason given'}"


def _verified(entry: Entry, names: Names) -> str:
    return f"{names.checkpoint(entry.checkpoint_id)} {'verified' if entry.data.get('verified') else 'NOT verified'}"


_WORDS: dict[str, Callable[[Entry, Names], str]] = {
    "created": _made,
    "branched": _branched,
    "diverged": lambda entry, names: f"what was spooled goes on on {names.branch(entry.data.get('branch', ''))}",
    "restored": _restored,
    "switched": lambda entry, names: f"to {names.branch(entry.branch_id)}",
    "undone": lambda entry, names: f"back on {names.branch(entry.branch_id)}",
    "redone": lambda entry, names: f"again on {names.branch(entry.branch_id)}",
    "branch_deleted": lambda entry, names: str(entry.data.get("name", "")),
    "step_failed": _step,
    "step_abandoned": _step,
    "taken_over": lambda entry, names: f"from {entry.data.get('from', '')} by {entry.data.get('to', '')}",
    "requested": lambda entry, names: f"{entry.data.get('kind', '')} ({entry.data.get('request', '')})",
    "request_met": lambda entry, names: f"{entry.data.get('kind', '')} ({entry.data.get('request', '')})",
    "request_refused": lambda entry, names: f"{entry.data.get('kind', '')}: {entry.data.get('reason', '')}",
    "tagged": lambda entry, names: f"{names.checkpoint(entry.checkpoint_id)} {entry.data.get('name', '')}",
    "untagged": lambda entry, names: f"{names.checkpoint(entry.checkpoint_id)} {entry.data.get('name', '')}",
    "verified": _verified,
}


def _moment(text: str) -> datetime:
    """`2h` ago, or a date and time; without a zone, the one here."""
    try:
        if match := _AGO.fullmatch(text):
            return datetime.now(UTC) - timedelta(**{_UNITS[match[2]]: int(match[1])})
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError) as error:
        raise InvalidError(
            f"--since {text[:80]!r} is not a moment", hint="as in 2h, 3d, 2026-11-15, 2026-11-15T09:30", field="since"
        ) from error
