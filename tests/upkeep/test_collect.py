"""Garbage collection, attacked: what remains is whole, whoever saves, deletes or dies meanwhile (B6, P6)."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from tests.support.damage import flip, tamper

import lastgood
from lastgood.engine import blobs
from lastgood.engine.gather import Batch
from lastgood.errors import IntegrityError, UnavailableError
from lastgood.files.roots import identify
from lastgood.local.process import this_process
from lastgood.model.identity import digest, now
from lastgood.model.task import Journal
from lastgood.upkeep import collect
from lastgood.upkeep.collect import AT_ONCE


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
    assert store.find_checkpoint(made[-2].id).state == {"n": AT_ONCE}
    assert [each.id for each in store.list_checkpoints("t")] == [made[-1].id, made[-2].id]


def test_what_an_interrupted_restore_goes_back_to_is_not_purged(store: lastgood.Store, tmp_path: Path) -> None:
    """B6: a restore was killed half-way; what it began from was deleted long ago, and has the files as they were."""
    (first, contents), (second, others), _ = versions(store, tmp_path / "work", 3)
    journal = Journal(
        id="j",
        owner="ada",
        task_id="t",
        began_at_us=now(),
        process=this_process(),
        chosen=first.id,
        before=second.id,
        folders=(identify(str(tmp_path / "work")),),
    )
    store._engine.catalog.begin_journal(journal)
    for checkpoint in (first, second):
        store.delete_checkpoint(checkpoint.id)
    for dry_run in (True, False):
        assert store.collect(grace=0, dry_run=dry_run) == lastgood.types.Collected(dry_run=dry_run)
    assert is_whole(store, first, contents)
    assert is_whole(store, second, others)
    store._engine.catalog.end_journal("j")
    assert store.collect(grace=0).purged == 2


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
    commit, waiting = store._engine.catalog.commit, list(actions)

    def act_and_commit(*about: Any) -> Any:
        if waiting:
            waiting.pop(0)()
        return commit(*about)

    monkeypatch.setattr(store._engine.catalog, "commit", act_and_commit)


def is_whole(store: lastgood.Store, checkpoint: lastgood.Checkpoint, contents: dict[str, bytes]) -> bool:
    return {name: store.read_file(checkpoint.id, name) for name in contents} == contents


def require_clean(store: lastgood.Store) -> None:
    report = store.check(read_data=True)
    assert report.findings == ()
    assert store.usage().stray_bytes == 0


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
    alerts: list[lastgood.types.Alert] = []
    contents = fill(tmp_path / "work", "a")
    options: dict[str, Any] = {"collect": "never", "on_alert": alerts.append}
    with lastgood.open(tmp_path / "store", **options) as store, lastgood.open(tmp_path / "store", **options) as other:

        def bring(name: str) -> None:
            other.task(name, workspace=tmp_path / "work").save({})

        names = iter(["first", "second", "third", "fourth"])
        commit, removing = store._engine.catalog.commit, list[threading.Thread]()

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
        monkeypatch.setattr(store._engine.catalog, "commit", remove_and_commit)
        saved = task.save({}, on_failure=policy)
        assert len(removing) == 3
        removing[-1].join()
        assert saved.status == "stored"
        assert is_whole(store, saved, contents)
        assert alerts == []
        require_clean(store)


# --- grace periods ---------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Who collects lives so many seconds later than everybody else."""
    late = [0.0]
    monkeypatch.setattr(collect, "now", lambda: now() + int(late[0] * 1_000_000))
    return late


def versions(store: lastgood.Store, folder: Path, count: int) -> list[tuple[lastgood.Checkpoint, dict[str, bytes]]]:
    """Checkpoints of a task `t`, each with other files, and what was in them."""
    folder.mkdir()
    task, made = store.task("t", workspace=folder), []
    for number in range(count):
        contents = fill(folder, number)
        made.append((task.save({"number": number, "log": [f"line {number} {n} " * 9 for n in range(300)]}), contents))
    return made


def test_the_first_run_condemns_and_one_after_the_grace_period_removes(
    store: lastgood.Store, tmp_path: Path, clock: list[float]
) -> None:
    (first, _), (second, contents) = versions(store, tmp_path / "work", 2)
    store.purge_checkpoint(first.id)
    garbage = store.usage().unreferenced_bytes
    assert garbage > 0
    found = store.collect(grace=100)
    assert (found.removed, found.condemned_bytes) == (0, garbage)
    clock[0] = 99
    assert store.collect(grace=100) == found
    assert store.usage().unreferenced_bytes == garbage
    clock[0] = 101
    assert store.collect(grace=100).removed == found.condemned
    assert store.usage().unreferenced_bytes == 0
    assert is_whole(store, second, contents)
    require_clean(store)


def test_who_is_undeleted_within_the_grace_period_comes_back_whole(
    store: lastgood.Store, tmp_path: Path, clock: list[float]
) -> None:
    (first, contents), _ = versions(store, tmp_path / "work", 2)
    state = first.state
    store.delete_checkpoint(first.id)
    clock[0] = 99
    assert store.collect(grace=100) == lastgood.types.Collected()
    store.undelete_checkpoint(first.id)
    clock[0] = 1000
    assert store.collect(grace=100) == lastgood.types.Collected()
    assert store.find_checkpoint(first.id).state == state
    assert is_whole(store, first, contents)
    require_clean(store)


def test_a_deleted_one_is_purged_after_the_grace_period_and_its_content_goes_after_another(
    store: lastgood.Store, tmp_path: Path, clock: list[float]
) -> None:
    (first, _), (second, contents) = versions(store, tmp_path / "work", 2)
    store.delete_checkpoint(first.id)
    clock[0] = 101
    found = store.collect(grace=100)
    assert (found.purged, found.removed) == (1, 0)
    with pytest.raises(lastgood.NotFoundError):
        store.find_checkpoint(first.id)
    clock[0] = 202
    assert store.collect(grace=100).removed == found.condemned > 0
    assert is_whole(store, second, contents)
    require_clean(store)


def test_content_that_is_saved_again_is_acquitted_and_gets_a_grace_period_of_its_own(
    store: lastgood.Store, tmp_path: Path, clock: list[float]
) -> None:
    (first, contents), (second, _) = versions(store, tmp_path / "work", 2)
    store.purge_checkpoint(first.id)
    store.collect(grace=100)
    fill(tmp_path / "work", 0)
    third = store.task("t", workspace=tmp_path / "work").save(second.state)
    clock[0] = 101
    assert store.collect(grace=100).removed > 0  # what was only in the first state
    assert is_whole(store, third, contents)
    store.task("t", workspace=tmp_path / "work").restore(second.id)
    store.purge_checkpoint(third.id)
    clock[0] = 150
    found = store.collect(grace=100)
    assert (found.removed, found.condemned) == (0, len(contents) + 1)
    require_clean(store)


def test_who_was_condemned_by_a_run_that_did_not_end_gets_its_grace_period_back(
    store: lastgood.Store, tmp_path: Path, clock: list[float]
) -> None:
    """A save comes between the marks and the condemnation, and the run ends before it can take that back."""
    (first, contents), (second, _) = versions(store, tmp_path / "work", 2)
    task = store.task("t", workspace=tmp_path / "work")
    store.purge_checkpoint(first.id)
    fill(tmp_path / "work", 0)
    saved: list[lastgood.Checkpoint] = []

    def save_and_stop(phase: str, done: int, of: int) -> None:
        if phase == "condemn" and not saved:
            saved.append(task.save({}))
        elif saved:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.collect(grace=100, progress=save_and_stop)
    clock[0] = 101
    store.collect(grace=100)
    assert is_whole(store, saved[0], contents)
    task.restore(second.id)
    store.purge_checkpoint(saved[0].id)
    found = store.collect(grace=100)
    assert found.removed == 0
    assert found.condemned > 0


@pytest.mark.parametrize("grace", [-1, -0.5, float("nan"), float("inf"), "1", None, True])
def test_a_grace_period_that_is_none_is_refused(store: lastgood.Store, grace: Any) -> None:
    with pytest.raises(lastgood.InvalidError):
        store.collect(grace=grace)


# --- dry runs --------------------------------------------------------------------------------------------------------


def test_a_dry_run_tells_what_a_run_does_and_changes_nothing(store: lastgood.Store, tmp_path: Path) -> None:
    (first, _), (second, _), (_third, contents) = versions(store, tmp_path / "work", 3)
    store.purge_checkpoint(first.id)
    store.delete_checkpoint(second.id)
    before = snapshot(tmp_path / "store"), store.usage()
    told = store.collect(grace=0, dry_run=True)
    assert (snapshot(tmp_path / "store"), store.usage()) == before
    done = store.collect(grace=0)
    assert (told.purged, told.removed, told.condemned) == (done.purged, done.removed, 0)
    assert told.removed > 2 * len(contents)
    assert store.collect(grace=0) == lastgood.types.Collected()


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file of a store but what is only a cache or memory."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if not name.endswith("-shm") and ".cache/" not in name}


# --- damage ----------------------------------------------------------------------------------------------------------

DAMAGES = {
    "record": "UPDATE checkpoints SET record = zeroblob(length(record)) WHERE id = ?",
    "root": "UPDATE checkpoints SET root = zeroblob(length(root)) WHERE id = ?",
    "part of a state": "UPDATE blobs SET data = zeroblob(length(data)) WHERE partition > 0 AND ? != ''",
    "tree": "UPDATE blobs SET data = zeroblob(length(data)) WHERE partition = 0 AND size > 1000 AND ? != ''",
    "missing tree": "DELETE FROM blobs WHERE partition = 0 AND size > 1000 AND ? != ''",
}


@pytest.mark.parametrize("what", list(DAMAGES))
def test_where_something_is_damaged_that_leads_to_others_nothing_goes(tmp_path: Path, what: str) -> None:
    with lastgood.open(tmp_path / "store", collect="never") as store:
        (tmp_path / "work").mkdir()
        task, made = store.task("t", workspace=tmp_path / "work"), []
        for number in range(3):
            for name in range(40):
                (tmp_path / "work" / f"a file with a long name {name}").write_bytes(f"{name} {number}".encode())
            log = [[f"{number} {n} {m} " * 20 for m in range(60)] for n in range(60)]
            made.append(task.save({"log": log}))
        store.purge_checkpoint(made[0].id)
        store.delete_checkpoint(made[1].id)
    tamper(tmp_path / "store", DAMAGES[what], made[2].id)
    with lastgood.open(tmp_path / "store", collect="never") as store:
        before = list(store._engine.catalog.indexed()), store._engine.catalog.sliced(), store._engine.catalog.packs()
        for dry_run in (True, False):
            with pytest.raises(IntegrityError, match="nothing was collected"):
                store.collect(grace=0, dry_run=dry_run)
        assert (
            list(store._engine.catalog.indexed()),
            store._engine.catalog.sliced(),
            store._engine.catalog.packs(),
        ) == before
        store.undelete_checkpoint(made[1].id)


def test_a_damaged_pack_is_told_of_and_left_as_it_is(tmp_path: Path) -> None:
    alerts: list[lastgood.types.Alert] = []
    with lastgood.open(tmp_path / "store", collect="never", on_alert=alerts.append) as store:
        (first, contents), _ = versions(store, tmp_path / "work", 2)
        task = store.task("t", workspace=tmp_path / "work")
        kept = dict(list(contents.items())[:30])
        for name in contents:
            (tmp_path / "work" / name).unlink()
        for name, content in kept.items():
            (tmp_path / "work" / name).write_bytes(content)
        third = task.save({})
        store.purge_checkpoint(first.id)
        (pack,) = {blob.pack for blob in store._engine.catalog.indexed() if blob.digest == digest(kept["7"])}
        (place,) = [blob for blob in store._engine.catalog.indexed() if blob.digest == digest(kept["7"])]
        assert pack is not None
        file = tmp_path / "store" / "objects" / pack
        flip(file, (place.position or 0) + 5)
        before = file.read_bytes()
        store.collect(grace=0)
        assert [alert.message.startswith(f"the pack {pack} is damaged") for alert in alerts] == [True]
        assert file.read_bytes() == before
        del kept["7"]
        assert is_whole(store, third, kept)
        assert {blob.pack for blob in store._engine.catalog.indexed() if blob.digest in map(digest, kept.values())} == {
            pack
        }
        assert list((tmp_path / "store" / "objects" / ".drafts").iterdir()) == []


# --- one at a time ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["file", "memory"])
def test_only_one_collects_at_a_time(tmp_path: Path, where: str) -> None:
    """With two, one would remove what the other has condemned after a save had acquitted it."""
    with lastgood.open(tmp_path / "store" if where == "file" else ":memory:", collect="never") as store:
        store.task("t").save({})
        seen = []

        def collect_beside(phase: str, done: int, of: int) -> None:
            seen.append(collect.collect(store._engine, store.user, grace=0, wait=False).was_busy)

        store.collect(grace=0, progress=collect_beside)
        assert seen
        assert all(seen)
        assert not collect.collect(store._engine, store.user, grace=0, wait=False).was_busy


def test_a_run_that_failed_leaves_the_way_free(store: lastgood.Store) -> None:
    store.task("t").save({})

    def fail(phase: str, done: int, of: int) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        store.collect(progress=fail)
    assert not collect.collect(store._engine, store.user, wait=False).was_busy


# --- strays ----------------------------------------------------------------------------------------------------------

KILLED = """
import os, sys
import lastgood
store = lastgood.open(sys.argv[1], collect="never")
store._engine.catalog.commit = lambda *about: (print("ready", flush=True), sys.stdin.read(), os._exit(9))
store.task("t", workspace=sys.argv[2]).save({})
"""


def packs_of(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "objects" / "packs").rglob("*") if path.is_file())


def test_the_pack_of_a_killed_save_is_swept_and_that_of_a_living_one_is_not(
    store: lastgood.Store, tmp_path: Path
) -> None:
    fill(tmp_path / "work", "a")
    command = [sys.executable, "-c", KILLED, str(tmp_path / "store"), str(tmp_path / "work")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        (pack,) = packs_of(tmp_path / "store")
        assert store.collect(grace=0).strays == 0
        assert packs_of(tmp_path / "store") == [pack]
        assert [flight.process.pid for flight in store._engine.catalog.announced()] == [child.pid]
        child.kill()
    size = store.size()
    found = store.collect(grace=0)
    assert (found.strays, found.freed) == (1, size - store.size())
    assert packs_of(tmp_path / "store") == []
    assert store._engine.catalog.announced() == []


def test_a_pack_is_nobodys_garbage_from_the_moment_that_it_is_there(
    store: lastgood.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone sweeps just when it was stored, before whoever stored it could do anything else."""
    contents = fill(tmp_path / "work", "a")
    task, objects = store.task("t", workspace=tmp_path / "work"), store._engine.objects
    assert objects is not None
    adopt, strays = objects.adopt, []

    def adopt_and_sweep(name: str, path: Path) -> bool:
        is_new = adopt(name, path)
        strays.append(store.collect(grace=0).strays)
        return is_new

    monkeypatch.setattr(objects, "adopt", adopt_and_sweep)
    assert is_whole(store, task.save({}), contents)
    assert strays == [0]


@pytest.mark.parametrize("reading", ["announced", "packs"])
def test_a_pack_that_comes_while_strays_are_looked_for_is_none(
    store: lastgood.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: str
) -> None:
    """It is announced and stored after it was read what is announced, or known."""
    read, came = getattr(store._engine.catalog, reading), list[str]()

    def read_and_store() -> Any:
        told = read()
        if not came:
            batch = Batch(store._engine.blobs, store._engine.objects)
            for number in range(100):
                batch.put(b"%d" % number)
            came.extend(pack.name for pack in batch.finish().packs)
        return told

    monkeypatch.setattr(store._engine.catalog, reading, read_and_store)
    assert store.collect(grace=0).strays == 0
    assert packs_of(tmp_path / "store") == [Path(name).name for name in came]


def test_packs_of_another_host_are_left_alone_for_a_day(
    store: lastgood.Store, tmp_path: Path, clock: list[float]
) -> None:
    contents = fill(tmp_path / "work", "a")
    store.task("t", workspace=tmp_path / "work").save({})
    stray = store._engine.objects
    assert stray is not None
    stray.put("packs/aa/stray", [b"content"])
    store._engine.catalog.announce(["packs/aa/stray"], msgspec.structs.replace(this_process(), host="another"))
    clock[0] = 86_000
    assert store.collect(grace=0).strays == 0
    clock[0] = 87_000
    assert store.collect(grace=0).strays == 1
    assert len(packs_of(tmp_path / "store")) == 1
    head = store.task("t").head
    assert head is not None
    assert is_whole(store, head, contents)


def test_what_nobody_announced_is_a_stray_and_what_is_no_pack_is_left_alone(
    store: lastgood.Store, tmp_path: Path
) -> None:
    objects = store._engine.objects
    assert objects is not None
    for name in ("packs/aa/stray", "packs/stray", "notes/kept"):
        objects.put(name, [name.encode()])
    assert store.collect(grace=0).strays == 2
    assert [each.name for each in objects.list()] == ["notes/kept"]


def test_drafts_go_once_they_are_a_day_old(store: lastgood.Store) -> None:
    objects = store._engine.objects
    assert objects is not None
    old, young = objects.draft(), objects.draft()
    for draft in (old, young):
        draft.write_bytes(b"1234567")
    yesterday = old.stat().st_mtime - 90_000
    os.utime(old, (yesterday, yesterday))
    assert store.collect(grace=0).freed == 7
    assert young.exists()
    assert not old.exists()


def test_looking_at_a_large_drift_leaves_nothing_behind(store: lastgood.Store, tmp_path: Path) -> None:
    """`diff`, `plan` and so `lastgood status` put new content into packs to look at it, and take them away again."""
    fill(tmp_path / "work", "a")
    task = store.task("t", workspace=tmp_path / "work")
    first = task.save({})
    committed = packs_of(tmp_path / "store")
    fill(tmp_path / "work", "b")
    difference = task.diff()
    assert len(difference.files.changes) == 90
    assert packs_of(tmp_path / "store") != committed
    del difference
    assert packs_of(tmp_path / "store") == committed
    assert len(task.plan(first).restored) == 90
    assert packs_of(tmp_path / "store") == committed
    assert store._engine.catalog.announced() == []
    assert store.collect(grace=0) == lastgood.types.Collected()


def test_a_save_that_fails_leaves_a_pack_that_is_swept(
    store: lastgood.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "work", "a")
    task = store.task("t", workspace=tmp_path / "work")
    monkeypatch.setattr(store._engine.catalog, "commit", _fail)
    with pytest.raises(lastgood.UnavailableError):
        task.save({}, on_failure="raise")
    assert store._engine.catalog.announced() == []
    assert len(packs_of(tmp_path / "store")) == store.collect(grace=0).strays == 1
    assert packs_of(tmp_path / "store") == []


def _fail(*about: object) -> None:
    raise lastgood.UnavailableError("no")


def test_files_in_chunks_stay_whole_and_what_only_others_had_goes(store: lastgood.Store, tmp_path: Path) -> None:
    """Versions of a large file share most of their chunks."""
    (tmp_path / "work").mkdir()
    task, made = store.task("t", workspace=tmp_path / "work"), []
    content = random.Random(5).randbytes(9_000_000)
    for number in range(3):
        content = content[:4_000_000] + b"%d" % number * 1000 + content[4_000_000:]
        (tmp_path / "work" / "large").write_bytes(content)
        made.append((task.save({}), {"large": content}))
    store.purge_checkpoint(made[1][0].id)
    assert store.collect(grace=0).removed > 0
    assert store.usage().unreferenced_bytes == 0
    require_clean(store)
    with lastgood.open(tmp_path / "store", user="ada", collect="never") as fresh:
        assert all(is_whole(fresh, *made[number]) for number in (0, 2))


# --- parts of larger blobs -------------------------------------------------------------------------------------------


def test_what_became_a_part_of_something_larger_keeps_it(store: lastgood.Store) -> None:
    """A list has grown, and what it was at first is read out of what it is: that stays although nobody names it."""
    task = store.task("t")
    lines = [f"line {number} " * 30 for number in range(200)]
    short, long, _ = (task.save({"log": each}) for each in (lines[:30], lines, []))
    assert store._engine.catalog.sliced() != []
    store.purge_checkpoint(long.id)
    for _ in range(2):
        store.collect(grace=0)
        require_clean(store)
        with lastgood.open(Path(store._engine.catalog.address or "").parent, user="ada") as fresh:
            assert fresh.find_checkpoint(short.id).state == {"log": lines[:30]}
    store.purge_checkpoint(short.id)
    store.collect(grace=0)
    assert (store._engine.catalog.sliced(), store._engine.catalog.indexed()) == ([], [])


def test_a_blob_goes_whose_parts_have_their_own_bytes_again(store: lastgood.Store) -> None:
    """A list shrinks to what it was: its parts are brought again, and nobody needs what they had become parts of."""
    task = store.task("t")
    lines = [f"line {number} " * 30 for number in range(200)]
    short = task.save({"log": lines[:30]})
    long = task.save({"log": lines})
    assert store._engine.catalog.sliced() != []
    again = store.task("t").save({"log": lines[:30]})
    for checkpoint in (short, long):
        store.purge_checkpoint(checkpoint.id)
    assert store.collect(grace=0).removed > 0
    assert store.usage().unreferenced_bytes == 0
    assert store._engine.catalog.sliced() == []
    assert store.find_checkpoint(again.id).state == {"log": lines[:30]}
    require_clean(store)


def test_what_was_captured_for_a_restore_that_is_refused_is_swept(store: lastgood.Store, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    task = store.task("t", workspace=tmp_path / "work")
    first = task.save({})
    fill(tmp_path / "work", "a")
    store.task("t").save({})
    for refused in (task.undo, lambda: task.restore(first.id), lambda: task.switch("main")):
        with pytest.raises(lastgood.ConflictError):
            refused()
    assert store._engine.catalog.announced() == []
    store.collect(grace=0)
    assert packs_of(tmp_path / "store") == []


def test_what_was_captured_for_a_save_that_had_been_made_is_swept(store: lastgood.Store, tmp_path: Path) -> None:
    """A key makes the second save the first one: what the second brought is not needed."""
    (tmp_path / "work").mkdir()
    task = store.task("t", workspace=tmp_path / "work")
    contents = fill(tmp_path / "work", "a")
    first = task.save({}, key="k")
    store.task("t").save({"other": 1})
    before = packs_of(tmp_path / "store")
    assert store.task("t", workspace=tmp_path / "work").save({}, key="k").id == first.id
    assert store._engine.catalog.announced() == []
    store.collect(grace=0)
    assert packs_of(tmp_path / "store") == before
    assert is_whole(store, first, contents)


# --- a full disk -----------------------------------------------------------------------------------------------------

FULL = """
import resource, signal, sys
import lastgood
from lastgood.upkeep import repack
store = lastgood.open(sys.argv[1], collect="never")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
rewrite = repack._rewrite
def rewrite_when_full(*about):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    try:
        return rewrite(*about)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
repack._rewrite = rewrite_when_full
try:
    store.collect(grace=0)
except lastgood.UnavailableError as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize("room", [0, 100, 20_000, 70_000])
def test_a_disk_that_is_full_while_a_pack_is_rewritten_leaves_it_as_it_was(tmp_path: Path, room: int) -> None:
    with lastgood.open(tmp_path / "store", collect="never") as store:
        (first, contents), _ = versions(store, tmp_path / "work", 2)
        for name, content in list(contents.items())[:30]:
            (tmp_path / "work" / name).write_bytes(content)
        third = store.task("t", workspace=tmp_path / "work").save({})
        store.purge_checkpoint(first.id)
        before = packs_of(tmp_path / "store")
    command = [sys.executable, "-c", FULL, str(tmp_path / "store"), str(room)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told in ("UnavailableError\n", "DiskFullError\n")
    assert packs_of(tmp_path / "store") == before
    assert list((tmp_path / "store" / "objects" / ".drafts").iterdir()) == []
    with lastgood.open(tmp_path / "store", collect="never") as store:
        require_clean(store)
        assert store.collect(grace=0).packs_rewritten == 1
        assert is_whole(store, third, dict(list(contents.items())[:30]))
        assert store.usage().unreferenced_bytes == 0
        require_clean(store)


@pytest.mark.parametrize("what", ["both", "files"])
def test_a_restore_whose_present_is_saved_while_its_content_is_removed_succeeds(
    store: lastgood.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: Literal["both", "files"]
) -> None:
    """What lies there now was saved by someone else, too; that one goes just when the present is kept."""
    (tmp_path / "work").mkdir()
    task = store.task("t", workspace=tmp_path / "work")
    first = task.save({})
    contents = fill(tmp_path / "work", "a")
    store.task("old", workspace=tmp_path / "work").save({})
    before_commit(store, monkeypatch, lambda: forget_all(store, "old"))
    result = task.restore(first.id, what)
    assert list((tmp_path / "work").iterdir()) == []
    assert result.before is not None
    assert is_whole(store, result.before, contents)
    require_clean(store)


@pytest.mark.parametrize("what", ["both", "files"])
@pytest.mark.parametrize("way", ["undo", "redo", "switch"])
def test_going_elsewhere_while_the_content_of_the_present_is_removed_succeeds(
    store: lastgood.Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: Literal["undo", "redo", "switch"],
    what: Literal["both", "files"],
) -> None:
    """As above, by undo, redo and switch: the present is kept, and what was to come is there."""
    (tmp_path / "work").mkdir()
    task = store.task("t", workspace=tmp_path / "work")
    first = task.save({})
    wanted = fill(tmp_path / "work", "a")
    task.save({})
    task.restore(first.id, what)
    if way == "redo":
        task.undo()
        wanted = {}
    if way == "switch":
        task.fork(first.id, name="side")
        wanted = {}
    contents = fill(tmp_path / "work", "b")
    store.task("old", workspace=tmp_path / "work").save({})
    before_commit(store, monkeypatch, lambda: forget_all(store, "old"))
    task.switch("side") if way == "switch" else getattr(task, way)()
    assert {path.name: path.read_bytes() for path in (tmp_path / "work").iterdir()} == wanted
    (kept,) = [
        one for one in store.list_checkpoints("t") if one.message.startswith(("before switching", "before another"))
    ]
    assert is_whole(store, kept, contents)
    require_clean(store)


def test_a_lease_that_could_not_be_released_holds_up_no_later_collection(
    store: lastgood.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the state machine: a full disk kept the lease of a collection that had ended."""

    def refuse(token: int) -> None:
        raise UnavailableError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(store._engine.catalog, "release_lease", refuse, raising=False)
        store.collect(grace=0)
    monkeypatch.setattr(collect, "PATIENCE_SECONDS", 0.03)
    store.collect(grace=0)
