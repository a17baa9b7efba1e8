"""A store that goes away and comes back at any moment, against a simple model: what was acknowledged is there, once,
where it was said to be (C10, G10)."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.support.outages import ask_nobody, spool_of

import lastgood
from lastgood import ConflictError, UnavailableError
from lastgood.spool.entries import Waiting
from lastgood.types import Alert

FULL = bool(os.environ.get("LASTGOOD_FULL"))
sides = st.sampled_from([0, 1])
places = st.integers(0, 5)


class Kept(NamedTuple):
    """What was acknowledged."""

    parent: str | None
    checksum: str
    state: Any


class SpoolMachine(RuleBasedStateMachine):
    """Two stores that share a spool, and an outsider who knows nothing of it. Nobody asks in the background."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lastgood-machine-"))
        self.path = self.folder / "store"
        self.alerts: list[Alert] = []
        self.opened: list[lastgood.Store] = []
        self.kept: dict[str, Kept] = {}
        self.handles: list[lastgood.Task] = []
        self.is_away = False
        self.number = 0

    @initialize()
    def begin(self) -> None:
        self.stores = [self._open(), self._open()]
        self.handles = [self.stores[0].task("t")]
        self._note(self.handles[0].save(self._state()))

    # --- rules -------------------------------------------------------------------------------------------------------

    @rule()
    @precondition(lambda self: not self.is_away)
    def go_away(self) -> None:
        self.path.rename(self.folder / "away")
        self.is_away = True

    @rule()
    @precondition(lambda self: self.is_away)
    def come_back(self) -> None:
        (self.folder / "away").rename(self.path)
        self.is_away = False

    @rule(place=places, large=st.booleans())
    def save(self, place: int, large: bool) -> None:
        self._advance(place, lambda handle: handle.save(self._state(large)))

    @rule(place=places, touched=st.booleans())
    def make_a_step(self, place: int, touched: bool) -> None:
        def work(handle: lastgood.Task) -> lastgood.Checkpoint:
            with handle.step("s") as step:
                if touched:
                    self.number += 1  # else it may be the state as it was, which goes on top of anything
                    step.state["touched"] = self.number
            assert step.checkpoint is not None
            return step.checkpoint

        self._advance(place, work, appends=not touched)

    @rule(place=places)
    def append(self, place: int) -> None:
        self._advance(place, lambda handle: handle.append(self._state()), appends=True)

    @rule(side=sides)
    def open_a_handle(self, side: int) -> None:
        try:
            handle = self.stores[side].task("t")
        except UnavailableError:
            assert self.is_away
            assert not any(each.follows for each in self._pending(side))
            return
        assert handle.head is not None
        assert handle.head.id in self.kept
        assert handle.state == self.kept[handle.head.id].state
        self.handles = [*self.handles[-5:], handle]

    @rule(place=places)
    def refresh(self, place: int) -> None:
        handle = self._handle(place)
        try:
            head = handle.refresh()
        except UnavailableError:
            assert self.is_away
            return
        assert head is not None
        assert head.id in self.kept

    @rule(side=sides)
    def replay(self, side: int) -> None:
        try:
            self.stores[side].replay()
        except UnavailableError:
            assert self.is_away
            return
        assert not self.is_away
        assert self.stores[side].spool_figures().depth == 0

    @rule(side=sides, crashes=st.booleans())
    def reopen(self, side: int, crashes: bool) -> None:
        """Of one that crashed nothing is closed."""
        if self.is_away and not self.stores[side].spool_figures().depth:
            return  # it would be taken for a store that is not there yet
        if not crashes:
            self.stores[side].close()
        mine = [handle for handle in self.handles if handle._handle.engine is self.stores[side]._engine]
        self.stores[side] = self._open()
        self.handles = [handle for handle in self.handles if handle not in mine] or [self._open_handle_again(side)]

    @rule()
    @precondition(lambda self: not self.is_away)
    def an_outsider_saves(self) -> None:
        with lastgood.open(self.path, user="tester", on_failure="raise", collect="never") as outsider:
            self._note(outsider.task("t").append(self._state()))

    @rule(place=places)
    def look_at_one(self, place: int) -> None:
        """Anything that was acknowledged can be read, unless it is in a store that is away."""
        id_, kept = list(self.kept.items())[-1 - place % len(self.kept)]
        try:
            found = self.stores[0].find_checkpoint(id_)
            assert (found.checksum, found.state, found.parent_id) == (kept.checksum, kept.state, kept.parent)
        except UnavailableError:
            assert self.is_away

    def teardown(self) -> None:
        try:
            if self.is_away:
                self.come_back()
            for store in self.stores:
                assert store.replay().aside == ()
            self._judge(self.stores[0])
        finally:
            for store in self.opened:
                store.close()
            shutil.rmtree(self.folder)

    # --- the model ---------------------------------------------------------------------------------------------------

    def _judge(self, store: lastgood.Store) -> None:
        there = {each.id: each for each in store.list_checkpoints("t", limit=1000)}
        assert set(there) == set(self.kept)
        for id_, kept in self.kept.items():
            found = there[id_]
            assert found.status == "stored"
            assert (found.checksum, found.parent_id, found.state) == (kept.checksum, kept.parent, kept.state)
        diverged = [alert for alert in self.alerts if "on a branch of its own" in alert.message]
        branches = store.branches("t")
        assert len(branches) == 1 + len(diverged)  # no fork that was not told
        for branch in branches:
            line = store.list_checkpoints(branch.id, limit=1000)
            for newer, older in itertools.pairwise(line):
                assert newer.parent_id == older.id
        assert store.check(read_data=True).ok

    def _advance(self, place: int, work: Any, *, appends: bool = False) -> None:
        handle = self._handle(place)
        before = handle.head
        assert before is not None
        try:
            saved = work(handle)
        except ConflictError:
            assert not appends
            assert any(kept.parent == before.id for kept in self.kept.values())  # somebody has gone on from there
            return
        except UnavailableError:
            assert self.is_away  # it was to look at what is in the store alone
            return
        assert saved.status in ("stored", "spooled")
        assert saved.status == "spooled" or not self.is_away
        assert appends or saved.parent_id == before.id
        assert handle.head is not None
        assert handle.head.id == saved.id
        self._note(saved)

    def _note(self, saved: lastgood.Checkpoint) -> None:
        assert saved.id not in self.kept
        try:
            state = saved.state
        except UnavailableError:  # it is its parent's, which is in the store alone
            assert self.is_away
            state = self.kept[saved.parent_id or ""].state
        self.kept[saved.id] = Kept(saved.parent_id, saved.checksum, state)

    def _open_handle_again(self, side: int) -> lastgood.Task:
        """Open the task in a store that was just opened; or, while that is away, the branch that is spooled: where the
        task's active branch stands is known only if something was spooled on it."""
        store, waiting = self.stores[side], self._pending(side)
        if not self.is_away or any(each.follows for each in waiting):
            return store.task("t")
        with pytest.raises(UnavailableError):
            store.task("t")
        return store.task(waiting[-1].branch_id)

    def _pending(self, side: int) -> list[Waiting]:
        return spool_of(self.stores[side]).entries.pending("tester", "t")

    def _handle(self, place: int) -> lastgood.Task:
        return self.handles[place % len(self.handles)]

    def _state(self, large: bool = False) -> dict[str, Any]:
        self.number += 1
        return {"n": self.number, "log": [f"line {n} " * 40 for n in range(self.number)] if large else []}

    def _open(self) -> lastgood.Store:
        spool = self.folder / "spool"
        store = lastgood.open(self.path, user="tester", spool=spool, collect="never", on_alert=self.alerts.append)
        ask_nobody(store)
        self.opened.append(store)
        return store


TestSpoolMachine = SpoolMachine.TestCase
TestSpoolMachine.settings = settings(max_examples=500 if FULL else 40, stateful_step_count=30)


def test_a_task_is_not_opened_on_a_side_branch_because_only_that_is_spooled() -> None:
    """While the store is away: the branch is opened by its own id."""
    machine = SpoolMachine()
    try:
        machine.begin()
        machine.an_outsider_saves()
        machine.go_away()
        machine.append(0)
        machine.come_back()
        machine.replay(0)  # it lands on a branch of its own
        machine.go_away()
        machine.save(0, large=False)
        machine.reopen(0, crashes=False)
        (handle,) = machine.handles
        assert handle.head is not None
        assert handle.head.status == "spooled"
        assert handle.id == handle.branch_id
        machine.save(0, large=False)
    finally:
        machine.teardown()
