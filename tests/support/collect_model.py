"""A store with several writers, what each of its checkpoints must hold, and all that can happen to it.

What a checkpoint holds is taken down when it is made: what the writer gave for a save, what was chosen for a restore.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import lastgood
from lastgood.catalog.values import MAX_PAGE, StoredCheckpoint
from lastgood.errors import ConflictError, InvalidError, NotFoundError
from lastgood.task import Task

OWNERS = ("ada", "ben")
TASKS = (("ada", "one"), ("ada", "one"), ("ada", "one"), ("ada", "two"), ("ben", "one"))
"""Most of what happens is about one task, so that it has a history."""
PATHS = ("a", "b", "c", "deep/d", "deep/e", "deep/er/f", "deep/er/g", "other/h")
CONTENTS = 30
LARGE = CONTENTS - 1
"""Its content is cut into chunks."""

Operation = tuple[str, int, int]
"""What is done, and two numbers that say to what."""

Key = tuple[str, str]
"""Owner and id of a checkpoint."""


class Holding(NamedTuple):
    """What a checkpoint holds. `files` None: it has none."""

    state: Any
    artifacts: Any
    files: dict[str, bytes] | None


class World:
    """One store, with several handles on its tasks: some with the files of the task, some without."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stores = {owner: self._open(owner) for owner in OWNERS}
        self.handles: dict[int, Task] = {}
        self.ledger: dict[Key, Holding] = {}
        self.counter = 0
        for owner, task in set(TASKS):
            self.workspace(owner, task).mkdir(parents=True)

    def close(self) -> None:
        for store in self.stores.values():
            store.close()

    def workspace(self, owner: str, task: str) -> Path:
        return self.folder / "work" / owner / task

    # --- what can happen -----------------------------------------------------------------------------------------

    def do(self, operation: Operation) -> None:
        """Refusals are part of life; damage is not."""
        name, one, other = operation
        with suppress(ConflictError, NotFoundError, InvalidError):
            getattr(self, name)(one, other)
        self.take_down()

    def save(self, one: int, other: int) -> None:
        owner, task_id, handle = self._handle(one)
        self.counter += 1
        state = handle.state if handle.head is not None else {"log": []}
        if not isinstance(state, dict) or other % 7 == 0:
            state = {"log": []}
        state["log"] += [f"line {other % 5} {number} of a long list " * 16 for number in range(other % 40)]
        state["many"] = {f"key {number}": "v" * (other % 50) for number in range(other % 60)}
        state["raw"] = content(other)[:5000]
        state["n"] = self.counter
        artifacts = [{"id": number, "content": f"artifact {other % 3} " * 200} for number in range(other % 4)] or None
        files = self._write_some(owner, task_id, other) if one % 2 else None
        made = handle.save(state, artifacts=artifacts)
        kept = self.read(owner, made.id)
        assert kept.state == state
        assert files is None or kept.files == files
        self.ledger[owner, made.id] = kept

    def restore(self, one: int, other: int) -> None:
        owner, _, handle = self._handle(one)
        chosen = self._chosen(owner, handle, other)
        result = handle.restore(chosen, "files" if other % 3 == 0 and one % 2 else "both")
        expected, kept = self.ledger[owner, chosen], self.read(owner, result.checkpoint.id)
        if one % 2 and expected.files is not None:
            assert {path: kept.files[path] for path in expected.files} == expected.files  # type: ignore[index]
        if not (other % 3 == 0 and one % 2):
            assert kept.state == expected.state

    def fork(self, one: int, other: int) -> None:
        owner, _, handle = self._handle(one)
        chosen = self._chosen(owner, handle, other)
        made = handle.fork(chosen).head
        assert made is not None
        assert self.read(owner, made.id) == self.ledger[owner, chosen]

    def undo(self, one: int, other: int) -> None:
        _, _, handle = self._handle(one)
        handle.undo() if other % 2 else handle.redo()

    def switch(self, one: int, other: int) -> None:
        _, _, handle = self._handle(one)
        branches = [branch.id for branch in handle.branches() if not branch.deleted]
        if branches:
            handle.switch(branches[other % len(branches)])

    def delete(self, one: int, other: int) -> None:
        owner, _, handle = self._handle(one)
        self.stores[owner].delete_checkpoint(self._chosen(owner, handle, other))

    def undelete(self, one: int, other: int) -> None:
        owner, _, handle = self._handle(one)
        self.stores[owner].undelete_checkpoint(self._chosen(owner, handle, other))

    def purge(self, one: int, other: int) -> None:
        owner, _, handle = self._handle(one)
        chosen = self._chosen(owner, handle, other)
        self.stores[owner].purge_checkpoint(chosen)
        del self.ledger[owner, chosen]

    def tag(self, one: int, other: int) -> None:
        owner, _, handle = self._handle(one)
        self.stores[owner].tag(self._chosen(owner, handle, other), f"tag {other % 3}", move=True)

    def delete_branch(self, one: int, other: int) -> None:
        owner, _, handle = self._handle(one)
        branches = [branch.id for branch in handle.branches()]
        if branches:
            self.stores[owner].delete_branch(branches[other % len(branches)])

    def delete_task(self, one: int, other: int) -> None:
        owner, task_id, _ = self._handle(one)
        if other % 9 == 0:
            mine = {(held.owner, held.id) for held in self.held() if (held.owner, held.task_id) == (owner, task_id)}
            self.stores[owner].delete_task(task_id)
            for key in mine:
                del self.ledger[key]

    def reopen(self, one: int, other: int) -> None:
        owner = OWNERS[one % 2]
        self.stores[owner].close()
        self.stores[owner] = self._open(owner)
        self.handles.clear()

    def collect(self, one: int, other: int, progress: Callable[[str, int, int], None] | None = None) -> Any:
        """By one of the owners, of everybody's. Only who is deleted may be gone afterwards."""
        grace = 3600 if other % 4 == 0 else 0
        before = {(held.owner, held.id) for held in self.held() if held.deleted}
        found = self.stores[OWNERS[one % 2]].collect(grace=grace, progress=progress)
        held = {(held.owner, held.id): held for held in self.held()}
        for key in self.ledger.keys() - held.keys():
            assert key in before
            del self.ledger[key]
        return found

    # --- what must hold ------------------------------------------------------------------------------------------

    def held(self) -> list[StoredCheckpoint]:
        """Every checkpoint that is not purged, whoever's it is."""
        catalog = self.stores[OWNERS[0]]._engine.catalog
        page = [held.stored for held in catalog.held()]
        assert len(page) < MAX_PAGE
        return page

    def take_down(self) -> None:
        """What others than saves have made: what was kept before a restore, and what it came to."""
        for held in self.held():
            if (held.owner, held.id) not in self.ledger:
                self.ledger[held.owner, held.id] = self.read(held.owner, held.id)

    def require_whole(self) -> None:
        """Every checkpoint holds what it held when it was made, read by someone who remembers nothing."""
        held = {(held.owner, held.id) for held in self.held()}
        assert held == self.ledger.keys()
        with self._open(OWNERS[0]) as fresh:
            for (owner, checkpoint_id), holding in self.ledger.items():
                assert read_holding(fresh, owner, checkpoint_id) == holding
            report = fresh.check(read_data=True)
            assert report.findings == ()

    def require_tidy(self) -> None:
        """Nothing is left that nobody needs."""
        usage = self.stores[OWNERS[0]].usage()
        assert (usage.unreferenced_bytes, usage.stray_bytes, usage.unreadable) == (0, 0, 0)
        assert self.stores[OWNERS[0]]._engine.catalog.announced() == []

    def read(self, owner: str, checkpoint_id: str) -> Holding:
        return read_holding(self.stores[owner], owner, checkpoint_id)

    # --- means ---------------------------------------------------------------------------------------------------

    def _open(self, owner: str) -> lastgood.Store:
        return lastgood.open(self.folder / "store", user=owner, collect="never", cache_checkpoints=0)

    def _handle(self, one: int) -> tuple[str, str, Task]:
        """Odd ones have the files of their task."""
        owner, task_id = TASKS[one // 2 % len(TASKS)]
        which = one % (2 * len(TASKS))
        if which not in self.handles or one // 10 % 4:
            folder = self.workspace(owner, task_id) if one % 2 else None
            self.handles[which] = self.stores[owner].task(task_id, workspace=folder)
        return owner, task_id, self.handles[which]

    def _chosen(self, owner: str, handle: Task, other: int) -> str:
        mine = [held.id for held in self.held() if (held.owner, held.task_id) == (owner, handle.task_id)]
        if not mine:
            raise NotFoundError("there is none")
        return mine[other % len(mine)]

    def _write_some(self, owner: str, task_id: str, other: int) -> dict[str, bytes]:
        """Change some of a task's files; all of them afterwards."""
        folder = self.workspace(owner, task_id)
        for index, path in enumerate(PATHS):
            if (other >> index) % 2 == 0:
                place = folder / path
                place.parent.mkdir(parents=True, exist_ok=True)
                if other % 5 == 4:
                    place.unlink(missing_ok=True)
                else:
                    place.write_bytes(content(other + index * (other % 4)))
        return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def content(number: int) -> bytes:
    """One of a few contents, which come and go."""
    dice = random.Random(number % CONTENTS)
    if number % CONTENTS == LARGE:
        return dice.randbytes(1_200_000)
    return dice.randbytes(dice.choice([1, 80, 900, 4000]))


def read_holding(store: lastgood.Store, owner: str, checkpoint_id: str) -> Holding:
    checkpoint = store.find_checkpoint(checkpoint_id, owner=owner)
    files = None
    if checkpoint.record.files is not None:
        files = {
            path: b"".join(store.stream_file(checkpoint_id, path, owner=owner))
            for path in _paths(store, owner, checkpoint_id)
        }
    return Holding(checkpoint.state, checkpoint.artifacts, files)


def _paths(store: lastgood.Store, owner: str, checkpoint_id: str, folder: str = "") -> list[str]:
    found = []
    for info in store.list_files(checkpoint_id, folder, owner=owner):
        found += _paths(store, owner, checkpoint_id, info.path) if info.kind == "folder" else [info.path]
    return found
