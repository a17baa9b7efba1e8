"""Who works with a store until its disk is full, reads from it then, and makes room again. Jobs of a troupe."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.acting import Actor, open_store, write_files
from tests.faults.ledger import Content, read_account, state_digest, tree_digest
from tests.faults.verifier import _examine
from tests.faults.world import World

from lastgood import CheckpointError

ROUNDS = 6


def fill(folder: str, disk: str) -> None:
    """All kinds of work, again and again: what does not fit is reported, and the next is tried."""
    actor = Actor(World(Path(folder), Path(disk)))
    for turn in range(ROUNDS):
        for work in (_save_state, _save_few_files, _save_many_files, _save_large_file, _restore, _collect):
            try:
                work(actor, turn)
            except CheckpointError as error:
                actor.ledger.report(actor.doing, error.code, f"{error}. {error.hint}")
                actor.close()
    actor.close()


def _save_state(actor: Actor, turn: int) -> None:
    task = actor.store.task("talk")
    for number in range(3):
        state = {"turn": [turn, number], "log": [f"entry {one} of {turn} " * 9 for one in range(40 * (turn + 1))]}
        actor.save(task, state, f"state {turn} {number}", files=False)


def _save_few_files(actor: Actor, turn: int) -> None:
    write_files(actor.world.work, ["a", "b", "deep/c"], seed=turn, size=400)
    actor.save(actor.task, {"few": turn}, f"few {turn}")


def _save_many_files(actor: Actor, turn: int) -> None:
    write_files(actor.world.work, [f"many/{number}" for number in range(80)], seed=turn, size=600)
    actor.save(actor.task, {"many": turn}, f"many {turn}")


def _save_large_file(actor: Actor, turn: int) -> None:
    write_files(actor.world.work, ["large"], seed=turn, size=600_000 if turn % 2 else 300_000)
    actor.save(actor.task, {"large": turn}, f"large {turn}")


def _restore(actor: Actor, turn: int) -> None:
    """What was there, and what is there afterwards, is told in the ledger: it may be saved by the restore."""
    task = actor.task
    chosen = next((one for one in _listed(actor) if one.message.startswith("few")), None)
    if chosen is not None and task.head is not None:
        here = tree_digest(actor.world.work)
        actor.ledger.know(Content(state_digest(task.state), here))
        actor.ledger.know(Content(state_digest(chosen.state), here))
        actor.do(f"restore {turn}", lambda: task.restore(chosen.id))
        actor.ledger.know(Content(state_digest(chosen.state), tree_digest(actor.world.work)))


def _collect(actor: Actor, turn: int) -> None:
    _delete_oldest(actor)
    actor.do(f"collect {turn}", lambda: actor.store.collect(grace=0))


def _delete_oldest(actor: Actor) -> None:
    """All but the newest three checkpoints of the files, and heads."""
    branches = [branch for info in actor.store.tasks() for branch in actor.store.branches(info.id)]
    heads = {branch.head.id for branch in branches if branch.head}
    for one in _listed(actor)[3:]:
        if one.id not in heads:
            actor.ledger.remove([one.id])
            actor.do("delete", partial(actor.store.delete_checkpoint, one.id))


def _listed(actor: Actor) -> list[Any]:
    if all(info.id != "work" for info in actor.store.tasks()):
        return []
    return actor.store.list_checkpoints("work", 1000)


# --- on the full disk -----------------------------------------------------------------------------------------------


def read(folder: str, disk: str) -> list[str]:
    """What was acknowledged and cannot be read, or is not whole."""
    world = World(Path(folder), Path(disk))
    account = read_account(world.ledger)
    if not account.acknowledged:
        return []
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        try:
            with open_store(world) as store:
                return list(_examine(store, account, Path(scratch) / "found", collected=False))
        except CheckpointError as error:
            return [f"{error.code}: {error} {error.hint} ({error.__cause__!r})"]


def reclaim(folder: str, disk: str) -> list[str]:
    """Delete and collect, then save: what could not be done, as the codes of errors."""
    actor = Actor(World(Path(folder), Path(disk)))
    return [
        *_try(actor, lambda: _collect(actor, -1)),
        *_try(actor, lambda: _save_state(actor, 0)),
        *_try(actor, actor.close),
    ]


def _try(actor: Actor, work: Callable[[], None]) -> Iterator[str]:
    try:
        work()
    except CheckpointError as error:
        yield f"{error.code}: {actor.doing}: {error} {error.hint} ({error.__cause__!r})"
