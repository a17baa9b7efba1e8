"""A place where a scenario is played again and again from the same beginning, with one fault at a time."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.faults.campaign import Trial
from tests.faults.shim import UNDISTURBED, Fault, count
from tests.faults.troupe import Outcome, Troupe
from tests.faults.world import World, make_world

QUICK = Path("/dev/shm")
"""Where syncing costs nothing: for a process that dies, memory is as durable as a disk."""


class Stage(NamedTuple):
    scenario: str
    world: World
    troupe: Troupe
    other: Troupe | None = None
    """Of the process that accompanies the play, where the scenario has one."""

    def play(
        self, fault: Fault = UNDISTURBED, *, trace: bool = False, with_data: bool = False, device: str = ""
    ) -> Outcome:
        """From the beginning, once. A process that accompanies it is never disturbed, unless all power is cut: if it
        does not come to its end, that is the outcome."""
        self.world.reset()
        return self.perform(fault, trace=trace, with_data=with_data, device=device)

    def perform(
        self, fault: Fault = UNDISTURBED, *, trace: bool = False, with_data: bool = False, device: str = ""
    ) -> Outcome:
        """From what lies there, which was reset before."""
        how = {"trace": trace, "with_data": with_data, "device": device}
        with _accompanied(self) as beside:
            outcome = self.run("acting:act", scenario=self.scenario, fault=fault, **how)
        if fault.kind != "shutdown" and beside and beside[0].ended != "done":
            return Outcome("raised", error=f"the process beside it {beside[0].ended}: {beside[0].error}")
        return outcome._replace(met=self.calls() >= fault.at)

    def recover(self, fault: Fault = UNDISTURBED) -> Outcome:
        """The program is started again, from whatever was kept as `crashed`."""
        self.world.reset("crashed")
        return self.run("acting:recover", fault=fault)._replace(met=self.calls() >= fault.at)

    def verify(self) -> list[str]:
        """What is wrong with the store as it lies there."""
        outcome = self.run("verifier:verify")
        return outcome.given if outcome.ended == "done" else [f"the verifier {outcome.ended}: {outcome.error[-2000:]}"]

    def calls(self) -> int:
        """How many there were in the last play."""
        return count(self.world.counter)

    def run(self, job: str, **more: object) -> Outcome:
        return self.troupe.run(f"tests.faults.{job}", **self.where(), **more)

    def where(self) -> dict[str, str]:
        return {"folder": str(self.world.folder), "disk": str(self.world.disk)}


def tried(name: str, outcome: Outcome, violations: list[str]) -> Iterator[Trial]:
    """What came of a fault. Where all went well because the play had ended before it, nothing was tried: how many
    calls there are differs a little from play to play."""
    if outcome.met or violations:
        yield Trial(name, violations)


@contextmanager
def _accompanied(stage: Stage) -> Iterator[list[Outcome]]:
    """The outcome of the process beside the play, afterwards; nothing where there is none."""
    outcomes: list[Outcome] = []
    if stage.other is None:
        yield outcomes
        return
    with stage.world.curtain.open("w") as curtain:
        fcntl.flock(curtain, fcntl.LOCK_EX)
        stage.other.begin("tests.faults.acting:accompany", **stage.where(), scenario=stage.scenario)
        try:
            yield outcomes
        finally:
            fcntl.flock(curtain, fcntl.LOCK_UN)
            outcomes.append(stage.other.end())


@contextmanager
def open_stage(scenario: str, *, disk: Path | None = None, path: str | None = None) -> Iterator[Stage]:
    """Prepared and ready to be played. `disk`: an empty folder to play on. `path`: where to import lastgood from."""
    with tempfile.TemporaryDirectory(prefix="lastgood-faults-", dir=QUICK if QUICK.is_dir() else None) as folder:
        world = make_world(Path(folder), disk)
        with Troupe(Path(folder), path=path) as troupe, _other_troupe(scenario, Path(folder), path) as other:
            stage = Stage(scenario, world, troupe, other)
            prepared = stage.run("acting:prepare", scenario=scenario)
            if prepared.ended != "done":
                raise RuntimeError(f"{scenario} could not be prepared: {prepared.error}")
            world.keep()
            yield stage


@contextmanager
def _other_troupe(scenario: str, folder: Path, path: str | None) -> Iterator[Troupe | None]:
    from tests.faults.scenarios import SCENARIOS

    if SCENARIOS[scenario].beside is None:
        yield None
        return
    scratch = folder / "other"
    scratch.mkdir()
    with Troupe(scratch, path=path) as other:
        yield other
