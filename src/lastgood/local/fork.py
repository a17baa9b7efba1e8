"""Locks across fork(): a thread that held one when its process forked is not there to give it back in the child."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet


class HasLocks(Protocol):
    def renew_locks(self) -> None: ...


class Holdable(Protocol):
    def hold(self) -> None: ...

    def let_go(self) -> None: ...


_renewed: WeakSet[HasLocks] = WeakSet()
_held: WeakSet[Holdable] = WeakSet()


def renew_after_fork(holder: HasLocks) -> None:
    """Have `holder.renew_locks()` called in every child that is forked while it lives."""
    _renewed.add(holder)


def hold_for_fork(holder: Holdable) -> None:
    """Have `holder.hold()` called before each fork(), and `holder.let_go()` afterwards in the parent."""
    _held.add(holder)


def _hold_all() -> None:
    _each([holder.hold for holder in list(_held)])


def _let_go_all() -> None:
    _each([holder.let_go for holder in list(_held)])


def _renew_all() -> None:
    _each([holder.renew_locks for holder in list(_renewed)])


def _each(calls: list[Callable[[], None]]) -> None:
    """Make all calls, whatever one of them raises: a lock that is not renewed would be waited for without end."""
    failure: Exception | None = None
    for call in calls:
        try:
            call()
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


os.register_at_fork(before=_hold_all, after_in_parent=_let_go_all, after_in_child=_renew_all)
