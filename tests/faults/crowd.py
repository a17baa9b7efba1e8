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

STRIKES_A_SECOND = 6.0
"""On average. Three kills a second are asked for (G7); one strike in six only stops its victim, and on two busy cores
3.7 kills a second were counted."""
STOP_SECONDS = 0.05, 1.5
STUCK_SECONDS = 45.0
"""So long nobody waits for anybody: a collector for half a minute, writers for much less."""


class Scene(NamedTuple):
    """Where it plays: a store, and for each writer a folder of files and a ledger."""

    folder: Path
    store: Path

    def work(self, name: str) -> Path:
        return self.folder / "work" / name

    def ledger(self, name: str) -> Path:
        return self.folder / "ledgers" / name

    def words(self, name: str) -> Path:
        """The last ones of a member that could not go on."""
        return self.folder / "words" / name

    def prepare(self, names: Sequence[str]) -> None:
        for name in names:
            self.work(name).mkdir(parents=True)
        for folder in (self.ledger(""), self.words("")):
            folder.mkdir()

    def size_of_ledgers(self) -> int:
        """It grows for as long as somebody gets on."""
        return sum(file.stat().st_size for file in self.ledger("").iterdir())


def play(
    folder: str, store: str, writers: int, saves: int, mix: Mapping[str, int], seed: int
) -> tuple[list[str], list[str], int]:
    """Until each writer has had so many saves acknowledged. Who was struck, what went wrong, and how many were."""
    from tests.faults.ledger import read_account
    from tests.faults.writer import collect_always, write_all

    scene = Scene(Path(folder), Path(store))
    names = [f"writer-{number}" for number in range(writers)]
    scene.prepare(names)
    crowd = _Crowd(scene)
    for name in names:
        crowd.enter(name, lambda name=name: write_all(scene, name, seed, saves, mix))  # type: ignore[misc]
    crowd.enter("collector", lambda: collect_always(scene), comes_to_an_end=False)
    crowd.run(random.Random(seed))
    return crowd.strikes, crowd.failures, sum(len(read_account(scene.ledger(name)).acknowledged) for name in names)


class _Crowd:
    """Who is there, by a descriptor that tells when that one has ended."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._roles: dict[str, Callable[[], None]] = {}
        self._missing: set[str] = set()
        self._there: dict[int, tuple[str, int]] = {}
        self._stopped: dict[int, float] = {}
        self.strikes: list[str] = []
        self.failures: list[str] = []

    def enter(self, name: str, role: Callable[[], None], *, comes_to_an_end: bool = True) -> None:
        self._roles[name] = role
        if comes_to_an_end:
            self._missing.add(name)
        self._start(name)

    def run(self, dice: random.Random) -> None:
        """Until all have come to their end, or nobody gets on any more."""
        strike, size, grown = _soon(dice), 0, time.monotonic()
        while self._missing and time.monotonic() - grown < STUCK_SECONDS:
            self._wait_until(min([strike, *self._stopped.values()]))
            self._let_go_on()
            if time.monotonic() >= strike:
                self._strike(dice)
                strike = _soon(dice)
            if (now := self._scene.size_of_ledgers()) != size:
                size, grown = now, time.monotonic()
        if self._missing:
            self.failures.append(f"nobody gets on any more: {', '.join(sorted(self._missing))} are not done")
        for descriptor, (_, process) in list(self._there.items()):
            os.kill(process, signal.SIGKILL)
            self._see_off(descriptor)

    def _start(self, name: str) -> None:
        process = os.fork()
        if process == 0:
            _perform(self._roles[name], self._scene.words(name))
        self._there[os.pidfd_open(process)] = name, process

    def _wait_until(self, moment: float) -> None:
        ended = select.select(list(self._there), [], [], max(0.0, moment - time.monotonic()))[0]
        for descriptor in ended:
            name, _ = self._there[descriptor]
            status = self._see_off(descriptor)
            if status == -signal.SIGKILL:
                self._start(name)
                continue
            self._missing.discard(name)
            if status:
                words = self._scene.words(name)
                said = words.read_text() if words.exists() else "without a word"
                self.failures.append(f"{name} could not go on, {status}: {said}")

    def _see_off(self, descriptor: int) -> int:
        """What it exited with; minus the signal that it died of."""
        _, process = self._there.pop(descriptor)
        self._stopped.pop(process, None)
        os.close(descriptor)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    def _strike(self, dice: random.Random) -> None:
        """Whom, is told by the dice and who is there; when, by the clock."""
        there = sorted(self._there.values())
        if not there:
            return
        name, process = dice.choice(there)
        if dice.random() < 1 / 6:
            os.kill(process, signal.SIGSTOP)
            self._stopped[process] = time.monotonic() + dice.uniform(*STOP_SECONDS)
            self.strikes.append(f"{name} stopped for a while")
        else:
            os.kill(process, signal.SIGKILL)
            self.strikes.append(f"{name} killed")

    def _let_go_on(self) -> None:
        for process, until in list(self._stopped.items()):
            if time.monotonic() >= until:
                del self._stopped[process]
                os.kill(process, signal.SIGCONT)


def _soon(dice: random.Random) -> float:
    return time.monotonic() + dice.expovariate(STRIKES_A_SECOND)


def _perform(role: Callable[[], None], words: Path) -> None:
    try:
        role()
    except BaseException:
        words.write_text(traceback.format_exc(limit=-4))
        os._exit(1)
    os._exit(0)
