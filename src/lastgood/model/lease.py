"""A lease: the right to advance a branch, for a while."""

from __future__ import annotations

import msgspec

from lastgood.model.step import Process


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease on a branch. `token` is larger than that of any lease before it in the store, so the holder of an
    earlier one is refused (a fencing token). `is_live`: it had not run out when it was read, by the catalog's clock.
    """

    token: int
    branch_id: str
    process: Process
    executor: str
    acquired_at: int
    expires_at: int
    is_live: bool
