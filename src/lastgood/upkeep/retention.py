"""Which checkpoints may go, and which never do."""

from __future__ import annotations

from lastgood.catalog.contract import Catalog
from lastgood.catalog.values import MAX_PAGE, HistoryRange
from lastgood.model.identity import check_number


def select_old(catalog: Catalog, line: HistoryRange, keep_count: int) -> list[str]:
    """All but the newest `keep_count`, without the active head, tagged ones and the last verified (A14)."""
    check_number("keep_count", keep_count)
    active = catalog.branch(line.task.owner, line.task.active_branch_id)
    spared = {active.head.id} if active and active.head else set()
    for branch in (active, line.branch):
        verified = catalog.last_verified(HistoryRange(line.task, branch)) if branch else None
        if verified is not None:
            spared.add(verified.id)
    old: list[str] = []
    seen, before = 0, None
    while page := catalog.checkpoints(line, before=before, limit=MAX_PAGE):
        for row in page:
            seen += 1
            if seen > keep_count and not row.tags and row.id not in spared:
                old.append(row.id)
        before = page[-1].placement.sequence
    return old
