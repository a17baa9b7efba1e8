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
        release_dead_lease(catalog, error)
    return work()


def release_dead_lease(catalog: Catalog, error: LeaseError) -> None:
    """Release the lease that `error` is about; raise `error` unless the holder's process is known to be dead."""
    lease = error.details["lease"]
    if lease is None or is_alive(lease.process) is not False:
        raise error
    catalog.release_lease(lease.token)
