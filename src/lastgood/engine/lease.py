"""Leases that are left behind by processes that ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from lastgood.errors import LeaseError
from lastgood.local.process import is_alive

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog

T = TypeVar("T")


def retry_without_dead_lease(catalog: Catalog, work: Callable[[], T]) -> T:
    """Run `work`; if a lease blocks it and the holder's process is dead, release the lease and run it once more."""
    try:
        return work()
    except LeaseError as error:
        lease = error.details["lease"]
        if lease is None or is_alive(lease.process) is not False:
            raise
        catalog.release_lease(lease.token)
    return work()
