"""Two who have the same new content put it into packs of their own: none is taken away with the other's (B6)."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood.catalog.values import Actor, Commit, Committed
from lastgood.engine import gather
from lastgood.errors import ContentGoneError
from lastgood.objects.local import LocalObjects


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[lastgood.Store]:
    monkeypatch.setattr(gather, "INLINE_BLOBS", 2)
    with lastgood.open(tmp_path / "store", user="ada", collect="never") as opened:
        yield opened


def fill(work: Path) -> None:
    for number in range(8):
        (work / f"{number}").write_bytes(f"content {number}".encode() * 50)


def require_whole(store: lastgood.Store, checkpoint: lastgood.Checkpoint) -> None:
    store._engine.blobs._small.clear()
    assert store.check(read_data=True).findings == ()
    assert store.read_file(checkpoint.id, "7") == b"content 7" * 50


def test_looking_at_files_takes_nothing_from_who_saves_the_same(store: lastgood.Store, work: Path) -> None:
    looking, saving = store.task("looking", workspace=work), store.task("saving", workspace=work)
    looking.save({})
    fill(work)
    difference = looking.diff()
    saved = saving.save({})
    assert len(difference.files.changes) == 8
    del difference
    gc.collect()
    require_whole(store, saved)


def test_what_was_in_flight_and_is_saved_again_is_not_swept_with_what_was_left_of_it(
    store: lastgood.Store, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that was killed has left a pack; whoever repeats its save comes just when that is deleted."""
    task = store.task("t", workspace=work)
    task.save({})
    fill(work)

    def fail(*about: object) -> None:
        raise lastgood.UnavailableError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(store._engine.catalog, "commit", fail)
        with pytest.raises(lastgood.UnavailableError):
            task.save({}, on_failure="raise")
    made: list[lastgood.Checkpoint] = []
    delete = LocalObjects.delete

    def save_first(objects: LocalObjects, *about: Any) -> None:
        if not made:
            made.append(task.save({}))
        delete(objects, *about)

    monkeypatch.setattr(LocalObjects, "delete", save_first)
    store.collect(grace=0)
    assert made
    require_whole(store, made[0])


def test_a_save_whose_ground_is_removed_again_and_again_brings_everything_along(
    store: lastgood.Store, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B6: whatever others remove meanwhile, the third try relies on nothing."""
    (work / "file").write_bytes(b"content that another task has stored, too")
    store.task("other", workspace=work).save({})
    catalog = store._engine.catalog
    commit, relied = catalog.commit, []

    def refuse(wanted: Commit, actor: Actor) -> Committed:
        relied.append(len(wanted.relies_on))
        if wanted.relies_on:
            raise ContentGoneError("it is gone", blobs=[])
        return commit(wanted, actor)

    monkeypatch.setattr(catalog, "commit", refuse, raising=False)
    saved = store.task("mine", workspace=work).save({"n": 1})
    assert (relied[-1], all(relied[:-1]), len(relied)) == (0, True, 3)
    assert store.read_file(saved.id, "file") == (work / "file").read_bytes()
