"""What others do between two steps of a collection, at each of them: nothing that was acknowledged is lost (B6).

Deterministic: a run tells of its progress, and who is told acts before the run goes on.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.collect_model import Holding, read_holding

import lastgood
from lastgood.engine import gather
from lastgood.upkeep import collect, repack


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "INLINE_BLOBS", 3)
    monkeypatch.setattr(repack, "AT_ONCE", 3)
    monkeypatch.setattr(collect, "AT_ONCE", 4)


class Scene:
    """A store with garbage of every kind: what `old` held is still on disk, and in `states`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.store = open_store(folder)
        self.contents = {f"file {number}": f"content {number} ".encode() * (9 + 40 * number) for number in range(12)}
        lines = [f"line {number} of a log " * 20 for number in range(260)]
        self.states: list[Any] = [{"log": lines[:90]}, {"log": lines[:170]}, {"log": lines}]
        task = self.task("work")
        self.write(dict.fromkeys(self.contents, b"other"))
        self.first = task.save({"n": 0})
        self.kept: dict[str, Holding] = {}
        old = []
        for number, state in enumerate(self.states):
            self.write({name: self.contents[name] for name in list(self.contents)[: 4 * (number + 1)]})
            old.append(task.save(state))
        self.write(dict.fromkeys(list(self.contents)[2:], b"new"))
        self.last = task.save({"n": 1})
        self.write(self.contents)
        self.deleted = old.pop()
        for checkpoint in old:
            self.store.purge_checkpoint(checkpoint.id)
        self.store.delete_checkpoint(self.deleted.id)
        for checkpoint in (self.first, self.last):
            self.keep(checkpoint)

    def task(self, task_id: str) -> Any:
        self.work.mkdir(exist_ok=True)
        return self.store.task(task_id, workspace=self.work)

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def write(self, contents: dict[str, bytes]) -> None:
        for name, content in contents.items():
            (self.work / name).write_bytes(content)

    def keep(self, checkpoint: lastgood.Checkpoint) -> None:
        """It was acknowledged, and holds what it should."""
        self.kept[checkpoint.id] = read_holding(self.store, "ada", checkpoint.id)

    def require_kept(self) -> None:
        with open_store(self.folder) as fresh:
            for checkpoint_id, holding in self.kept.items():
                assert read_holding(fresh, "ada", checkpoint_id) == holding


@pytest.fixture
def template(tmp_path: Path, small_steps: None) -> Scene:
    scene = Scene(tmp_path / "template")
    scene.store.close()
    return scene


@contextmanager
def staged(template: Scene) -> Iterator[Scene]:
    """A scene of its own, as it was made once."""
    scene = copy.copy(template)
    scene.folder, scene.kept = template.folder.with_name("scene"), dict(template.kept)
    shutil.copytree(template.folder, scene.folder)
    scene.store = open_store(scene.folder)
    try:
        yield scene
    finally:
        scene.store.close()
        shutil.rmtree(scene.folder)


def open_store(folder: Path) -> lastgood.Store:
    return lastgood.open(folder / "store", user="ada", collect="never", cache_checkpoints=0)


def save_old_content(scene: Scene) -> None:
    """In another task: its files are the store's, and it relies on them."""
    saved = scene.task("another").save({"n": 2})
    scene.keep(saved)
    assert scene.kept[saved.id].files == scene.contents


def save_old_states(scene: Scene) -> None:
    """In the same task: parts of its state are there, and parts of parts."""
    task = scene.store.task("work")
    for state in scene.states:
        saved = task.save(state)
        scene.keep(saved)
        assert scene.kept[saved.id].state == state


def save_and_grow(scene: Scene) -> None:
    """What was just brought becomes a part of what comes next."""
    task = scene.store.task("work")
    for length in (60, 90, 120, 170, 200):
        scene.keep(task.save({"log": scene.states[-1]["log"][:length]}))


def save_and_purge(scene: Scene) -> None:
    """Who relies on old content is gone before the marks are made again; who continues it is not."""
    task = scene.task("work")
    made = [task.save(state) for state in scene.states]
    scene.keep(task.save({"log": scene.states[0]["log"][:50]}))
    for checkpoint in made:
        scene.store.purge_checkpoint(checkpoint.id)


def restore_and_go_on(scene: Scene) -> None:
    task = scene.task("work")
    scene.keep(task.restore(scene.first.id).checkpoint)
    scene.write(scene.contents)
    scene.keep(task.save(scene.states[0]))
    scene.keep(task.undo())


def undelete(scene: Scene) -> None:
    """Whoever is told that it is back must find it whole."""
    try:
        scene.store.undelete_checkpoint(scene.deleted.id)
    except lastgood.NotFoundError:
        return
    scene.keep(scene.deleted)
    assert scene.kept[scene.deleted.id].state == scene.states[-1]


def fork_and_purge(scene: Scene) -> None:
    """What a branch begins from is purged; the branch is whole."""
    made = scene.store.task("work").fork(scene.first.id).head
    assert made is not None
    scene.keep(made)
    scene.store.purge_checkpoint(scene.first.id)
    del scene.kept[scene.first.id]


def delete_the_task(scene: Scene) -> None:
    scene.task("another").save(scene.states[1])
    scene.store.delete_task("work")
    scene.kept.clear()
    scene.keep(scene.task("another").save(scene.states[0]))


ACTS = [
    save_old_content,
    save_old_states,
    save_and_grow,
    save_and_purge,
    restore_and_go_on,
    undelete,
    fork_and_purge,
    delete_the_task,
]


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("grace", [0, 3600])
def test_what_is_done_between_two_steps_is_not_lost(act: Callable[[Scene], None], grace: int, template: Scene) -> None:
    """At the first step, at the second, and so on, until a run has no more of them."""
    phases, at, is_over = set[str](), 0, False
    while not is_over:
        at += 1
        with staged(template) as scene:
            told = collect_and_act(scene, grace, at, act)
            scene.require_kept()
            scene.store.collect(grace=0)
            scene.require_kept()
            assert scene.store.check(read_data=True).findings == ()
            assert scene.store.usage().unreferenced_bytes == 0
        phases.update(told)
        is_over = len(told) < at
    assert phases >= ({"mark", "condemn", "purge", "remove", "repack"} if not grace else {"mark", "condemn"})


def collect_and_act(scene: Scene, grace: int, at: int, act: Callable[[Scene], None]) -> list[str]:
    """Act at a step of the run; all steps that it had."""
    told: list[str] = []

    def tell(phase: str, done: int, of: int) -> None:
        told.append(phase)
        if len(told) == at:
            act(scene)

    scene.store.collect(grace=grace, progress=tell)
    return told


def test_a_pack_that_moves_while_it_is_read_is_found_where_it_is(
    monkeypatch: pytest.MonkeyPatch, template: Scene
) -> None:
    """Who looked up where content lies, and finds the pack gone, looks again."""
    with staged(template) as scene:
        objects = scene.store._engine.objects
        assert objects is not None
        get, ran = objects.get, list[lastgood.types.Collected]()

        def collect_first(*about: Any) -> bytes:
            if not ran:
                with lastgood.open(scene.folder / "store", collect="never") as other:
                    ran.append(other.collect(grace=0))
            return get(*about)

        monkeypatch.setattr(objects, "get", collect_first)
        assert read_holding(scene.store, "ada", scene.last.id) == scene.kept[scene.last.id]
        assert ran[0].packs_rewritten > 0
