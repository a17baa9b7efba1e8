"""The lease of a branch: acquiring it, taking it over from a process that has ended, renewing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.engine.engine import acting
from lastgood.errors import CheckpointError, LeaseError
from lastgood.local.process import is_alive, this_process
from lastgood.model.task import Lease
from lastgood.work.clock import Clock

if TYPE_CHECKING:
    from lastgood.engine.engine import Engine
    from lastgood.engine.handle import Handle

LEASE_SECONDS = 30.0
RENEWALS = 3
"""So often within the time of a lease: two may fail before it expires."""


def name_executor() -> str:
    """Return the name of this process as the holder of a lease."""
    process = this_process()
    return f"{process.host}:{process.pid}"


class HeldLease:
    """A lease as its holder has it. `lost` is set, for good, when another process has taken it over."""

    def __init__(
        self, engine: Engine, user: str, owner: str, executor: str, seconds: float, clock: Clock | None = None
    ) -> None:
        self._engine = engine
        self._user = user
        self._owner = owner
        self._clock = clock or Clock()
        self.executor = executor
        self.seconds = seconds
        self.token = 0
        self.lost: LeaseError | None = None
        self._has_alerted = False
        self._expires = 0.0

    def acquire(self, branch_id: str, *, over: int | None = None) -> Lease:
        """Take the lease, also from a holder whose process is dead, or whose token is `over`.

        LeaseError while another process holds it that may be alive.
        """
        catalog, actor, begun = self._engine.catalog, acting(self._user), self._clock.now()
        about = (self._owner, branch_id, this_process(), self.executor, self.seconds, actor)
        try:
            lease = catalog.acquire_lease(*about, over=over)
        except LeaseError as error:
            holder: Lease | None = error.details["lease"]
            if holder is None or is_alive(holder.process) is not False:
                raise
            lease = catalog.acquire_lease(*about, over=holder.token)
        self.token = lease.token
        self._expires = begun + self.seconds
        return lease

    def hold(self, handle: Handle, branch_id: str | None = None) -> None:
        """Acquire it for all saves through `handle`, on its branch unless another is given; saves of others wait."""
        with handle.lock:
            handle.lease = self.acquire(branch_id or handle.branch_id or "").token

    def drop(self, handle: Handle, *, release: bool = True) -> None:
        """Let saves through `handle` use it no more, unless another session has begun there; and release it."""
        with handle.lock:
            if handle.lease == self.token:
                handle.lease = None
            if release:
                self.release()

    def is_valid(self) -> bool:
        """Return whether no other process can have taken it over. The catalog is asked when its time has passed."""
        if self._clock.now() >= self._expires:
            self.renew()
        return self.lost is None and self._clock.now() < self._expires

    def renew(self) -> None:
        """Extend it. Never raises: a catalog that is unavailable is asked again next time."""
        begun = self._clock.now()
        try:
            self._engine.catalog.renew_lease(self.token, self.seconds)
            self._expires = begun + self.seconds
            self._has_alerted = False
        except LeaseError as error:
            self.lost = error
        except CheckpointError as error:
            if not self._has_alerted:
                self._has_alerted = True
                self._alert("renewed", error)

    def release(self) -> None:
        """Give it back. Never raises: a lease that is not released expires."""
        if self.token and self.lost is None:
            try:
                self._engine.catalog.release_lease(self.token)
            except CheckpointError as error:
                self._alert("released", error)

    def _alert(self, what: str, error: CheckpointError) -> None:
        self._engine.alert(f"the lease of {self.executor} was not {what}: {error}", error=error, code="session")
