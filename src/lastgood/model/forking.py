"""Locks across fork(): a thread that held one when its process forked is not there to give it back in the child."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class HasLocks(Protocol):
    def renew_locks(self) -> None: ...


_holders: WeakSet[HasLocks] = WeakSet()


def renew_after_fork(holder: HasLocks) -> None:
    """Have `holder.renew_locks()` called in every child that is forked while it lives."""
    _holders.add(holder)


def _renew_all() -> None:
    for holder in list(_holders):
        holder.renew_locks()


os.register_at_fork(after_in_child=_renew_all)
