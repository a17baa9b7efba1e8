"""A lease: the right to advance a branch, or to do what one process of a store does at a time, for a while."""

from __future__ import annotations

import msgspec

from lastgood.model.step import Process


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right of a process to work on a branch, or a right of the store's own called `name`.

    `token` is larger than that of any lease before it in the store: the holder of an earlier one can be refused.
    `is_live`: it had not run out when it was read, by the catalog's clock.
    """

    token: int
    branch_id: str
    process: Process
    executor: str
    acquired_at: int
    expires_at: int
    is_live: bool
    name: str = ""
