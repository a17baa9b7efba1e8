"""One history of a task: checkpoints, restores, verifications, failures and interventions in one order (A17)."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.catalog.values import MAX_PAGE, HistoryRange
from lastgood.errors import InvalidError
from lastgood.model.identity import check_number
from lastgood.model.task import Event

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog


class Entry(msgspec.Struct, frozen=True):
    """Something that happened to a task. `type` and `iteration` are those of the checkpoint it made, if it made one; of
    a request that was fulfilled, `checkpoint_id` is the checkpoint that did that."""

    sequence: int
    at: datetime
    kind: str
    actor: str
    branch_id: str
    checkpoint_id: str | None
    type: str | None
    iteration: int | None
    message: str
    correlation_id: str
    data: dict[str, Any]


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries are wanted; None: all."""

    kinds: Collection[str] | None = None
    types: Collection[str] | None = None
    actor: str | None = None
    checkpoint_id: str | None = None
    iteration: int | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("kinds", "types"):
            value = getattr(self, name)
            if isinstance(value, str | bytes) or not isinstance(value, Collection | None):
                raise InvalidError(f"{name} is not a list of texts", hint=f'as in {name}=["created"]')
        for name in ("since", "until"):
            at = getattr(self, name)
            if at is not None and (not isinstance(at, datetime) or at.tzinfo is None):
                raise InvalidError(f"{name} is not a moment with a time zone", hint="as in datetime.now(UTC)")

    def admits(self, entry: Entry) -> bool:
        return (
            (self.kinds is None or entry.kind in self.kinds)
            and (self.types is None or entry.type in self.types)
            and (self.actor is None or entry.actor == self.actor)
            and (self.checkpoint_id is None or entry.checkpoint_id == self.checkpoint_id)
            and (self.iteration is None or entry.iteration == self.iteration)
            and (self.since is None or entry.at >= self.since)
            and (self.until is None or entry.at < self.until)
        )


def read_history(
    catalog: Catalog, line: HistoryRange, wanted: Filter, *, before: int | None = None, limit: int = 100
) -> list[Entry]:
    """Return entries, newest first: at most `limit` (and 1,000) that `wanted` admits, with a sequence below that."""
    limit = min(check_number("limit", limit, low=1), MAX_PAGE)
    before = None if before is None else check_number("before", before)
    found: list[Entry] = []
    size = limit if wanted == Filter() else MAX_PAGE
    while len(found) < limit and (page := catalog.history(line, before=before, limit=size)):
        found += filter(wanted.admits, map(_entry, page))
        before = page[-1].sequence
    return found[:limit]


def _entry(event: Event) -> Entry:
    data = event.data
    made = data.get("checkpoint") if event.kind == "request_fulfilled" else None
    return Entry(
        event.sequence,
        event.at,
        event.kind,
        event.actor,
        event.branch_id,
        event.checkpoint_id or made,
        data.get("type"),
        data.get("iteration"),
        data.get("message") or "",
        event.correlation_id,
        data,
    )
