"""How much of a store everything takes: exactly what full walks would find, without walking."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.usage_model import alone, together, walk_store

import lastgood
from lastgood import AppendList, CheckpointError, NotFoundError, Store, Task, aio
from lastgood.catalog.values import FILES, Blob
from lastgood.engine.browse import walk_files
from lastgood.model.identity import digest
from lastgood.model.tree import Folder
from lastgood.upkeep.reach import Graph
from lastgood.upkeep.usage import Usage

LARGE = random.Random(0).randbytes(700_000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with lastgood.open(tmp_path / "store", user="ada") as store:
        yield store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "one").write_text("one\n" * 300)
    (folder / "deep" / "er" / "two").write_text("two\n" * 300)
    return folder


# --- the same as full walks ---------------------------------------------------------------------------------------


def check_against_walks(store: Store) -> Usage:
    everything = walk_store(store)
    usage = store.usage()
    assert usage.unreadable == 0
    assert len(usage.checkpoints) == len(everything)
    for found, walked in zip(usage.checkpoints, everything, strict=True):
        assert (found.id, found.sequence) == (walked.checkpoint.id, walked.checkpoint.placement.sequence)
        assert found.deleted == walked.checkpoint.deleted
        assert found.frees == alone(walked, everything)
    for task in usage.tasks:
        mine = [one for one in everything if (one.checkpoint.owner, one.checkpoint.task_id) == (task.owner, task.id)]
        deleted = sum(one.checkpoint.deleted for one in mine)
        assert (task.checkpoints, task.deleted_checkpoints) == (len(mine), deleted)
        assert task.stored == sum(together(mine).values())
    assert usage.stored_bytes == sum(together(everything).values())
    seen: dict[Any, Any] = {}
    adds = {one.id: one.adds for one in usage.checkpoints}
    for walked in sorted(everything, key=lambda one: one.record.created_at):
        fresh = {key: size for key, size in walked.needs.items() if key not in seen}
        assert adds[walked.checkpoint.id] == sum(fresh.values())
        seen |= fresh
    rows = store._engine.catalog._database  # type: ignore[attr-defined]
    lengths = "SELECT sum(coalesce(length, length(data))) FROM blobs"
    kept = rows.read(lambda connection: connection.execute(lengths).get) or 0
    blobs = {key: one for key, one in together(everything).items() if isinstance(key[0], int)}
    assert usage.unreferenced_bytes == kept - sum(blobs.values())
    return usage


STATES: list[Any] = [
    {},
    {"n": 1},
    {"messages": [{"role": "user", "content": f"{n} " * 200} for n in range(60)]},
    {"messages": [{"role": "user", "content": f"{n} " * 200} for n in range(61)]},
    {"large": [["x" * 20_000, n] for n in range(4)], "text": "line\n" * 5000},
    {"map": {str(n): "y" * 300 for n in range(90)}},
]
CONTENT: list[bytes] = [b"", b"a\n", b"b\n" * 600, b"c" * 3000, LARGE, LARGE[:600_000] + b"another end" * 9000]
NAMES = ["a", "b", "deep/a", "deep/b", "deep/er/a", "other/a"]


class Work:
    """Two tasks of two owners on one store, and whatever may happen to them."""

    def __init__(self, place: Path, dice: random.Random) -> None:
        self._dice = dice
        self.store = lastgood.open(place / "store", user="ada")
        self._folders = {name: place / name for name in ("one", "two")}
        for folder in self._folders.values():
            folder.mkdir()
        self._tasks = {name: self._open(name) for name in self._folders}
        self._lists = {name: AppendList() for name in self._folders}

    def _open(self, name: str) -> Task:
        return self.store.task(name, workspace=self._folders[name], owner="ben" if name == "two" else None)

    def act(self) -> None:
        name = self._dice.choice(sorted(self._tasks))
        acts = [self._save, self._save, self._save, self._restore, self._fork, self._delete, self._purge, self._prune]
        with suppress(CheckpointError):  # heads stay, branches that were deleted stay deleted, and so on
            self._dice.choice(acts)(name)
        if self._dice.random() < 0.1:
            self._tasks[name] = self._open(name)

    def _save(self, name: str) -> None:
        dice, folder = self._dice, self._folders[name]
        for path in dice.sample(NAMES, dice.randrange(3)):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(dice.choice(CONTENT))
        if dice.random() < 0.1:
            for number in range(70):  # too many to lie in the catalog: they become a pack
                (folder / f"many {number}").write_text(f"{dice.randrange(100)} {number}")
        if dice.random() < 0.2:
            (folder / dice.choice(NAMES)).unlink(missing_ok=True)
        log = self._lists[name]
        log.extend(f"{dice.random()} was said " * 50 for _ in range(dice.randrange(20)))
        state = {**dice.choice(STATES), "log": log} if dice.random() < 0.5 else dice.choice(STATES)
        companions: dict[str, Any] = (
            {"artifacts": [{"name": "a", "content": "z" * 4000}]} if dice.random() < 0.3 else {}
        )
        self._tasks[name].save(state, **companions)

    def _any(self, name: str) -> str:
        task = self._tasks[name]
        if not (found := self.store.list_checkpoints(name, owner=task.owner)):
            raise NotFoundError("nothing was saved yet")
        return self._dice.choice(found).id

    def _restore(self, name: str) -> None:
        self._tasks[name].restore(self._any(name))

    def _fork(self, name: str) -> None:
        self._tasks[name].fork(self._any(name), name=f"branch {self._dice.random()}")

    def _delete(self, name: str) -> None:
        self.store.delete_checkpoint(self._any(name), owner=self._tasks[name].owner)

    def _purge(self, name: str) -> None:
        self.store.purge_checkpoint(self._any(name), owner=self._tasks[name].owner)

    def _prune(self, name: str) -> None:
        owner = self._tasks[name].owner
        if branches := self.store.branches(name, owner=owner):
            self.store.delete_branch(self._dice.choice(branches).id, owner=owner)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 32), st.integers(1, 25))
def test_every_figure_is_what_full_walks_find(seed: int, length: int) -> None:
    """B1, B6: tasks and checkpoints, deleted ones included and purged ones not."""
    with TemporaryDirectory() as place:
        work = Work(Path(place), random.Random(seed))
        with work.store:
            for _ in range(length):
                work.act()
            check_against_walks(work.store)


def test_the_figures_hold_where_there_are_packs_chunks_slices_and_deleted_branches(tmp_path: Path) -> None:
    """One history that surely has all of them."""
    work = Work(tmp_path, random.Random(7))
    with work.store as store:
        for _ in range(60):
            work.act()
        usage = check_against_walks(store)
        assert usage.packs > 0
        assert store._engine.catalog.sliced()
        assert usage.unreferenced_bytes > 0
        assert any(one.deleted for one in usage.checkpoints)
        assert len({one.branch_id for one in usage.checkpoints}) > 3


def test_a_file_that_has_the_bytes_of_a_tree_is_a_file(store: Store, tmp_path: Path) -> None:
    """It shares the blob with the tree, and nothing of what the tree leads to."""
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
    (one / "file").write_text("content " * 100)
    saved = store.task("one", workspace=one).save({})
    tree = (saved.record.files or ())[0].tree
    (other / "looks like one").write_bytes(store._engine.blobs.read(tree))
    store.task("other", workspace=other).save({})
    usage = check_against_walks(store)
    assert sum(task.stored for task in usage.tasks) - usage.stored_bytes == len(store._engine.blobs.read(tree))


# --- what deleting frees ------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 32))
def test_purging_frees_what_was_said(seed: int) -> None:
    """B6: content becomes unreferenced, the record and the root are gone."""
    with TemporaryDirectory() as place:
        work = Work(Path(place), dice := random.Random(seed))
        with work.store as store:
            for _ in range(20):
                work.act()
            for chosen in dice.sample(store.usage().checkpoints, min(3, len(store.usage().checkpoints))):
                before = store.usage()
                found = next(one for one in before.checkpoints if one.id == chosen.id)
                with suppress(CheckpointError):
                    store.purge_checkpoint(found.id, owner=found.owner)
                    after = store.usage()
                    assert before.stored_bytes - after.stored_bytes == found.frees
                    assert found.id not in {one.id for one in after.checkpoints}


def test_a_deleted_checkpoint_still_holds_its_content(store: Store, folder: Path) -> None:
    task = store.task("t", workspace=folder)
    first = task.save({"n": "x" * 5000})
    (folder / "one").write_text("another")
    task.save({})
    before = store.usage()
    store.delete_checkpoint(first.id)
    after = store.usage()
    assert after.checkpoints[0].deleted
    assert after.tasks[0].deleted_checkpoints == 1
    assert after.stored_bytes == before.stored_bytes
    store.purge_checkpoint(first.id)
    assert len(store.usage().checkpoints) == 1
    assert store.usage().unreferenced_bytes > 0


# --- the store itself ---------------------------------------------------------------------------------------------


def test_an_empty_store_has_nothing_and_says_so(store: Store) -> None:
    usage = store.usage()
    assert (usage.stored_bytes, usage.tasks, usage.checkpoints) == (0, (), ())
    assert usage.disk_bytes == usage.catalog_bytes == store.size()


def test_packs_are_counted_and_those_that_nobody_knows_are_told(store: Store, folder: Path, tmp_path: Path) -> None:
    for number in range(100):
        (folder / str(number)).write_text(f"{number}\n" * 900)
    store.task("t", workspace=folder).save({})
    objects = store._engine.blobs.objects
    assert objects is not None
    objects.put("packs/aa/left-over", [b"x" * 1000])
    usage = store.usage()
    files = [file for file in (tmp_path / "store" / "objects" / "packs").rglob("*") if file.is_file()]
    assert usage.packs == len(files) == 2
    assert usage.pack_bytes == sum(file.stat().st_size for file in files)
    assert usage.stray_bytes == 1000


def test_what_the_catalog_has_free_is_told(store: Store) -> None:
    dice = random.Random(1)
    store.task("t").save({"large": [dice.randbytes(20_000) for _ in range(20)]})
    before = store.usage().free_bytes
    store.delete_task("t")
    assert store.usage().free_bytes > before + 300_000


def test_a_store_in_memory_has_no_packs(folder: Path) -> None:
    with lastgood.open(":memory:") as store:
        for number in range(100):
            (folder / str(number)).write_text(f"{number}\n" * 900)
        store.task("t", workspace=folder).save({})
        usage = store.usage()
        assert (usage.packs, usage.pack_bytes, usage.stray_bytes) == (0, 0, 0)
        assert usage.stored_bytes > 0


# --- what is asked for --------------------------------------------------------------------------------------------


def test_one_task_one_branch_or_one_owner_can_be_asked_for(store: Store) -> None:
    task = store.task("t")
    first = task.save({"n": 1})
    side = task.fork(first, name="side")
    side.save({"n": 2})
    store.task("another").save({})
    store.task("theirs", owner="ben").save({})
    everything = store.usage()
    assert {one.id for one in everything.tasks} == {"t", "another", "theirs"}
    whole = store.usage("t")
    assert [one.id for one in whole.tasks] == ["t"]
    assert len(whole.checkpoints) == 3
    assert whole.stored_bytes == everything.stored_bytes
    branch = whole.checkpoints[2].branch_id
    assert {one.branch_id for one in store.usage(branch).checkpoints} == {branch}
    assert [one.id for one in store.usage(owner="ben").tasks] == ["theirs"]
    assert [one.owner for one in store.usage("theirs", owner="ben").checkpoints] == ["ben"]
    for wrong in ("theirs", "no such task"):
        with pytest.raises(NotFoundError, match="no task"):
            store.usage(wrong)


def test_the_loop_goes_on_meanwhile(tmp_path: Path) -> None:
    """B1: every operation also has a non-blocking form."""

    async def measured() -> Usage:
        async with aio.open(tmp_path / "store", user="ada") as store:
            await (await store.task("t")).save({"n": 1})
            return await store.usage("t")

    assert asyncio.run(measured()).tasks[0].checkpoints == 1


# --- damage -------------------------------------------------------------------------------------------------------


def _change(store: Store, sql: str, *bindings: Any) -> None:
    def work(connection: Any) -> None:
        connection.execute(sql, bindings)
        assert connection.raw.changes() == 1

    store._engine.catalog._write(work)  # type: ignore[attr-defined]


def test_damage_is_told_and_hides_nothing_else(store: Store, folder: Path) -> None:
    """A tree is gone, a part of a state is not what it was, a record is damaged: the rest is still measured."""
    lost = store.task("lost", workspace=folder).save({"n": 1})
    store.task("whole").save({"n": "x" * 5000})
    other = store.task("other").save({"list": [["y" * 20_000, n] for n in range(9)]})
    assert store.usage().unreadable == 0
    tree = (lost.record.files or ())[0].tree
    _change(store, "DELETE FROM blobs WHERE partition = 0 AND digest = ?", tree)
    assert store.usage().unreadable == 1
    assert store.usage().unreferenced_bytes > 0
    _change(store, "UPDATE checkpoints SET root = zeroblob(length(root)) WHERE id = ?", other.id)
    assert store.usage().unreadable == 2
    _change(store, "UPDATE checkpoints SET record = zeroblob(5) WHERE id = ?", lost.id)
    usage = store.usage()
    assert usage.unreadable == 2
    assert [one.created_at for one in usage.checkpoints if one.id == lost.id] == [None]
    sound = next(one for one in usage.tasks if one.id == "whole")
    assert [one.frees for one in usage.checkpoints if one.task_id == "whole"] == [sound.stored]


def test_one_damaged_tree_does_not_hide_its_neighbours(store: Store, folder: Path) -> None:
    for name in ("a", "b", "c"):
        (folder / name).mkdir()
        (folder / name / "file").write_text(f"{name}\n" * 500)
    saved = store.task("t", workspace=folder).save({})
    trees = {entry.name: entry for entry in store._engine.blobs.read_tree((saved.record.files or ())[0].tree)}
    before = store.usage()
    middle = trees[b"b"]
    assert isinstance(middle, Folder)
    _change(store, "UPDATE blobs SET data = zeroblob(length(data)) WHERE digest = ?", middle.tree)
    store._engine.blobs._small.clear()
    after = store.usage()
    hidden = store._engine.catalog.blobs(FILES, [digest(b"b\n" * 500)]).popitem()[1]
    assert (before.unreadable, after.unreadable) == (0, 1)
    assert after.unreferenced_bytes == before.stored_bytes - after.stored_bytes == len(hidden.data)


# --- others who write meanwhile -------------------------------------------------------------------------------------


def test_saves_meanwhile_are_no_damage(store: Store, folder: Path) -> None:
    """Pieces of a list become parts of others, trees and packs come: whoever measures finds what he has seen begun."""

    def work() -> None:
        task = store.task("t", workspace=folder)
        log = AppendList()
        for number in range(60):
            log.extend(f"{number} {line} " * 60 for line in range(9))
            (folder / "one").write_text(f"{number}")
            task.save({"log": log})

    store.task("another").save({})
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        while not working.done():
            assert store.usage().unreadable == 0
        working.result()
    assert store._engine.catalog.sliced()
    check_against_walks(store)


# --- cost ---------------------------------------------------------------------------------------------------------


def count_reads(store: Store) -> list[bytes]:
    """What is asked of the catalog from now on."""
    asked: list[bytes] = []
    blobs = store._engine.catalog.blobs

    def counted(partition: int, digests: Iterable[bytes]) -> dict[bytes, Blob]:
        wanted = list(digests)
        asked.extend(wanted)
        return blobs(partition, wanted)

    store._engine.catalog.blobs = counted  # type: ignore[method-assign]
    return asked


def test_every_tree_is_read_once_however_many_checkpoints_share_it(store: Store, folder: Path) -> None:
    for number in range(40):
        (folder / f"folder {number}").mkdir()
        (folder / f"folder {number}" / "file").write_text(f"{number}")
    task = store.task("t", workspace=folder)
    trees = set()
    for number in range(30):
        (folder / "folder 3" / "file").write_text(f"changed {number}")
        saved = task.save({})
        for root in saved.record.files or ():
            below = (entry.tree for _, entry in walk_files(store._engine.blobs, root) if isinstance(entry, Folder))
            trees |= {root.tree, *below}
    asked = count_reads(store)
    assert len(store.usage().checkpoints) == 30
    assert len(trees) == 41 + 2 * 30  # what is there from the start, and two for each change
    assert sorted(asked) == sorted(trees)


def test_parts_of_a_state_are_read_once_and_plain_ones_never(store: Store) -> None:
    task = store.task("t")
    messages: list[Any] = []
    for number in range(40):
        messages.append({"role": "user", "content": f"{number} " * 700})
        task.save({"messages": messages})
    asked = count_reads(store)
    store.usage()
    assert len(asked) == len(set(asked)) <= 3  # the nodes above some runs; runs and pieces are not even looked at


class Edges(list[tuple[int, ...]]):
    """Counts the edges that are gone along."""

    gone = 0

    def __getitem__(self, index: Any) -> Any:
        below = super().__getitem__(index)
        self.gone += len(below)
        return below


def _shared_tree(checkpoints: int, files: int) -> tuple[Graph, Edges, list[int]]:
    """Checkpoints that share one tree of many files, and have a changed one each; one byte everywhere."""
    graph = Graph()
    shared = graph.add(1, tuple(graph.add(1) for _ in range(files)))
    roots = [graph.add(1, (shared, graph.add(1))) for _ in range(checkpoints)]
    edges = Edges(graph.below)
    graph.below = edges
    return graph, edges, roots


@pytest.mark.parametrize("files", [10, 1000])
@pytest.mark.parametrize("checkpoints", [2, 300])
def test_the_shared_is_gone_along_as_often_for_two_as_for_many(checkpoints: int, files: int) -> None:
    graph, edges, roots = _shared_tree(checkpoints, files)
    assert sum(graph.added(roots).values()) == files + 1 + 2 * checkpoints
    assert edges.gone <= files + 2 * checkpoints
    edges.gone = 0
    assert graph.exclusive(roots) == dict.fromkeys(roots, 2)
    assert edges.gone <= 2 * files + 2 * checkpoints
