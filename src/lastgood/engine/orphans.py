"""Leases and restores of files that are left behind by processes that ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from lastgood.errors import LeaseError
from lastgood.local.process import is_alive, this_process
from lastgood.model.task import Journal

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog

T = TypeVar("T")


def retry_without_dead_lease(catalog: Catalog, work: Callable[[], T]) -> T:
    """Run `work`; if a lease blocks it and the holder's process is dead, release the lease and run it once more."""
    try:
        return work()
    except LeaseError as error:
        release_dead_lease(catalog, error)
    return work()


def release_dead_lease(catalog: Catalog, error: LeaseError) -> None:
    """Release the lease that `error` is about; raise `error` unless the holder's process is known to be dead."""
    lease = error.details["lease"]
    if lease is None or is_alive(lease.process) is not False:
        raise error
    catalog.release_lease(lease.token)


restores_under_way: set[str] = set()
"""Journals that a thread of this process is working on."""


def interrupted_restores(catalog: Catalog, task_id: str, owner: str) -> list[Journal]:
    """Return the restores of a task's files that were begun on this host and that no process works on any more."""
    found = catalog.journals(this_process().host)
    mine = [journal for journal in found if (journal.task_id, journal.owner) == (task_id, owner)]
    return [journal for journal in mine if not _is_under_way(journal)]


def _is_under_way(journal: Journal) -> bool:
    if journal.process == this_process():
        return journal.id in restores_under_way
    return is_alive(journal.process) is not False
