"""Holding a lease: taking it, taking over from who is gone, keeping it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.errors import CheckpointError, LeaseError
from lastgood.local.process import is_alive, this_process
from lastgood.model.lease import Lease
from lastgood.work.clock import Clock

if TYPE_CHECKING:
    from lastgood.store import Store

SECONDS = 30.0
RENEWALS = 3
"""So often within the time of a lease: two may fail before it runs out."""


def name_executor() -> str:
    process = this_process()
    return f"{process.host}:{process.pid}"


class Hold:
    """A lease as its holder has it. `lost` says, once and for all, that it is someone else's now."""

    def __init__(self, store: Store, owner: str, executor: str, seconds: float, clock: Clock | None = None) -> None:
        self._store = store
        self._owner = owner
        self._clock = clock or Clock()
        self.executor = executor
        self.seconds = seconds
        self.token = 0
        self.lost: LeaseError | None = None
        self._is_silent = False
        self._until = 0.0

    def take(self, branch_id: str, *, over: int | None = None) -> Lease:
        """LeaseError while someone works there who is not known to be gone; `over`: nor has this token."""
        catalog, actor, begun = self._store.catalog, self._store.actor(), self._clock.now()
        before = catalog.lease(self._owner, branch_id)
        about = (self._owner, branch_id, this_process(), self.executor, self.seconds, actor)
        try:
            lease = catalog.acquire_lease(*about, over=over)
        except LeaseError as error:
            holder: Lease | None = error.details["lease"]
            if holder is None or is_alive(holder.process) is not False:
                raise
            lease = catalog.acquire_lease(*about, over=holder.token)
        if before is not None:
            self._store.meter.count("lease_takeovers")
        self.token = lease.token
        self._until = begun + self.seconds
        return lease

    def is_good(self) -> bool:
        """Whether nobody can have taken over. When its time has passed, the backend is asked."""
        if self._clock.now() >= self._until:
            self.renew()
        return self.lost is None and self._clock.now() < self._until

    def renew(self) -> None:
        """Never raises: a backend that is away is asked again next time."""
        begun = self._clock.now()
        try:
            self._store.catalog.renew_lease(self.token, self.seconds)
            self._until = begun + self.seconds
            self._is_silent = False
        except LeaseError as error:
            self.lost = error
        except CheckpointError as error:
            if self._is_silent:  # said already
                return
            self._is_silent = True
            self._store.alert(f"the lease of {self.executor} was not renewed: {error}", error=error, code="session")

    def release(self) -> None:
        """Never raises: what is not released runs out."""
        if self.token and self.lost is None:
            try:
                self._store.catalog.release_lease(self.token)
            except CheckpointError as error:
                self._store.alert(
                    f"the lease of {self.executor} was not released: {error}", error=error, code="session"
                )
