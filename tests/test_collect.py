"""Garbage collection, attacked: what remains is whole, whoever saves, deletes or dies meanwhile (B6, P6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lastgood
from lastgood.engine.collect import AT_ONCE


@pytest.fixture
def store(tmp_path: Path) -> Iterator[lastgood.Store]:
    with lastgood.open(tmp_path / "store", user="ada", collect="never") as opened:
        yield opened


# --- deleted checkpoints ---------------------------------------------------------------------------------------------


def test_one_that_is_undeleted_while_others_are_purged_stays(store: lastgood.Store) -> None:
    """B6: what was acknowledged as undeleted is not purged by a run that had seen it deleted."""
    task = store.task("t")
    made = [task.save({"n": n}) for n in range(AT_ONCE + 2)]
    for checkpoint in made[:-1]:
        store.delete_checkpoint(checkpoint.id)

    def undelete(phase: str, done: int, of: int) -> None:
        if phase == "purge" and done == AT_ONCE:
            store.undelete_checkpoint(made[-2].id)

    assert store.collect(grace=0, progress=undelete).purged == AT_ONCE
    assert store.get_checkpoint(made[-2].id).state == {"n": AT_ONCE}
    assert [each.id for each in store.list_checkpoints("t")] == [made[-1].id, made[-2].id]
