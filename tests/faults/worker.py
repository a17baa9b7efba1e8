"""A program that works with a store while its disk fails: each call and each answer is written to the ledger."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from tests.faults import shim
from tests.faults.facts import SPOOLED, ask
from tests.faults.ledger import Content, Ledger, digest_lines, read_account, state_digest, tree_lines
from tests.faults.sandbox import Sandbox
from tests.support.outages import ask_nobody

import lastgood
from lastgood import CheckpointError, UnavailableError
from lastgood.catalog.sqlite import database
from lastgood.catalog.sqlite.migration import MAJOR, Migration, migrations
from lastgood.engine import restore_files
from lastgood.engine.workspace import sync_restored
from lastgood.local import process

USER = "worker"
ROUNDS = 8
"""How many rounds a second process does before it waits for the scenario to end."""
KNOWN = migrations()
RENAMED, RESTARTED = "another name", "another name after a restart"
"""Hosts that a scenario may be followed by."""
LEFT_OUT = ".left"
"""The end of names of files that the rules of a workspace leave out."""


class Worker:
    """A program that uses one store: it works on the task `work`, or another that has files of its own."""

    def __init__(self, sandbox: Sandbox, name: str = "work") -> None:
        self.sandbox = sandbox
        self.name = name
        self.work = sandbox.disk / name
        self.ledger = Ledger(sandbox.ledger)
        self.doing = "open"
        self._store: lastgood.Store | None = None

    @property
    def store(self) -> lastgood.Store:
        if self._store is None:
            self._store = open_store(self.sandbox)
        return self._store

    @property
    def task(self) -> lastgood.Task:
        return self.store.task(self.name, workspace=self.work)

    def open_without_spool(self) -> None:
        self.close()
        self._store = open_store(self.sandbox, spools=False)

    @contextmanager
    def without_store(self) -> Iterator[None]:
        """Put the store out of reach meanwhile: what is saved is spooled. After an error it stays there."""
        with shim.pause():
            self.sandbox.store.rename(self.sandbox.away)
        if self._store is None:
            self.open_while_away()
        yield
        self.close()
        bring_back(self.sandbox)

    def open_while_away(self) -> None:
        """Open a store that is out of reach, and that something is spooled for."""
        self._store = _open_with_spool(self.sandbox)
        if self.sandbox.store.exists():
            self.close()
            raise UnavailableError("the spool cannot be read either: a new store was made")

    def close(self) -> None:
        self.doing = "close"
        if self._store is not None:
            self._store.close()
            self._store = None

    # --- announced, done, entered -----------------------------------------------------------------------------------

    def save(self, task: lastgood.Task, state: Any, message: str, *, files: bool | str = True, **more: Any) -> str:
        """Save a state, with the workspace if the handle has one; else `files` is the message of the checkpoint whose
        files stay, or False: there are none. Return the id."""
        held = self.tree(files) if isinstance(files, str) else self.look() if files else None
        content = Content(state_digest(state), held)
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
        """Announce a checkpoint, make it by `work`, record it. `head_of`: the task that goes on from it."""
        made: list[lastgood.Checkpoint] = []
        fact = f"state {head_of}"
        facts = {} if head_of is None else {fact: [*self._waiting(fact), ask(self.store, fact), content.state]}
        self.ledger.intend(message, content)
        self.change(message, lambda: made.append(_durably(self.store, work())), facts)
        self.ledger.acknowledge(made[0].id, made[0].sequence or 0, content, verified=made[0].verified)
        return made[0].id

    def _waiting(self, fact: str) -> list[Any]:
        """Return what a fact may become by itself: what is spooled comes into the store later."""
        return read_account(self.sandbox.ledger).facts.get(fact, []) if self.sandbox.spool.is_dir() else []

    def move(self, name: str, work: Callable[[], Any], *, to: Sequence[str], present: Any, state: Any = None) -> None:
        """Do something that changes the captured files on disk to the lines `to`, and with `state` what the task goes
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
        """Raise what a restore reported as failed: each file is then as it was before, or as after."""
        told = [*getattr(result, "failed", ()), *getattr(result, "skipped", ())]
        if told:
            there = tree_lines(self.work)
            if {line for lines in read_account(self.sandbox.ledger).told.values() for line in lines}.issuperset(there):
                self.ledger.know(Content(state, self.look()))
                self.ledger.allow([*allowed, digest_lines(there)])
            raise UnavailableError("; ".join(f"{path}: {why}" for path, why in told))

    def change(self, name: str, work: Callable[[], Any], facts: Mapping[str, Sequence[Any]]) -> None:
        """Do something that changes `facts` (facts.py): what each may be until it ends, and last what it is then."""
        self.doing = name
        for fact, allowed in facts.items():
            self.ledger.expect(fact, allowed)
        work()
        for fact, allowed in facts.items():
            self.ledger.expect(fact, allowed[-1:])

    def remove(self, name: str, ids: Sequence[str], work: Callable[[], Any]) -> None:
        """Do something that removes checkpoints for good."""
        self.doing = name
        self.ledger.remove(ids)
        work()
        self.ledger.removed(ids)

    def hide(self, name: str, ids: Sequence[str], work: Callable[[], Any]) -> None:
        """Do something that marks checkpoints as deleted."""
        self.doing = name
        self.ledger.hide(ids)
        work()
        self.ledger.removed(ids)

    def bring_back(self, name: str, ids: Sequence[str], work: Callable[[], Any]) -> None:
        """Do something that brings deleted checkpoints back."""
        self.doing = name
        self.ledger.hide(ids)
        work()
        self.ledger.returned(ids)

    def do(self, name: str, work: Callable[[], Any]) -> None:
        """Do something that makes no checkpoint and removes none."""
        self.doing = name
        work()

    def collect(self) -> None:
        """Collect garbage: what is marked as deleted may be gone from now on."""
        self.doing = "collect"
        self.ledger.collect()
        self.store.collect(grace=0)

    def back_up(self, name: str) -> None:
        """Make a backup: if it is there, all that is acknowledged by now is in it."""
        account = read_account(self.sandbox.ledger)
        ids = [one for one in account.acknowledged if one not in account.removing]
        self.ledger.back_up(name, ids)
        self.do(f"back up {name}", lambda: self.store.backup(self.sandbox.backups / name))
        self.ledger.back_up(name, ids, made=True)

    def mend(self) -> None:
        """Repair the store if it is known to be damaged."""
        if mending := read_account(self.sandbox.ledger).mending:
            self.do("repair", lambda: self.store.repair(accept_loss=any(mending)))

    def kept(self, message: str) -> str:
        """Return the id of an acknowledged checkpoint, by the message it was announced with."""
        account = read_account(self.sandbox.ledger)
        wanted = account.intended[message]
        return next(one for one, line in account.acknowledged.items() if line["content"] == wanted)

    def tree(self, message: str) -> str:
        """Return the digest of the files that were announced with a message."""
        files = read_account(self.sandbox.ledger).intended[message].files
        assert files is not None
        return files

    def lines(self, message: str) -> list[str]:
        """Return the files that were announced with a message, a line each."""
        return read_account(self.sandbox.ledger).told[self.tree(message)]

    def look(self) -> str:
        """Return the digest of what a save would capture of the workspace now, and write it to the ledger."""
        return self.ledger.tell(captured(tree_lines(self.work)))


def captured(lines: Sequence[str]) -> list[str]:
    """Return the lines of files that the rules of the workspace do not leave out."""
    return [line for line in lines if not line.partition("\0")[0].endswith(LEFT_OUT)]


def left_out(lines: Sequence[str]) -> list[str]:
    """Return the lines of files that the rules leave out, and of the folders they lie in, which stay for their sake."""
    found = {line.partition("\0")[0] for line in lines} - {line.partition("\0")[0] for line in captured(lines)}
    folders = {str(parent) for path in found for parent in Path(path).parents}
    return [line for line in lines if line.partition("\0")[0] in found | folders]


def bring_back(sandbox: Sandbox) -> None:
    """Put a store back that was away. One that was made in its place meanwhile is empty, and goes."""
    with shim.pause():
        if sandbox.away.exists():
            shutil.rmtree(sandbox.store, ignore_errors=True)
            sandbox.away.rename(sandbox.store)


def _durably(store: lastgood.Store, made: lastgood.Checkpoint) -> lastgood.Checkpoint:
    """Return the checkpoint; raise if it is spooled in memory alone, which is not acknowledged."""
    if made.status == "spooled" and not store.spool_figures().durable:
        raise UnavailableError("it is kept in memory alone")
    return made


def open_store(sandbox: Sandbox, *, spools: bool = True) -> lastgood.Store:
    """Open the store, with its spool where there is one, unless that is not wanted; else errors are raised."""
    bring_back(sandbox)
    if spools and sandbox.spool.is_dir():
        return _open_with_spool(sandbox)
    if sandbox.migration.exists():
        from tests.golden import values as values  # a class that golden stores hold values of is registered there

        made_up = Migration(len(KNOWN) + 1, "made_up", f"{MAJOR}.{len(KNOWN)}", sandbox.migration.read_text())
        setattr(database, "migrations", lambda: (*KNOWN, made_up))  # noqa: B010  # for the rest of this process
    return _in_order(
        lastgood.open(sandbox.store, user=USER, base_path=sandbox.work, collect="never", on_failure="raise")
    )


def _in_order(store: lastgood.Store) -> lastgood.Store:
    """Have it make restored files durable before a restore returns, so that each run makes the same calls, and mark
    where a journal ends."""
    catalog = store._engine.catalog
    end_journal = catalog.end_journal

    def end(journal_id: str) -> None:
        shim.mark(shim.JOURNAL_ENDS)
        end_journal(journal_id)

    setattr(catalog, "end_journal", end)  # noqa: B010
    store._engine.sync_apart = partial(sync_restored, store._engine)
    return store


def _open_with_spool(sandbox: Sandbox) -> lastgood.Store:
    """Open the store with its spool. Nothing is replayed in the background: only by opening, or by hand."""
    store = lastgood.open(sandbox.store, user=USER, base_path=sandbox.work, collect="never", spool=sandbox.spool)
    ask_nobody(store)
    return _in_order(store)


def write_files(folder: Path, names: Iterable[str], seed: int, size: int = 3000) -> None:
    """Write files of random bytes, the same for the same seed."""
    dice = random.Random(seed)
    with shim.pause():
        for name in names:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(dice.randbytes(size))


def sync_files(folder: Path) -> None:
    """Sync the files of a program, as it has to do itself: power loss may take what the store has not captured yet."""
    with shim.pause():
        for path in [*folder.rglob("*"), folder]:
            if not path.is_symlink():
                descriptor = os.open(path, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)


# --- jobs for a pool -----------------------------------------------------------------------------------------------


def prepare(folder: str, disk: str, scenario: str) -> None:
    from tests.faults.scenarios import SCENARIOS

    worker = Worker(Sandbox(Path(folder), Path(disk)))
    SCENARIOS[scenario].prepare(worker)
    worker.close()


def run_scenario(
    folder: str, disk: str, scenario: str, fault: list[Any], trace: bool, with_data: bool, device: str
) -> None:
    """Run a scenario with a fault in it."""
    from tests.faults.scenarios import SCENARIOS

    sandbox = Sandbox(Path(folder), Path(disk))
    noted = str(sandbox.trace) if trace else ""
    arming = shim.Arming(str(sandbox.disk), str(sandbox.counter), shim.Fault(*fault), noted, with_data, device)
    _run_armed(SCENARIOS[scenario].run, Worker(sandbox), arming)


def run_beside(folder: str, disk: str, scenario: str) -> None:
    """Do what a scenario has a second process do meanwhile, undisturbed: a few rounds, and one when it is over."""
    from tests.faults.scenarios import SCENARIOS

    sandbox = Sandbox(Path(folder), Path(disk))
    worker, beside = Worker(sandbox, "beside"), SCENARIOS[scenario].beside
    assert beside is not None
    with sandbox.running.open() as running:
        for number in range(ROUNDS):
            beside(worker, number)
            if _is_free(running):
                break
        fcntl.flock(running, fcntl.LOCK_SH)
        beside(worker, ROUNDS)
    worker.close()


def _is_free(running: IO[str]) -> bool:
    try:
        fcntl.flock(running, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def changed_host(sandbox: Sandbox, after: str = "") -> Iterator[None]:
    """Have this process run where the scenario says: each container has a name of its own, and so may each start. Or
    after another start of the system: it was "restarted", or files were "laid out" as they may be then."""
    with ExitStack() as exchanged:

        def exchange(place: Any, name: str, value: Any) -> None:
            exchanged.callback(setattr, place, name, getattr(place, name))
            setattr(place, name, value)

        name = sandbox.host.read_text() if sandbox.host.exists() else ""
        if name:
            named = os.uname_result([os.uname()[0], name, *os.uname()[2:]])
            exchange(socket, "gethostname", lambda: name)
            exchange(os, "uname", lambda: named)
        if after or name == RESTARTED:
            (boot := sandbox.folder / "boot").write_text("another start")
            exchanged.callback(process.boot_id.cache_clear)
            exchange(process, "BOOT_FILE", boot)
            process.boot_id.cache_clear()
        if after == "laid out":  # then no file is younger than it looks
            exchange(restore_files, "_changed_at", lambda root, path: 0)
        yield


def recover(folder: str, disk: str, fault: list[Any]) -> None:
    """Do what a program does that is started again after a crash, with another fault in it."""
    sandbox = Sandbox(Path(folder), Path(disk))
    arming = shim.Arming(str(sandbox.disk), str(sandbox.counter), shim.Fault(*fault))
    with changed_host(sandbox):
        _run_armed(_start_again, Worker(sandbox), arming)


def _start_again(worker: Worker) -> None:
    worker.mend()
    task = worker.task
    if task.head is not None:
        worker.do("look at the files", task.diff)
    worker.collect()
    _save_again(worker)


def save_again(folder: str, disk: str) -> None:
    """Save once, as another program. What it writes is added to the trace."""
    sandbox = Sandbox(Path(folder), Path(disk))
    noted = shim.Arming(str(sandbox.disk), str(sandbox.counter), trace=str(sandbox.trace), with_data=True)
    with changed_host(sandbox):
        _run_armed(_mend_and_save, Worker(sandbox), noted)


def _mend_and_save(worker: Worker) -> None:
    if worker.sandbox.away.exists():
        worker.open_while_away()
        _save_again(worker, SPOOLED)
        return
    worker.mend()
    _save_again(worker)


def _save_again(worker: Worker, task: str = "again") -> None:
    worker.save(worker.store.task(task), {"started": "again"}, "started again", files=False)


def _run_armed(work: Callable[[Worker], None], worker: Worker, arming: shim.Arming) -> None:
    """Run `work` with a fault armed. An error of lastgood goes to the ledger; any other error is a bug."""
    shim.arm(arming)
    try:
        try:
            work(worker)
            worker.close()
        except CheckpointError as error:
            worker.ledger.report(worker.doing, error.code, str(error))
            if not arming.fault.forever:
                _go_on(worker)
    finally:
        shim.disarm()


def _go_on(worker: Worker) -> None:
    """Save again after an error that happened once; the store may say that it must be opened anew."""
    try:
        worker.mend()
        worker.save(worker.store.task("after"), {"after": "the error"}, "after the error", files=False)
    except lastgood.UnavailableError as error:
        worker.ledger.report(worker.doing, error.code, str(error))
    worker.close()
