"""A limit for the bytes that a store takes: the oldest checkpoints that are not protected go, as few as it takes."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

import msgspec

from lastgood.catalog.contract import Catalog
from lastgood.catalog.values import MAX_PAGE, HistoryRange
from lastgood.engine.engine import Engine, acting
from lastgood.engine.load import attest, find_line
from lastgood.errors import ConflictError
from lastgood.local.process import this_process
from lastgood.model.identity import check_number, moment
from lastgood.upkeep.collect import GRACE_SECONDS, Progress, collect
from lastgood.upkeep.reach import CheckpointNode, read_graph

ROUNDS = 6
TRIES = 20
WASTE = 0.02
TOMBSTONE = 512
"""Bytes that a purged checkpoint leaves in the database, about: its tombstone and its place in the log."""


class Evicted(NamedTuple):
    """A checkpoint that goes, and the bytes that become free with it, once those before it are gone."""

    id: str
    task_id: str
    owner: str
    sequence: int
    created_at: datetime | None
    frees: int


class Limited(msgspec.Struct, frozen=True, kw_only=True):
    """What it took; of a dry run, what it would take. Bytes on disk `before` and `after`, which a dry run reckons.

    `checkpoints` in the order in which they went; `kept` is how many stay. Not `met`: `reason` says why.
    """

    max_bytes: int
    before: int
    after: int
    met: bool
    reason: str = ""
    checkpoints: tuple[Evicted, ...] = ()
    kept: int = 0
    dry_run: bool = False


def limit(
    engine: Engine,
    user: str,
    max_bytes: int,
    *,
    dry_run: bool = False,
    wait: bool = True,
    progress: Progress | None = None,
) -> Limited:
    """Bring a store below a limit as `Store.limit` does. Without `wait` nothing is done while another collects."""
    check_number("max_bytes", max_bytes)
    before = size = engine.size()
    if dry_run:
        needed = _needed_bytes(engine, size)
        plan = _plan(engine, needed - max_bytes)
        size = max(0, needed - plan.garbage - sum(each.frees for each in plan.evicted))
        return _summarize(max_bytes, before, size, plan.evicted, plan.kept, dry_run=True)
    gone: list[Evicted] = []
    kept = 0
    for _ in range(ROUNDS):  # what becomes free on disk is known only afterwards
        found = collect(engine, user, grace=0, keep_deleted=GRACE_SECONDS, waste=WASTE, wait=wait, progress=progress)
        size = engine.size()
        needed = _needed_bytes(engine, size)
        if found.was_busy or needed <= max_bytes:
            break
        plan = _plan(engine, needed - max_bytes)
        evicted = _purge(engine.catalog, user, plan.evicted)
        gone, kept = gone + evicted, plan.kept
        if not evicted:
            break
    result = _summarize(max_bytes, before, size, gone, kept, dry_run=False)
    if not result.met:
        message = f"the store takes {result.after:,} bytes, more than the {max_bytes:,} allowed: {result.reason}"
        engine.alert(message, code="quota_exceeded")
    return result


def _needed_bytes(engine: Engine, size: int) -> int:
    """Return the bytes that the store needs: free pages of the database are no reason to purge a checkpoint."""
    return size - engine.catalog.disk_use().size + engine.catalog.disk_use().used


class _Plan(NamedTuple):
    """A plan: bytes that are garbage already, the checkpoints that go, and how many stay."""

    garbage: int
    evicted: list[Evicted]
    kept: int


def _plan(engine: Engine, too_much: int) -> _Plan:
    """Choose checkpoints so that so many bytes become free: deleted ones first, then the oldest."""
    found = read_graph(engine.catalog, engine.blobs)
    spared = _protected(engine.catalog)
    protected = [one for one in found.checkpoints if one.stored.id in spared or one.created_at is None]
    others = [one for one in found.checkpoints if not (one.stored.id in spared or one.created_at is None)]
    others.sort(key=lambda one: (not one.stored.deleted, one.created_at or 0))
    # What is free when one is gone and all that come before it in `others` are, too.
    frees = found.graph.added([one.node for one in (*protected, *reversed(others))])
    garbage = sum(found.graph.stored) - sum(frees.values())
    left, evicted = too_much - garbage, []
    for one in others:
        if left <= 0:
            break
        net = frees[one.node] - TOMBSTONE
        if net > 0:  # history that frees nothing stays
            evicted.append(_describe(one, frees[one.node]))
            left -= net
    return _Plan(garbage, evicted, len(found.checkpoints) - len(evicted))


def _protected(catalog: Catalog) -> set[str]:
    """Return the ids of what never goes: heads of active branches, tagged ones, the last verified, and what restores
    under way go back to."""
    spared = {each for journal in catalog.journals(this_process().host) for each in (journal.before, journal.chosen)}
    page = catalog.tasks(None, limit=MAX_PAGE)
    while page:
        for task in page:
            active = catalog.branch(task.owner, task.active_branch_id)
            if active is not None and active.head is not None:
                spared.add(active.head.id)
            spared.update(head.id for head in catalog.tags(task).values())
            for line in (HistoryRange(task), HistoryRange(task, active)):
                spared.update(one.id for one in catalog.checkpoints(line, limit=1, verified=True))
        page = catalog.tasks(None, page[-1].number, MAX_PAGE)
    return spared


def _purge(catalog: Catalog, user: str, evicted: list[Evicted]) -> list[Evicted]:
    """Purge checkpoints; return those that were: one that was tagged meanwhile, or became a head, stays."""
    gone: set[str] = set()
    for start in range(0, len(evicted), 100):
        some = [(each.owner, each.id) for each in evicted[start : start + 100]]
        gone.update(catalog.purge(some, acting(user), spare_tagged=True))
    return [each for each in evicted if each.id in gone]


def _describe(one: CheckpointNode, frees: int) -> Evicted:
    stored = one.stored
    created_at = None if one.created_at is None else moment(one.created_at)
    return Evicted(stored.id, stored.task_id, stored.owner, stored.placement.sequence, created_at, frees)


def _summarize(max_bytes: int, before: int, after: int, evicted: list[Evicted], kept: int, *, dry_run: bool) -> Limited:
    met = after <= max_bytes
    reason = (
        f"{kept} checkpoint(s) stay: heads of active branches, tagged ones, the last verified, and those that would "
        "free nothing"
        if kept
        else "the disk did not give back all that is free; the next run tries again"
    )
    return Limited(
        max_bytes=max_bytes,
        before=before,
        after=after,
        met=met,
        reason="" if met else reason,
        checkpoints=tuple(evicted),
        kept=kept,
        dry_run=dry_run,
    )


def delete_old(engine: Engine, user: str, owner: str, task_id: str, keep_count: int) -> int:
    """Delete all checkpoints of a task but the newest `keep_count`, and those that must stay; return how many.

    What was selected is deleted only if nothing has happened to the task meanwhile: else it is selected again.
    """
    for _ in range(TRIES - 1):
        with suppress(ConflictError):
            return _try_to_delete_old(engine, user, owner, task_id, keep_count)
    return _try_to_delete_old(engine, user, owner, task_id, keep_count)


def _try_to_delete_old(engine: Engine, user: str, owner: str, task_id: str, keep_count: int) -> int:
    line = find_line(engine.catalog, owner, task_id)
    old = select_old(engine.catalog, line, keep_count)
    attest(engine, user, owner, old, "deleted", {"by": "retention"}, last_event=line.task.last_event)
    return len(old)


def select_old(catalog: Catalog, line: HistoryRange, keep_count: int) -> list[str]:
    """List all but the newest `keep_count`, without the active head, tagged ones and the last verified (A14)."""
    check_number("keep_count", keep_count)
    active = catalog.branch(line.task.owner, line.task.active_branch_id)
    spared = {active.head.id} if active and active.head else set()
    for branch in (active, line.branch):
        if branch is not None:
            verified = catalog.checkpoints(HistoryRange(line.task, branch), limit=1, verified=True)
            spared.update(one.id for one in verified)
    old: list[str] = []
    seen, before = 0, None
    while page := catalog.checkpoints(line, before=before, limit=MAX_PAGE):
        for row in page:
            seen += 1
            if seen > keep_count and not row.tags and row.id not in spared:
                old.append(row.id)
        before = page[-1].placement.sequence
    return old
