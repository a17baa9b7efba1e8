"""`lastgood log -f`: what happens to a task, as it happens, whichever process does it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from lastgood.catalog.contract import MAX_PAGE
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import fitted, json_text, printable
from lastgood.cli.summary import row, summary
from lastgood.engine.checkpoint import Checkpoint

if TYPE_CHECKING:
    from lastgood.engine.history import Entry
    from lastgood.engine.store import Store
    from lastgood.model.task import TaskInfo

POLL_SECONDS = 0.3
"""So often it is looked whether something happened: one row is read for that."""
NEW = 20
"""New ones are read so many at a time."""


def follow(call: Invocation, limit: int, type_: str | None, *, everything: bool) -> None:
    """Print the last `limit`, oldest first, and then each new one until Ctrl-C. With --json, one object a line."""
    with call.open() as store:
        feed = _Entries(call, store, type_) if everything else _Checkpoints(call, store, type_)
        try:
            seen = _counters(call, store)
            feed.show(limit, 0)
            while True:
                time.sleep(POLL_SECONDS)
                if (now := _counters(call, store)) != seen:
                    feed.show(None, feed.last)
                    seen = now
        except KeyboardInterrupt:
            return


def _counters(call: Invocation, store: Store) -> tuple[int, int]:
    task = _task(call, store)
    return task.last_sequence, task.last_event


def _task(call: Invocation, store: Store) -> TaskInfo:
    return store.line(call.task_id(), call.owner or store.user).task


class _Checkpoints:
    """The checkpoints of a task. `last`: the sequence of the newest that was looked at."""

    def __init__(self, call: Invocation, store: Store, type_: str | None) -> None:
        self._call = call
        self._store = store
        self._type = type_
        self.last = 0

    def show(self, limit: int | None, after: int) -> None:
        """Print those after that sequence, oldest first; the last `limit` of them."""

        def page(before: int | None, size: int) -> list[Checkpoint]:
            name, owner = self._call.task_id(), self._call.owner
            return self._store.page_checkpoints(name, size, self._type, before=before, owner=owner).checkpoints

        found = _read(page, lambda one: one.sequence or 0, limit, after)
        self.last = max([self.last, *(one.sequence or 0 for one in found)])
        self._print(found)

    def _print(self, found: list[Checkpoint]) -> None:
        if not found:
            return
        branches = self._store.branches(self._call.task_id(), owner=self._call.owner)
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
    """All that happened to a task. `last`: the number of the newest entry that was looked at."""

    def __init__(self, call: Invocation, store: Store, type_: str | None) -> None:
        self._call = call
        self._store = store
        self._types = None if type_ is None else [type_]
        self.last = 0

    def show(self, limit: int | None, after: int) -> None:
        """As above, by the number of the entry."""

        def page(before: int | None, size: int) -> list[Entry]:
            name, owner = self._call.task_id(), self._call.owner
            return self._store.history(name, before=before, limit=size, owner=owner, types=self._types)

        found = _read(page, lambda one: one.sequence, limit, after)
        self.last = max([self.last, *(one.sequence for one in found)])
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
