"""A scenario that is run again and again from the same beginning, with one fault at a time."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from tests.faults.campaign import Trial
from tests.faults.pool import Outcome, WorkerPool
from tests.faults.sandbox import Sandbox, make_sandbox
from tests.faults.shim import UNDISTURBED, Fault, count

QUICK = Path("/dev/shm")
"""Where syncing costs nothing: for a process that dies, memory is as durable as a disk."""


class PreparedScenario(NamedTuple):
    """A scenario, the sandbox that it was prepared in, and the processes that run it there."""

    scenario: str
    sandbox: Sandbox
    pool: WorkerPool
    other: WorkerPool | None = None
    """For what the scenario does beside, where there is something."""

    def run(
        self, fault: Fault = UNDISTURBED, *, trace: bool = False, with_data: bool = False, device: str = ""
    ) -> Outcome:
        """Run the scenario once, from the beginning. The process beside it is never disturbed, unless all power is cut:
        if that process does not come to its end, this is the outcome."""
        self.sandbox.reset()
        return self.run_as_is(fault, trace=trace, with_data=with_data, device=device)

    def run_as_is(
        self, fault: Fault = UNDISTURBED, *, trace: bool = False, with_data: bool = False, device: str = ""
    ) -> Outcome:
        """Run the scenario once, on the sandbox as it is: somebody has reset it before."""
        how = {"trace": trace, "with_data": with_data, "device": device}
        with _accompanied(self) as beside:
            outcome = self.call("worker:run_scenario", scenario=self.scenario, fault=fault, **how)
        if fault.kind != "shutdown" and beside and beside[0].ended != "done":
            return Outcome("raised", error=f"the process beside it {beside[0].ended}: {beside[0].error}")
        return outcome._replace(met=self.calls() >= fault.at)

    def recover(self, fault: Fault = UNDISTURBED) -> Outcome:
        """Start the program again, from the sandbox that was kept as `crashed`."""
        self.sandbox.reset("crashed")
        return self.call("worker:recover", fault=fault)._replace(met=self.calls() >= fault.at)

    def verify(self, after: Literal["", "restarted", "laid out"] = "") -> list[str]:
        """Return what is wrong with the store as it is now, a sentence each. The system was "restarted", or files were
        "laid out" as they may be after that: then none is younger than it looks."""
        outcome = self.pool.ask("tests.faults.verifier:verify", **self.where(), after=after)
        return outcome.given if outcome.ended == "done" else [f"the verifier {outcome.ended}: {outcome.error[-2000:]}"]

    def calls(self) -> int:
        """Return how many calls the last run made."""
        return count(self.sandbox.counter)

    def call(self, job: str, **more: object) -> Outcome:
        """Let a worker do `module:function` of tests.faults on the sandbox."""
        return self.pool.run(f"tests.faults.{job}", **self.where(), **more)

    def where(self) -> dict[str, str]:
        return {"folder": str(self.sandbox.folder), "disk": str(self.sandbox.disk)}


def tried(name: str, outcome: Outcome, violations: list[str]) -> Iterator[Trial]:
    """Return the trial of a fault. A run that went well because it had ended before the fault is none: how many calls
    there are differs a little from run to run."""
    if outcome.met or violations:
        yield Trial(name, violations)


@contextmanager
def _accompanied(prepared: PreparedScenario) -> Iterator[list[Outcome]]:
    """Run what the scenario does beside meanwhile; its outcome is in the list afterwards."""
    outcomes: list[Outcome] = []
    if prepared.other is None:
        yield outcomes
        return
    with prepared.sandbox.running.open("w") as running:
        fcntl.flock(running, fcntl.LOCK_EX)
        prepared.other.begin("tests.faults.worker:run_beside", **prepared.where(), scenario=prepared.scenario)
        try:
            yield outcomes
        finally:
            fcntl.flock(running, fcntl.LOCK_UN)
            outcomes.append(prepared.other.end())


@contextmanager
def open_scenario(scenario: str, *, disk: Path | None = None, path: str | None = None) -> Iterator[PreparedScenario]:
    """Prepare a scenario. `disk`: an empty folder to do it on. `path`: where to import lastgood from."""
    with tempfile.TemporaryDirectory(prefix="lastgood-faults-", dir=QUICK if QUICK.is_dir() else None) as folder:
        sandbox = make_sandbox(Path(folder), disk)
        with WorkerPool(Path(folder), path=path) as pool, _other_pool(scenario, Path(folder), path) as other:
            prepared = PreparedScenario(scenario, sandbox, pool, other)
            outcome = prepared.call("worker:prepare", scenario=scenario)
            if outcome.ended != "done":
                raise RuntimeError(f"{scenario} could not be prepared: {outcome.error}")
            sandbox.keep()
            yield prepared


@contextmanager
def _other_pool(scenario: str, folder: Path, path: str | None) -> Iterator[WorkerPool | None]:
    from tests.faults.scenarios import SCENARIOS

    if SCENARIOS[scenario].beside is None:
        yield None
        return
    scratch = folder / "other"
    scratch.mkdir()
    with WorkerPool(scratch, path=path) as other:
        yield other
