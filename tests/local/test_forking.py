"""Locks across fork()."""

from __future__ import annotations

import os

import pytest

from lastgood.local.process import renew_after_fork


class Counted:
    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.renewed = 0
        renew_after_fork(self)

    def renew_locks(self) -> None:
        self.renewed += 1
        if self.fails:
            raise OSError("a descriptor was closed already")


@pytest.mark.filterwarnings("ignore")
def test_one_that_fails_keeps_nobody_from_having_new_locks() -> None:
    holders = [Counted(fails=number % 2 == 0) for number in range(6)]
    child = os.fork()
    if child == 0:
        os._exit(0 if all(holder.renewed == 1 for holder in holders) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all(holder.renewed == 0 for holder in holders)
