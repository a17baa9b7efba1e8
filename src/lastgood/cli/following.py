"""`lastgood log -f`: what happens to a task, as it happens, whichever process does it."""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Any, Protocol

import click

from lastgood.catalog.values import MAX_PAGE, StoredCheckpoint
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import fitted, json_text, printable, say
from lastgood.cli.summary import row, summary
from lastgood.engine.engine import why_away
from lastgood.errors import UnavailableError
from lastgood.model.identity import check_type
from lastgood.spool.entry import is_provisional
from lastgood.spool.known import is_there

if TYPE_CHECKING:
    from lastgood.catalog.values import HistoryRange
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.history import Entry
    from lastgood.store import Store

POLL_SECONDS = 0.3
"""So often it is looked whether something happened: one row is read for that, and whether something is spooled."""
NEW = 20
"""New ones are read so many at a time."""


class _Feed(Protocol):
    """What is followed. `last`: the number of the newest in the store that was looked at; None: none was yet."""

    last: int | None

    def show(self, line: HistoryRange, waiting: Set[str], limit: int | None) -> None:
        """Print those after `last`, oldest first; the last `limit` of them. `waiting`: the ids of spooled ones."""


def follow(call: Invocation, limit: int, type_: str | None, *, everything: bool) -> None:
    """Print the last `limit`, oldest first, and then each new one until Ctrl-C. With --json, one object a line."""
    with call.open() as store:
        feed: _Feed = _Entries(call, store, type_) if everything else _Checkpoints(call, store, type_)
        following = _Following(call, store, feed, limit)
        try:
            following.look()
            while True:
                time.sleep(POLL_SECONDS)
                following.look()
        except KeyboardInterrupt:
            return


class _Following:
    """Looks whether something happened, and whether the store is there: that it is not is said once."""

    def __init__(self, call: Invocation, store: Store, feed: _Feed, limit: int) -> None:
        self._call = call
        self._store = store
        self._feed = feed
        self._limit = limit
        self._is_known = False
        self._is_away = False
        self._seen: tuple[object, ...] | None = None

    def look(self) -> None:
        """Show what is new; while the store is away, what is spooled."""
        try:
            away = self._show_new()
        except UnavailableError as error:
            if not self._is_known:
                raise
            away = why_away(error)
        if away is not None and not self._is_away:
            say(self._call, f"the store is away: {away}; what is spooled meanwhile is shown as such")
        elif away is None and self._is_away:
            say(self._call, "the store is back")
        self._is_away = away is not None

    def _show_new(self) -> str | None:
        """Why the store is away; None when it is not."""
        store, name = self._store, self._call.task_id()
        line = store.line(name, self._call.owner or store.user)
        self._is_known = True
        spooled = [] if store.spool is None else store.spool.file.pending(line.task.owner, line.task.id)
        waiting = {each.id for each in spooled}
        seen = line.task.last_sequence, line.task.last_event, waiting
        if seen != self._seen:
            is_first = self._seen is None or (self._feed.last is None and _is_stored(line))
            self._feed.show(line, waiting, self._limit if is_first else None)
            self._seen = seen
        file = store.catalog.file
        if file is not None and not is_there(file):
            return "it is not where it was"
        return "it could not take what was saved last" if waiting else None


class _Checkpoints:
    """The checkpoints of a task. Those that are spooled have no place in it yet, and come again when they have."""

    def __init__(self, call: Invocation, store: Store, type_: str | None) -> None:
        self._call = call
        self._store = store
        self._type = None if type_ is None else check_type("type", type_)
        self._spooled: Set[str] = frozenset()
        self.last: int | None = None

    def show(self, line: HistoryRange, waiting: Set[str], limit: int | None) -> None:
        def page(before: int | None, size: int) -> list[StoredCheckpoint]:
            return self._store.catalog.checkpoints(line, before=before, limit=size, type=self._type)

        found = _read(page, lambda one: one.placement.sequence, limit, self.last or 0)
        spooled = [one for one in found if is_provisional(one.placement.sequence)]
        stored = [one for one in found if not is_provisional(one.placement.sequence)] if _is_stored(line) else []
        new = [one for one in spooled if one.id not in self._spooled]
        self._print(line, [self._store.wrap(one) for one in new + stored])
        self._spooled = waiting | {one.id for one in new}
        if _is_stored(line):
            self.last = max([self.last or 0, line.task.last_sequence, *(one.placement.sequence for one in stored)])

    def _print(self, line: HistoryRange, found: list[Checkpoint]) -> None:
        if not found:
            return
        branches = self._store.catalog.branches(line.task) if _is_stored(line) else []
        names = {branch.id: branch.name for branch in branches}
        active = self._store.line(self._call.task_id(), self._call.owner or self._store.user, active=True).branch
        head_id = active.head.id if active and active.head else None
        for one in reversed(found):
            if self._call.json:
                click.echo(json_text({**summary(one), "head": one.id == head_id}))
                continue
            place, mark, id_, when, kind, message = row(one, None)
            where = f"({printable(names.get(one.branch_id or '', ''))}) " if len(names) > 1 else ""
            click.echo(fitted(f"{place.strip():>6} {mark} {id_} {when} {kind:<12} {where}{message}".rstrip()))


class _Entries:
    """All that happened to a task, by the numbers of entries. What is spooled happens when it comes into the store."""

    def __init__(self, call: Invocation, store: Store, type_: str | None) -> None:
        self._call = call
        self._store = store
        self._types = None if type_ is None else [type_]
        self.last: int | None = None

    def show(self, line: HistoryRange, waiting: Set[str], limit: int | None) -> None:
        def page(before: int | None, size: int) -> list[Entry]:
            name, owner = self._call.task_id(), self._call.owner
            return self._store.history(name, before=before, limit=size, owner=owner, types=self._types)

        found = _read(page, lambda one: one.sequence, limit, self.last or 0)
        if _is_stored(line):
            self.last = max([self.last or 0, *(one.sequence for one in found)])
        self._print(found)

    def _print(self, found: list[Entry]) -> None:
        from lastgood.cli.history import Names, described, entry_row

        if not found:
            return
        names = Names(self._call, self._store)
        for one in reversed(found):
            if self._call.json:
                click.echo(json_text(described(one, names)))
                continue
            number, when, kind, by, about = entry_row(one, names)
            click.echo(fitted(f"{number:>6} {when} {kind:<15} {by:<10} {about}".rstrip()))


def _is_stored(line: HistoryRange) -> bool:
    """Whether the store has the task, and says where it stands."""
    return line.task.number >= 0


def _read(
    page: Callable[[int | None, int], list[Any]], number: Callable[[Any], int], limit: int | None, after: int
) -> list[Any]:
    """Page by page, newest first, down to the one numbered `after`; at most `limit`."""
    found: list[Any] = []
    before: int | None = None
    while limit is None or len(found) < limit:
        size = NEW if limit is None else min(limit - len(found), MAX_PAGE)
        got = page(before, size)
        found += [one for one in got if number(one) > after]
        if len(got) < size or number(got[-1]) <= after:
            break
        before = number(got[-1])
    return found
