"""Garbage collection, attacked: what remains is whole, whoever saves, deletes or dies meanwhile (B6, P6)."""

from __future__ import annotations

import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

import lastgood
from lastgood.engine import blobs
from lastgood.engine.collect import AT_ONCE
from lastgood.engine.process import this_process
from lastgood.errors import IntegrityError


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


# --- saves that rely on what goes ------------------------------------------------------------------------------------


def forget_all(store: lastgood.Store, task_id: str) -> None:
    """The task goes, and all that only it had."""
    store.delete_task(task_id)
    store.collect(grace=0)


def test_a_save_that_relied_on_what_is_removed_reads_its_files_again(
    store: lastgood.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = fill(tmp_path / "work", "a")
    store.task("old", workspace=tmp_path / "work").save({})
    before_commit(store, monkeypatch, lambda: forget_all(store, "old"))
    assert is_whole(store, store.task("new", workspace=tmp_path / "work").save({}), contents)
    require_clean(store)


@pytest.mark.parametrize("policy", ["raise", "continue", "spool"])
def test_what_is_removed_again_and_again_cannot_keep_a_save_from_succeeding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Literal["raise", "continue", "spool"]
) -> None:
    """Each time that the files are read anew, others have just brought their content, and it is removed once more."""
    alerts: list[lastgood.Alert] = []
    contents = fill(tmp_path / "work", "a")
    options: dict[str, Any] = {"collect": "never", "on_alert": alerts.append}
    with lastgood.open(tmp_path / "store", **options) as store, lastgood.open(tmp_path / "store", **options) as other:

        def bring(name: str) -> None:
            other.task(name, workspace=tmp_path / "work").save({})

        names = iter(["first", "second", "third", "fourth"])
        commit, removing = store.catalog.commit, list[threading.Thread]()

        def remove_and_commit(*about: Any) -> Any:
            removing.append(threading.Thread(target=forget_all, args=(other, next(names))))
            removing[-1].start()
            removing[-1].join(0.5 if len(removing) == 3 else None)  # the third has to wait for this commit
            try:
                return commit(*about)
            except IntegrityError:
                bring(["second", "third", "fourth"][len(removing) - 1])
                raise

        bring("first")
        task = store.task("new", workspace=tmp_path / "work")
        monkeypatch.setattr(store.catalog, "commit", remove_and_commit)
        saved = task.save({}, on_failure=policy)
        assert len(removing) == 3
        removing[-1].join()
        assert saved.status == "stored"
        assert is_whole(store, saved, contents)
        assert alerts == []
        require_clean(store)
