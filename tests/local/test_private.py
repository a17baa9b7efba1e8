"""Nobody else may look into a store, or write there, whatever the umask."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import lastgood
from lastgood.errors import IntegrityError


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


def use(store_at: Path, work: Path) -> None:
    """Do what makes files: save, restore, collect, repair."""
    work.mkdir(exist_ok=True)
    (work / "large").write_bytes(os.urandom(1 << 20))
    with lastgood.open(store_at) as store:
        task = store.task("t", workspace=work)
        task.restore(task.save({}).id)
        store.collect(grace=0)
        store.repair()


def test_its_owner_may_use_all_of_it_whatever_the_umask(tmp_path: Path) -> None:
    """W6: umask 777 left a lock file that not even its owner could open."""
    before = os.umask(0o777)
    try:
        with lastgood.open(tmp_path / "store") as store:
            store.task("t").save({"n": 1})
    finally:
        os.umask(before)
    (tmp_path / "work").mkdir()
    os.umask(0o777)
    try:
        with lastgood.open(tmp_path / "store") as store:
            task = store.task("t", workspace=tmp_path / "work")
            task.save({"n": 2})
            store.task("t", workspace=tmp_path / "work").save({"n": 3})
    finally:
        os.umask(before)
    for path in (tmp_path / "store").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED, files that root makes for others: that needs root")
@pytest.mark.parametrize("name", ["store", "store.sqlite"])
def test_what_root_makes_in_a_users_store_is_the_users(tmp_path: Path, name: str) -> None:
    """W5: after one `sudo lastgood save` the user's store could not be written by the user."""
    own = tmp_path / "own"
    own.mkdir()
    lastgood.open(own / name).close()
    for path in (own, *own.rglob("*")):
        os.chown(path, 12345, 54321)
    use(own / name, tmp_path / "work")
    assert {(path.stat().st_uid, path.stat().st_gid) for path in own.rglob("*")} == {(12345, 54321)}


@pytest.mark.parametrize("content", [None, b"a file of somebody else, longer than a witness"])
def test_nothing_is_written_behind_a_link_in_the_place_of_the_lock(tmp_path: Path, content: bytes | None) -> None:
    """S2, W5: a link in a user's store had root overwrite the first 28 bytes of any file, or make a file anywhere."""
    lastgood.open(tmp_path / "store").close()
    lock, other = tmp_path / "store/catalog.sqlite-lock", tmp_path / "other"
    if content is not None:
        other.write_bytes(content)
    lock.unlink()
    lock.symlink_to(other)
    refused = pytest.raises(IntegrityError, match=r"a link is in the place of catalog\.sqlite-lock")
    with refused, lastgood.open(tmp_path / "store") as store:
        store.task("t").save({})
    lock.unlink()
    with lastgood.open(tmp_path / "store") as store:
        store.task("t").save({"n": 1})
        lock.unlink()
        lock.symlink_to(other)
        with pytest.raises(IntegrityError, match=r"a link is in the place of catalog\.sqlite-lock"):
            store.task("t").save({"n": 2})
    assert (other.read_bytes() if other.exists() else None) == content
