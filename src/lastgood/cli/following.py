"""`lastgood log -f`: what happens to a task, as it happens, whichever process does it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Any, Protocol

import click

from lastgood.cli.invocation import Invocation
from lastgood.cli.output import fitted, json_text, printable, say
from lastgood.cli.summary import row
from lastgood.engine.engine import why_away
from lastgood.errors import UnavailableError
from lastgood.model.identity import check_type
from lastgood.views.checkpoint import view_listed
from lastgood.views.records import find_head_id, find_task, list_page
from lastgood.views.status import list_spooled

if TYPE_CHECKING:
    from lastgood import Checkpoint, Entry, Store, TaskInfo

POLL_SECONDS = 0.3
"""How often the store is polled: one row is read, and whether something is spooled."""
NEW = 20
"""New ones are read so many at a time."""
PAGE = 1000


class _Feed(Protocol):
    """What is followed. `last`: the number of the newest in the store that was read; None: none was yet."""

    last: int | None

    def show(self, task: TaskInfo, waiting: Set[str], limit: int | None) -> None:
        """Print those after `last`, oldest first; the last `limit` of them. `waiting`: the ids of spooled ones."""


def follow(call: Invocation, limit: int, type_: str | None, *, everything: bool) -> None:
    """Print the last `limit`, oldest first, and then each new one until Ctrl-C. With --json, one object a line."""
    with call.open() as store:
        feed: _Feed = _Entries(call, store, type_) if everything else _Checkpoints(call, store, type_)
        following = _Following(call, store, feed, limit)
        try:
            following.poll()
            while True:
                time.sleep(POLL_SECONDS)
                following.poll()
        except KeyboardInterrupt:
            return


class _Following:
    """Polls whether something happened, and whether the store is there: that it is not is said once."""

    def __init__(self, call: Invocation, store: Store, feed: _Feed, limit: int) -> None:
        self._call = call
        self._store = store
        self._file = call.locate().catalog
        self._feed = feed
        self._limit = limit
        self._is_known = False
        self._is_away = False
        self._seen: tuple[object, ...] | None = None

    def poll(self) -> None:
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
        """Show what is new, and return why the store is away; None when it is not."""
        task = find_task(self._store, self._call.owner, self._call.task_id())
        self._is_known = True
        spooled = [one for one, reason in list_spooled(self._store) if reason is None]
        waiting = {one.id for one in spooled if (one.owner, one.task_id) == (task.owner, task.id)}
        seen = task.last_sequence, task.last_event, waiting
        if seen != self._seen:
            is_first = self._seen is None or (self._feed.last is None and _is_stored(task))
            self._feed.show(task, waiting, self._limit if is_first else None)
            self._seen = seen
        if self._file is not None and not os.path.exists(self._file):  # noqa: PTH110 - never raises
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

    def show(self, task: TaskInfo, waiting: Set[str], limit: int | None) -> None:
        def page(before: int | None, size: int) -> list[Checkpoint]:
            name, owner = self._call.task_id(), self._call.owner
            return list_page(self._store, owner, name, size, self._type, before)

        found = _read(page, limit, self.last or 0, more=len(waiting))
        stored = [one for one in found if one.sequence is not None] if _is_stored(task) else []
        new = [one for one in found if one.sequence is None and one.id not in self._spooled]
        self._print(task, new + stored)
        self._spooled = waiting | {one.id for one in new}
        if _is_stored(task):
            self.last = max([self.last or 0, task.last_sequence, *(one.sequence for one in stored)])

    def _print(self, task: TaskInfo, found: list[Checkpoint]) -> None:
        if not found:
            return
        branches = self._store.branches(task.id, owner=task.owner) if _is_stored(task) else []
        names = {branch.id: branch.name for branch in branches}
        head_id = find_head_id(self._store, self._call.owner, self._call.task_id())
        for one in reversed(found):
            if self._call.json:
                click.echo(json_text(view_listed(one, head_id)))
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

    def show(self, task: TaskInfo, waiting: Set[str], limit: int | None) -> None:
        def page(before: int | None, size: int) -> list[Entry]:
            name, owner = self._call.task_id(), self._call.owner
            return self._store.history(name, before=before, limit=size, owner=owner, types=self._types)

        found = _read(page, limit, self.last or 0)
        if _is_stored(task):
            self.last = max([self.last or 0, *(one.sequence for one in found)])
        self._print(found)

    def _print(self, found: list[Entry]) -> None:
        if not found:
            return
        from lastgood.cli.history import entry_row
        from lastgood.views.history import TaskNames, view_entries

        names = TaskNames(self._store, self._call.task_id(), self._call.owner)
        found.reverse()
        if self._call.json:
            for view in view_entries(found, names):
                click.echo(json_text(view))
            return
        for one in found:
            number, when, kind, by, about = entry_row(one, names)
            click.echo(fitted(f"{number:>6} {when} {kind:<15} {by:<10} {about}".rstrip()))


def _is_stored(task: TaskInfo) -> bool:
    """Whether the store has the task, and not only the spool."""
    return task.number >= 0


def _read(page: Callable[[int | None, int], list[Any]], limit: int | None, after: int, *, more: int = 0) -> list[Any]:
    """Read page by page, newest first, down to the one numbered `after`; at most `limit`.

    Spooled ones have no number, and are the newest: `more` is how many the first page must have room for.
    """
    found: list[Any] = []
    before: int | None = None
    while limit is None or len(found) < limit:
        size = min(NEW + more if limit is None else limit - len(found), PAGE)
        got = page(before, size)
        found += [one for one in got if one.sequence is None or one.sequence > after]
        before = got[-1].sequence if got else None
        if len(got) < size or before is None or before <= after:
            break
    return found
