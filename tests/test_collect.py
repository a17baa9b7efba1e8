"""Garbage collection, attacked: what remains is whole, whoever saves, deletes or dies meanwhile (B6, P6)."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import lastgood
from lastgood.engine import blobs
from lastgood.engine.collect import AT_ONCE
from lastgood.engine.process import this_process


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


# --- packs on their way ----------------------------------------------------------------------------------------------


def fill(folder: Path, seed: object, count: int = 90, size: int = 4000) -> dict[str, bytes]:
    """Files that become a pack, by content that does not compress."""
    dice = random.Random(str(seed))
    folder.mkdir(exist_ok=True)
    contents = {f"{number}": dice.randbytes(size) for number in range(count)}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return contents


def before_commit(store: lastgood.Store, monkeypatch: pytest.MonkeyPatch, *actions: Callable[[], object]) -> None:
    """Each action happens once, before one of the next commits: after all that it relies on was looked up."""
    commit, waiting = store.catalog.commit, list(actions)

    def act_and_commit(*about: Any) -> Any:
        if waiting:
            waiting.pop(0)()
        return commit(*about)

    monkeypatch.setattr(store.catalog, "commit", act_and_commit)


def is_whole(store: lastgood.Store, checkpoint: lastgood.Checkpoint, contents: dict[str, bytes]) -> bool:
    return {name: store.read_file(checkpoint.id, name) for name in contents} == contents


def require_clean(store: lastgood.Store) -> None:
    report = store.check(read_data=True)
    assert report.findings == ()
    assert report.remarks == ()


def test_a_pack_of_someone_who_only_seems_to_be_gone_is_not_lost(
    store: lastgood.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B6: a process of another container with this host's name cannot be seen from here, and commits all the same."""
    contents = fill(tmp_path / "work", "a")
    task = store.task("t", workspace=tmp_path / "work")
    gone = subprocess.Popen(["true"])
    gone.wait()
    elsewhere = msgspec.structs.replace(this_process(), pid=gone.pid, started=1)
    monkeypatch.setattr(blobs, "this_process", lambda: elsewhere)
    swept = []
    before_commit(store, monkeypatch, lambda: swept.append(store.collect(grace=0)))
    saved = task.save({"n": 1})
    assert [found.strays for found in swept] == [1]
    assert is_whole(store, saved, contents)
    require_clean(store)
