"""Nobody else may look into a store, or write there, whatever the umask."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import lastgood


@pytest.mark.parametrize("name", ["store", "store.sqlite"])
def test_all_that_a_store_makes_is_its_owners_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "large").write_bytes(os.urandom(1 << 20))
    own = tmp_path / "own"
    own.mkdir()
    before = os.umask(0)
    try:
        with lastgood.open(own / name) as store:
            task = store.task("t", workspace=tmp_path / "work")
            task.restore(task.save({}).id)
            store.collect(grace=0)
            made = {path.relative_to(own): path.stat().st_mode & 0o077 for path in own.rglob("*")}
    finally:
        os.umask(before)
    assert made
    assert {path for path, others in made.items() if others} == set()
