"""What a member of a crowd does: a writer saves in all the ways there are, a collector takes away what nobody needs.

A writer may be killed anywhere. What it does with its Nth save is told by the seed alone, so the next one with its name
repeats what was in flight, with the same key, and goes on.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from tests.faults.crowd import CrowdSandbox
from tests.faults.ledger import Content, Ledger, read_account, state_digest, tree_digest

import lastgood
from lastgood import CheckpointError, ConflictError, NotFoundError
from lastgood.engine import gather
from lastgood.upkeep import collect, repack

T = TypeVar("T")
USER = "crowd"
SHARED, SHARED_FILES = "shared", "shared files"
FILES = "abcdefgh"
TRIES = 3
REMOVED = 0.6
UNHEARD = 0.1
"""So many answers are lost on their way: whoever asked asks again, with the same key."""
SPARED = 4
"""So many of its newest a writer keeps, and goes back to."""


class _Saved(NamedTuple):
    """`line`: the task, or the side branch that it is alone on."""

    id: str
    task: str
    line: str
    content: Content


def write_all(sandbox: CrowdSandbox, name: str, seed: int, saves: int, mix: Mapping[str, int]) -> None:
    """The saves of a writer that are not acknowledged yet. `mix`: how often it saves in which way."""
    take_small_steps()
    with open_store(sandbox) as store:
        Writer(sandbox, name, seed, store).work(saves, mix)


def collect_always(sandbox: CrowdSandbox) -> None:
    """Until it is ended; it ends by itself when whoever started it is gone."""
    take_small_steps()
    began_by = os.getppid()
    while os.getppid() == began_by:
        with open_store(sandbox) as store:
            for _ in range(20):
                store.collect(grace=0)


def open_store(sandbox: CrowdSandbox) -> lastgood.Store:
    return lastgood.open(sandbox.store, user=USER, collect="never", on_failure="raise")


def take_small_steps() -> None:
    """So that little content makes packs, and collecting takes many transactions and rewrites packs."""
    small = {gather: {"INLINE_BLOBS": 3, "PACK_BYTES": 60_000}, collect: {"AT_ONCE": 30}}
    small[repack] = {"AT_ONCE": 5, "PACK_BYTES": 60_000}
    for module, constants in small.items():
        for name, value in constants.items():
            setattr(module, name, value)


class Writer:
    def __init__(self, sandbox: CrowdSandbox, name: str, seed: int, store: lastgood.Store) -> None:
        self._name = name
        self._seed = seed
        self._store = store
        self._folder = sandbox.work(name)
        account = read_account(sandbox.ledger(name))
        self._ledger = Ledger(sandbox.ledger(name))
        acknowledged = account.acknowledged.values()
        saved = [_Saved(told["id"], told["task"], told["line"], told["content"]) for told in acknowledged]
        self._number = len(saved)
        self._kept = [one for one in saved if one.id not in account.removing]
        self._removing = account.removing - account.removed
        self._tasks: dict[tuple[str, bool], lastgood.Task] = {}

    def work(self, saves: int, mix: Mapping[str, int]) -> None:
        for interrupted in self._removing:
            self._remove(interrupted)
        while self._number < saves:
            dice = self._dice("what to do")
            (way,) = dice.choices(list(mix), list(mix.values()))
            self._kept.append(self._insist(way, getattr(self, f"_{way}")))
            self._number += 1
            if dice.random() < REMOVED and (old := self._oldest()) is not None:
                self._kept.remove(old)
                self._ledger.remove([old.id])
                self._remove(old.id)

    def _oldest(self) -> _Saved | None:
        """That cannot be the head of an active branch."""
        later = {saved.line for saved in self._kept[-SPARED:]}
        return next((one for one in self._kept[:-SPARED] if one.line != one.task or one.line in later), None)

    def _insist(self, doing: str, do: Callable[[], T]) -> T:
        """Whatever lastgood refuses is told, and tried again."""
        for left in reversed(range(TRIES)):
            try:
                return do()
            except NotFoundError:
                raise
            except CheckpointError as error:
                told = repr(error) if error.__cause__ is None else f"{error!r}, because of {error.__cause__!r}"
                self._ledger.report(f"{doing} {self._number}", error.code, told)
                if not left:
                    raise
        raise AssertionError

    # --- ways to save: each gives one checkpoint, also if it was stored before ------------------------------------

    def _save(self) -> _Saved:
        state = self._state()
        return self._make(self._task(self._name), state, lambda task, **how: task.save(state, **how))

    def _save_files(self) -> _Saved:
        state = self._state()
        self._write_files()
        task = self._task(f"{self._name} files", files=True)
        return self._make(task, state, lambda task, **how: task.save(state, **how), files=True)

    def _append(self) -> _Saved:
        state = self._state()
        return self._make(self._task(SHARED), state, lambda task, **how: task.append(state, **how))

    def _append_files(self) -> _Saved:
        state = self._state()
        self._write_files()
        task = self._task(SHARED_FILES, files=True)
        return self._make(task, state, lambda task, **how: task.append(state, **how), files=True)

    def _compete(self) -> _Saved:
        """Whoever comes too late looks, and tries again on top of that."""
        state = self._state()

        def save(task: lastgood.Task, **how: Any) -> lastgood.Checkpoint:
            while True:
                try:
                    return task.save(state, **how)
                except ConflictError:
                    task.refresh()

        return self._make(self._task(SHARED), state, save)

    def _fork(self) -> _Saved:
        """A branch of one of its own, and a save there."""
        mine = [saved for saved in self._kept[-SPARED:] if saved.content.files is None]
        if not mine:
            return self._append()
        origin, state = self._dice("origin").choice(mine), self._state()
        task, name = self._task(origin.task), self._message()
        try:
            side = task.fork(origin.id, name=name)
        except ConflictError:
            side = self._store.task(next(branch.id for branch in task.branches() if branch.name == name))
        return self._make(side, state, lambda task, **how: task.save(state, **how))

    def _restore(self) -> _Saved:
        """Back to one of its own, with files."""
        task_id = f"{self._name} files"
        mine = [saved for saved in self._kept[-SPARED:] if saved.task == task_id]
        if not mine:
            return self._save_files()
        chosen, message = self._dice("origin").choice(mine), self._message()
        task = self._task(task_id, files=True)
        self._ledger.intend(message, chosen.content)
        found = self._store.list_checkpoints(task_id, 10)  # a restore has no key: was it done before?
        made = next((one for one in found if one.message == message), None)
        return self._enter(made or task.restore(chosen.id, message=message).checkpoint, task_id, chosen.content)

    def _make(
        self,
        task: lastgood.Task,
        state: Any,
        save: Callable[..., lastgood.Checkpoint],
        *,
        files: bool = False,
    ) -> _Saved:
        message = self._message()
        content = Content(state_digest(state), tree_digest(self._folder) if files else None)
        self._ledger.intend(message, content)
        made = save(task, message=message, key=message)
        if self._dice("answer").random() < UNHEARD:
            made = save(task, message=message, key=message)
        return self._enter(made, task.id, content)

    def _enter(self, made: lastgood.Checkpoint, line: str, content: Content) -> _Saved:
        self._ledger.acknowledge(made.id, made.sequence or 0, content, task=made.task_id, line=line)
        return _Saved(made.id, made.task_id, line, content)

    def _remove(self, id: str) -> None:
        remove = self._store.delete_checkpoint if self._dice(id).random() < 0.5 else self._store.purge_checkpoint
        try:
            self._insist("delete", lambda: remove(id))
        except NotFoundError:
            if id not in self._removing:  # else the one before had come so far
                raise
        self._ledger.removed([id])

    # --- what is saved ----------------------------------------------------------------------------------------------

    def _task(self, task_id: str, *, files: bool = False) -> lastgood.Task:
        if (task_id, files) not in self._tasks:
            folder = self._folder if files else None
            self._tasks[task_id, files] = self._store.task(task_id, workspace=folder)
        return self._tasks[task_id, files]

    def _message(self) -> str:
        return f"{self._name} save {self._number}"

    def _state(self) -> dict[str, Any]:
        """A log that grows, is cut, and has lines that others have, too."""
        first = self._number // 50 * 50
        lines = [f"line {one} of {one % 3 and self._name} " * 6 for one in range(first, self._number + 1)]
        return {"by": self._name, "number": self._number, "log": lines, "raw": bytes([self._number % 7]) * 500}

    def _write_files(self) -> None:
        """Some are everybody's, some change rarely, and all come back after a while."""
        for index, path in enumerate(FILES):
            whose = "everybody" if index % 2 else self._name
            version = self._number // (1 + index % 3) % 4
            content = random.Random(f"{whose} {path} {version}").randbytes((10, 700, 3000)[index % 3])
            (self._folder / path).write_bytes(content)

    def _dice(self, about: str) -> random.Random:
        return random.Random(f"{self._seed} {self._name} {self._number} {about}")
