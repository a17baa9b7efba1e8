"""Who works with a store while it fails: every call is announced in the ledger, every answer entered there."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.faults import shim
from tests.faults.ledger import Content, Ledger, read_account, state_digest, tree_digest
from tests.faults.world import World

import lastgood
from lastgood import CheckpointError

USER = "actor"


class Actor:
    """A program that uses one store: it works on the task `work`, whose files are the world's."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledger = Ledger(world.ledger)
        self.doing = "open"
        self._store: lastgood.Store | None = None

    @property
    def store(self) -> lastgood.Store:
        if self._store is None:
            self._store = open_store(self.world)
        return self._store

    @property
    def task(self) -> lastgood.Task:
        return self.store.task("work", workspace=self.world.work)

    def close(self) -> None:
        self.doing = "close"
        if self._store is not None:
            self._store.close()
            self._store = None

    # --- announced, done, entered -----------------------------------------------------------------------------------

    def save(self, task: lastgood.Task, state: Any, message: str, *, files: bool = True, **more: Any) -> str:
        """Save a state, and what lies in the workspace if the handle has one; the id."""
        content = Content(state_digest(state), tree_digest(self.world.work) if files else None)
        return self.make(message, content, lambda: task.save(state, message=message, **more))

    def make(self, message: str, content: Content, work: Callable[[], lastgood.Checkpoint]) -> str:
        """Whatever gives a checkpoint with this content."""
        self.doing = message
        self.ledger.intend(message, content)
        made = work()
        self.ledger.acknowledge(made.id, made.sequence or 0, content)
        return made.id

    def move(self, name: str, work: Callable[[], Any], *, present: Any, to: str, state: Any = None) -> None:
        """Whatever changes the files on disk to the tree `to`; until it ends they may be those that are there."""
        here = tree_digest(self.world.work)
        self.doing = name
        self.ledger.know(Content(state_digest(present), here))
        self.ledger.know(Content(state_digest(present if state is None else state), to))
        self.ledger.allow([here, to])
        work()
        self.ledger.allow([to])

    def remove(self, name: str, ids: Sequence[str], work: Callable[[], Any]) -> None:
        self.doing = name
        self.ledger.remove(ids)
        work()
        self.ledger.removed(ids)

    def do(self, name: str, work: Callable[[], Any]) -> None:
        """Something that makes no checkpoint and takes none away."""
        self.doing = name
        work()

    def kept(self, message: str) -> str:
        """The id of an acknowledged checkpoint, by the message it was announced with."""
        account = read_account(self.world.ledger)
        wanted = account.intended[message]
        return next(one for one, line in account.acknowledged.items() if line["content"] == wanted)

    def tree(self, message: str) -> str:
        """The digest of the files that were announced with a message."""
        files = read_account(self.world.ledger).intended[message].files
        assert files is not None
        return files


def open_store(world: World, **options: Any) -> lastgood.Store:
    return lastgood.open(world.store, user=USER, base_path=world.work, collect="never", **options)


def write_files(folder: Path, names: Iterable[str], seed: int, size: int = 3000) -> None:
    """Files of random bytes; the same for the same seed."""
    dice = random.Random(seed)
    with shim.pause():
        for name in names:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(dice.randbytes(size))


# --- what a troupe lets an actor do ---------------------------------------------------------------------------------


def prepare(folder: str, disk: str, scenario: str) -> None:
    from tests.faults.scenarios import SCENARIOS

    actor = Actor(World(Path(folder), Path(disk)))
    SCENARIOS[scenario].prepare(actor)
    actor.close()


def act(folder: str, disk: str, scenario: str, fault: list[Any], trace: bool, with_data: bool, device: str) -> None:
    """Play a scenario with a fault in it."""
    from tests.faults.scenarios import SCENARIOS

    world = World(Path(folder), Path(disk))
    noted = str(world.trace) if trace else ""
    arming = shim.Arming(str(world.disk), str(world.counter), shim.Fault(*fault), noted, with_data, device)
    _perform(SCENARIOS[scenario].act, Actor(world), arming)


def recover(folder: str, disk: str, fault: list[Any]) -> None:
    """What a program does that is started again after a crash, with another fault in it."""
    world = World(Path(folder), Path(disk))
    _perform(_start_again, Actor(world), shim.Arming(str(world.disk), str(world.counter), shim.Fault(*fault)))


def _start_again(actor: Actor) -> None:
    task = actor.task
    if task.head is not None:
        actor.do("look at the files", task.diff)
    actor.do("collect", lambda: actor.store.collect(grace=0))
    actor.save(actor.store.task("again"), {"started": "again"}, "started again", files=False)


def _perform(work: Callable[[Actor], None], actor: Actor, arming: shim.Arming) -> None:
    """What lastgood says is wrong is entered; anything else is a bug."""
    shim.arm(arming)
    try:
        try:
            work(actor)
            actor.close()
        except CheckpointError as error:
            actor.ledger.report(actor.doing, error.code, str(error))
            if not arming.fault.forever:
                _go_on(actor)
    finally:
        shim.disarm()


def _go_on(actor: Actor) -> None:
    """After an error that is over: the same program saves again, or is told that it must open the store anew."""
    try:
        actor.save(actor.store.task("after"), {"after": "the error"}, "after the error", files=False)
    except lastgood.UnavailableError as error:
        actor.ledger.report(actor.doing, error.code, str(error))
    actor.close()
