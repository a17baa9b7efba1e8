"""Collecting among writers that do whatever they may: what remains is what was saved, byte by byte (B6, P6)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.collect_model import Operation, World

from lastgood.engine import gather
from lastgood.upkeep import collect, repack

WRITING = ["save", "save", "save", "save", "restore", "fork", "undo", "switch"]
REMOVING = ["delete", "undelete", "purge", "purge", "delete_branch", "delete_task", "tag"]
NUMBERS = st.integers(0, 999)
EXAMPLES = settings().max_examples


def operations(names: list[str]) -> st.SearchStrategy[Operation]:
    return st.tuples(st.sampled_from(names), NUMBERS, NUMBERS)


@contextmanager
def in_small_steps() -> Iterator[None]:
    """Few blobs make a pack, and a run changes few rows at a time: there is much to come in between."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "INLINE_BLOBS", 3)
        patch.setattr(gather, "PACK_BYTES", 20_000)
        patch.setattr(repack, "PACK_BYTES", 20_000)
        patch.setattr(repack, "AT_ONCE", 2)
        patch.setattr(collect, "AT_ONCE", 3)
        yield


@contextmanager
def made_world() -> Iterator[World]:
    folder = Path(tempfile.mkdtemp())
    world = World(folder)
    try:
        with in_small_steps():
            yield world
    finally:
        world.close()
        shutil.rmtree(folder)


@settings(max_examples=max(100, EXAMPLES))
@given(st.lists(operations(WRITING), min_size=2, max_size=14), st.lists(operations(WRITING + REMOVING), max_size=14))
def test_collecting_keeps_every_shared_blob(history: list[Operation], later: list[Operation]) -> None:
    """P6: after any history what remains is byte-identical, and nothing is left that nobody needs."""
    with made_world() as world:
        for operation in history + later:
            world.do(operation)
        told = world.stores["ada"].collect(grace=0, dry_run=True)
        before = world.held()
        world.require_whole()
        done = world.collect(0, 1)
        world.require_whole()
        world.require_tidy()
        assert (told.purged, told.removed) == (done.purged, done.removed)
        assert [held for held in world.held() if not held.deleted] == [held for held in before if not held.deleted]
        again = world.collect(0, 1)
        assert (again.purged, again.removed, again.packs_removed, again.strays) == (0, 0, 0, 0)


class Collecting(RuleBasedStateMachine):
    """Writers, and someone who collects: before them, after them, and in between at each of its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.made = made_world()
        self.world = self.made.__enter__()
        self.is_tidy = False

    def teardown(self) -> None:
        try:
            self.world.require_whole()
        finally:
            self.made.__exit__(None, None, None)

    @rule(operation=operations(WRITING))
    def write(self, operation: Operation) -> None:
        self.world.do(operation)
        self.is_tidy = False

    @rule(operation=operations(REMOVING))
    def remove(self, operation: Operation) -> None:
        self.world.do(operation)
        self.is_tidy = False

    @rule(one=NUMBERS)
    def reopen(self, one: int) -> None:
        self.world.reopen(one, 0)

    @rule(one=NUMBERS, other=NUMBERS)
    def collect(self, one: int, other: int) -> None:
        self.world.collect(one, other)
        self.is_tidy = other % 4 != 0

    @rule(
        one=NUMBERS,
        other=NUMBERS,
        meanwhile=st.lists(st.tuples(st.integers(0, 4), operations(WRITING + REMOVING)), min_size=1, max_size=8),
    )
    def collect_among_others(self, one: int, other: int, meanwhile: list[tuple[int, Operation]]) -> None:
        """Each operation comes so many steps of the collection after the one before."""
        waiting = list(meanwhile)
        steps = [0]

        def act(phase: str, done: int, of: int) -> None:
            steps[0] += 1
            while waiting and steps[0] > waiting[0][0]:
                steps[0] = 0
                self.world.do(waiting.pop(0)[1])

        self.world.collect(one, other, act)
        self.world.require_whole()
        self.is_tidy = False

    @precondition(lambda self: self.is_tidy)
    @invariant()
    def nothing_is_left_behind(self) -> None:
        self.world.require_tidy()


TestCollecting: Any = Collecting.TestCase
TestCollecting.settings = settings(max_examples=EXAMPLES // 5, stateful_step_count=14)
