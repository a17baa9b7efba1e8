"""A place where a scenario is played again and again from the same beginning, with one fault at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.faults.shim import UNDISTURBED, Fault, count
from tests.faults.troupe import Outcome, Troupe
from tests.faults.world import World, make_world

QUICK = Path("/dev/shm")
"""Where syncing costs nothing: for a process that dies, memory is as durable as a disk."""


class Stage(NamedTuple):
    scenario: str
    world: World
    troupe: Troupe

    def play(
        self, fault: Fault = UNDISTURBED, *, trace: bool = False, with_data: bool = False, device: str = ""
    ) -> Outcome:
        """From the beginning, once."""
        self.world.reset()
        how = {"trace": trace, "with_data": with_data, "device": device}
        return self.run("acting:act", scenario=self.scenario, fault=fault, **how)

    def recover(self, fault: Fault = UNDISTURBED) -> Outcome:
        """The program is started again, from whatever was kept as `crashed`."""
        self.world.reset("crashed")
        return self.run("acting:recover", fault=fault)

    def verify(self) -> list[str]:
        """What is wrong with the store as it lies there."""
        outcome = self.run("verifier:verify")
        return outcome.given if outcome.ended == "done" else [f"the verifier {outcome.ended}: {outcome.error[-2000:]}"]

    def calls(self) -> int:
        """How many there were in the last play."""
        return count(self.world.counter)

    def run(self, job: str, **more: object) -> Outcome:
        where = {"folder": str(self.world.folder), "disk": str(self.world.disk)}
        return self.troupe.run(f"tests.faults.{job}", **where, **more)


@contextmanager
def open_stage(scenario: str, *, disk: Path | None = None, path: str | None = None) -> Iterator[Stage]:
    """Prepared and ready to be played. `disk`: an empty folder to play on. `path`: where to import lastgood from."""
    with tempfile.TemporaryDirectory(prefix="lastgood-faults-", dir=QUICK if QUICK.is_dir() else None) as folder:
        world = make_world(Path(folder), disk)
        with Troupe(Path(folder), path=path) as troupe:
            stage = Stage(scenario, world, troupe)
            prepared = stage.run("acting:prepare", scenario=scenario)
            if prepared.ended != "done":
                raise RuntimeError(f"{scenario} could not be prepared: {prepared.error}")
            world.keep()
            yield stage
