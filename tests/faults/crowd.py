"""Many processes on one store at once, some of which are killed, or stopped for a while, all the time.

Whoever is killed is started again and goes on where its ledger says. They are forked from a process that has imported
everything and has opened no store: each is as fresh as one that was just started.
"""

from __future__ import annotations

import os
import random
import select
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

DISTURBANCES_A_SECOND = 6.0
"""On average. Three kills a second are asked for (G7); one in six only stops its victim, and on two busy cores
3.7 kills a second were counted."""
STOP_SECONDS = 0.05, 1.5
STUCK_SECONDS = 45.0
"""Nobody waits so long for another: a collector half a minute, writers much less."""


class CrowdSandbox(NamedTuple):
    """The folders of a crowd: a store, and for each writer a folder of files and a ledger."""

    folder: Path
    store: Path

    def work(self, name: str) -> Path:
        return self.folder / "work" / name

    def ledger(self, name: str) -> Path:
        return self.folder / "ledgers" / name

    def error(self, name: str) -> Path:
        """The file for the traceback of a member that could not go on."""
        return self.folder / "errors" / name

    def prepare(self, names: Sequence[str]) -> None:
        for name in names:
            self.work(name).mkdir(parents=True)
        for folder in (self.ledger(""), self.error("")):
            folder.mkdir()

    def size_of_ledgers(self) -> int:
        """Return a number that grows as long as somebody makes progress."""
        return sum(file.stat().st_size for file in self.ledger("").iterdir())


def run_crowd(
    folder: str, store: str, writers: int, saves: int, mix: Mapping[str, int], seed: int
) -> tuple[list[str], list[str], int]:
    """Run writers until each has so many saves. Return who was disturbed, what failed, and how many saves there are."""
    from tests.faults.ledger import read_account
    from tests.faults.writer import collect_always, write_all

    sandbox = CrowdSandbox(Path(folder), Path(store))
    names = [f"writer-{number}" for number in range(writers)]
    sandbox.prepare(names)
    crowd = _Crowd(sandbox)
    for name in names:
        crowd.enter(name, lambda name=name: write_all(sandbox, name, seed, saves, mix))  # type: ignore[misc]
    crowd.enter("collector", lambda: collect_always(sandbox), comes_to_an_end=False)
    crowd.run(random.Random(seed))
    return (
        crowd.disturbances,
        crowd.failures,
        sum(len(read_account(sandbox.ledger(name)).acknowledged) for name in names),
    )


class _Crowd:
    """The processes that run, by a descriptor that tells when one has ended."""

    def __init__(self, sandbox: CrowdSandbox) -> None:
        self._sandbox = sandbox
        self._roles: dict[str, Callable[[], None]] = {}
        self._missing: set[str] = set()
        self._there: dict[int, tuple[str, int]] = {}
        self._stopped: dict[int, float] = {}
        self.disturbances: list[str] = []
        self.failures: list[str] = []

    def enter(self, name: str, role: Callable[[], None], *, comes_to_an_end: bool = True) -> None:
        self._roles[name] = role
        if comes_to_an_end:
            self._missing.add(name)
        self._start(name)

    def run(self, dice: random.Random) -> None:
        """Run until all have ended, or nobody makes progress any more."""
        disturbance, size, grown = _soon(dice), 0, time.monotonic()
        while self._missing and time.monotonic() - grown < STUCK_SECONDS:
            self._wait_until(min([disturbance, *self._stopped.values()]))
            self._continue_stopped()
            if time.monotonic() >= disturbance:
                self._disturb(dice)
                disturbance = _soon(dice)
            if (now := self._sandbox.size_of_ledgers()) != size:
                size, grown = now, time.monotonic()
        if self._missing:
            self.failures.append(f"nobody gets on any more: {', '.join(sorted(self._missing))} are not done")
        for descriptor, (_, process) in list(self._there.items()):
            os.kill(process, signal.SIGKILL)
            self._reap(descriptor)

    def _start(self, name: str) -> None:
        process = os.fork()
        if process == 0:
            _run_role(self._roles[name], self._sandbox.error(name))
        self._there[os.pidfd_open(process)] = name, process

    def _wait_until(self, moment: float) -> None:
        ended = select.select(list(self._there), [], [], max(0.0, moment - time.monotonic()))[0]
        for descriptor in ended:
            name, _ = self._there[descriptor]
            status = self._reap(descriptor)
            if status == -signal.SIGKILL:
                self._start(name)
                continue
            self._missing.discard(name)
            if status:
                words = self._sandbox.error(name)
                said = words.read_text() if words.exists() else "without a word"
                self.failures.append(f"{name} could not go on, {status}: {said}")

    def _reap(self, descriptor: int) -> int:
        """Wait for a process that has ended. Return its exit code, or minus the signal that killed it."""
        _, process = self._there.pop(descriptor)
        self._stopped.pop(process, None)
        os.close(descriptor)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    def _disturb(self, dice: random.Random) -> None:
        """Kill or stop one of those that run."""
        there = sorted(self._there.values())
        if not there:
            return
        name, process = dice.choice(there)
        if dice.random() < 1 / 6:
            os.kill(process, signal.SIGSTOP)
            self._stopped[process] = time.monotonic() + dice.uniform(*STOP_SECONDS)
            self.disturbances.append(f"{name} stopped for a while")
        else:
            os.kill(process, signal.SIGKILL)
            self.disturbances.append(f"{name} killed")

    def _continue_stopped(self) -> None:
        for process, until in list(self._stopped.items()):
            if time.monotonic() >= until:
                del self._stopped[process]
                os.kill(process, signal.SIGCONT)


def _soon(dice: random.Random) -> float:
    return time.monotonic() + dice.expovariate(DISTURBANCES_A_SECOND)


def _run_role(role: Callable[[], None], words: Path) -> None:
    try:
        role()
    except BaseException:
        words.write_text(traceback.format_exc(limit=-4))
        os._exit(1)
    os._exit(0)
