"""Who works with a store while it fails: every call is announced in the ledger, every answer entered there."""

from __future__ import annotations

import fcntl
import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.faults import shim
from tests.faults.facts import ask
from tests.faults.ledger import Content, Ledger, digest_lines, read_account, state_digest, tree_lines
from tests.faults.world import World

import lastgood
from lastgood import CheckpointError, UnavailableError
from lastgood.catalog.sqlite import database
from lastgood.catalog.sqlite.migration import MAJOR, Migration, migrations

USER = "actor"
ROUNDS = 8
"""Of a second process: afterwards it waits for the end of the play."""
KNOWN = migrations()
LEFT_OUT = ".left"
"""How names of files end that are never captured, where a workspace says so."""


class Actor:
    """A program that uses one store: it works on the task `work`, or another that has files of its own."""

    def __init__(self, world: World, name: str = "work") -> None:
        self.world = world
        self.name = name
        self.work = world.disk / name
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
        return self.store.task(self.name, workspace=self.work)

    def close(self) -> None:
        self.doing = "close"
        if self._store is not None:
            self._store.close()
            self._store = None

    # --- announced, done, entered -----------------------------------------------------------------------------------

    def save(self, task: lastgood.Task, state: Any, message: str, *, files: bool = True, **more: Any) -> str:
        """Save a state, and what lies in the workspace if the handle has one; the id."""
        content = Content(state_digest(state), self.look() if files else None)
        head_of = task.id if task.id == task.task_id else None
        return self.make(message, content, lambda: task.save(state, message=message, **more), head_of=head_of)

    def make(
        self,
        message: str,
        content: Content,
        work: Callable[[], lastgood.Checkpoint],
        *,
        head_of: str | None = None,
    ) -> str:
        """Whatever gives a checkpoint with this content. `head_of`: the task that goes on from it."""
        made: list[lastgood.Checkpoint] = []
        facts = {} if head_of is None else {f"state {head_of}": [ask(self.store, f"state {head_of}"), content.state]}
        self.ledger.intend(message, content)
        self.change(message, lambda: made.append(work()), facts)
        self.ledger.acknowledge(made[0].id, made[0].sequence or 0, content, verified=made[0].verified)
        return made[0].id

    def move(self, name: str, work: Callable[[], Any], *, to: Sequence[str], present: Any, state: Any = None) -> None:
        """Whatever makes the captured files on disk those that `to` tells of, and with `state` that what the task goes
        on from; until it ends both may be as they are. `present`: the state that the program has now."""
        sync_files(self.work)
        there = tree_lines(self.work)
        then = sorted({*to, *left_out(there)})
        after = state_digest(present if state is None else state)
        self.ledger.know(Content(state_digest(present), self.look()))
        self.ledger.know(Content(after, self.ledger.tell(captured(then))))
        allowed = [self.ledger.tell(there), self.ledger.tell(then)]
        self.ledger.allow(allowed)
        before, result = ask(self.store, "state work"), []
        facts = {} if state is None else {"state work": [before, state_digest(present), after]}
        self.change(name, lambda: result.append(work()), facts)
        self._require_all(result[0], after, allowed)
        self.ledger.allow(allowed[-1:])

    def _require_all(self, result: Any, state: str, allowed: list[str]) -> None:
        """What could not be put back was said: it is an error like any other, and each file is as before or after."""
        told = [*getattr(result, "failed", ()), *getattr(result, "skipped", ())]
        if told:
            there = tree_lines(self.work)
            if {line for lines in read_account(self.world.ledger).told.values() for line in lines}.issuperset(there):
                self.ledger.know(Content(state, self.look()))
                self.ledger.allow([*allowed, digest_lines(there)])
            raise UnavailableError("; ".join(f"{path}: {why}" for path, why in told))

    def change(self, name: str, work: Callable[[], Any], facts: Mapping[str, Sequence[Any]]) -> None:
        """Whatever changes facts (facts.py): what each may be until it ends; the last is what it is then."""
        self.doing = name
        for fact, allowed in facts.items():
            self.ledger.expect(fact, allowed)
        work()
        for fact, allowed in facts.items():
            self.ledger.expect(fact, allowed[-1:])

    def remove(self, name: str, ids: Sequence[str], work: Callable[[], Any]) -> None:
        """For good."""
        self.doing = name
        self.ledger.remove(ids)
        work()
        self.ledger.removed(ids)

    def hide(self, name: str, ids: Sequence[str], work: Callable[[], Any]) -> None:
        """Mark as deleted."""
        self.doing = name
        self.ledger.hide(ids)
        work()
        self.ledger.removed(ids)

    def bring_back(self, name: str, ids: Sequence[str], work: Callable[[], Any]) -> None:
        """What was marked as deleted."""
        self.doing = name
        self.ledger.hide(ids)
        work()
        self.ledger.returned(ids)

    def do(self, name: str, work: Callable[[], Any]) -> None:
        """Something that makes no checkpoint and takes none away."""
        self.doing = name
        work()

    def collect(self) -> None:
        """What is marked as deleted goes for good, if somebody has marked something."""
        self.doing = "collect"
        self.ledger.collect()
        self.store.collect(grace=0)

    def mend(self) -> None:
        """Repair the store if it is known to be damaged."""
        if mending := read_account(self.world.ledger).mending:
            self.do("repair", lambda: self.store.repair(accept_loss=any(mending)))

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

    def lines(self, message: str) -> list[str]:
        """What the files that were announced with a message consist of."""
        return read_account(self.world.ledger).told[self.tree(message)]

    def look(self) -> str:
        """The digest of what a save captures of the workspace as it is now; the ledger knows it from now on."""
        return self.ledger.tell(captured(tree_lines(self.work)))


def captured(lines: Sequence[str]) -> list[str]:
    """Those of files that the rules of the workspace do not leave out."""
    return [line for line in lines if not line.partition("\0")[0].endswith(LEFT_OUT)]


def left_out(lines: Sequence[str]) -> list[str]:
    """Those of the other files, and of the folders they lie in: these stay for their sake."""
    found = {line.partition("\0")[0] for line in lines} - {line.partition("\0")[0] for line in captured(lines)}
    folders = {str(parent) for path in found for parent in Path(path).parents}
    return [line for line in lines if line.partition("\0")[0] in found | folders]


def open_store(world: World, **options: Any) -> lastgood.Store:
    if world.migration.exists():
        made_up = Migration(len(KNOWN) + 1, "made_up", f"{MAJOR}.{len(KNOWN)}", world.migration.read_text())
        setattr(database, "migrations", lambda: (*KNOWN, made_up))  # noqa: B010  # for the rest of this process
    return lastgood.open(world.store, user=USER, base_path=world.work, collect="never", on_failure="raise", **options)


def write_files(folder: Path, names: Iterable[str], seed: int, size: int = 3000) -> None:
    """Files of random bytes; the same for the same seed."""
    dice = random.Random(seed)
    with shim.pause():
        for name in names:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(dice.randbytes(size))


def sync_files(folder: Path) -> None:
    """Durable: what a program has not synced itself, power loss may take before the store has seen it."""
    with shim.pause():
        for path in [*folder.rglob("*"), folder]:
            if not path.is_symlink():
                descriptor = os.open(path, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)


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


def accompany(folder: str, disk: str, scenario: str) -> None:
    """What a second process does while a scenario is played, undisturbed: a few rounds, and one when it is over."""
    from tests.faults.scenarios import SCENARIOS

    world = World(Path(folder), Path(disk))
    actor, beside = Actor(world, "beside"), SCENARIOS[scenario].beside
    assert beside is not None
    with world.curtain.open() as curtain:
        for number in range(ROUNDS):
            beside(actor, number)
            if _is_free(curtain):
                break
        fcntl.flock(curtain, fcntl.LOCK_SH)
        beside(actor, ROUNDS)
    actor.close()


def _is_free(curtain: IO[str]) -> bool:
    try:
        fcntl.flock(curtain, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def recover(folder: str, disk: str, fault: list[Any]) -> None:
    """What a program does that is started again after a crash, with another fault in it."""
    world = World(Path(folder), Path(disk))
    _perform(_start_again, Actor(world), shim.Arming(str(world.disk), str(world.counter), shim.Fault(*fault)))


def _start_again(actor: Actor) -> None:
    actor.mend()
    task = actor.task
    if task.head is not None:
        actor.do("look at the files", task.diff)
    actor.collect()
    _save_again(actor)


def save_again(folder: str, disk: str) -> None:
    """What another program does that only saves; noted with all that it writes, behind what is noted already."""
    world = World(Path(folder), Path(disk))
    noted = shim.Arming(str(world.disk), str(world.counter), trace=str(world.trace), with_data=True)
    _perform(_mend_and_save, Actor(world), noted)


def _mend_and_save(actor: Actor) -> None:
    actor.mend()
    _save_again(actor)


def _save_again(actor: Actor) -> None:
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
        actor.mend()
        actor.save(actor.store.task("after"), {"after": "the error"}, "after the error", files=False)
    except lastgood.UnavailableError as error:
        actor.ledger.report(actor.doing, error.code, str(error))
    actor.close()
