"""G10: one state machine over everything that a store does, with crashes and failures, against every backend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from tests.faults import shim
from tests.faults.backend import BACKENDS
from tests.faults.campaign import Campaign, Plan, Trial

TRIALS = 250
"""Runs of 50 steps, each with a seed of its own."""


def run(backend: str, plan: Plan) -> Iterator[Trial]:
    seeds = plan.choose(range(plan.seed * TRIALS, (plan.seed + 1) * TRIALS))
    with subprocess.Popen(
        _command(backend, seeds), env=_environment(plan.path), stdout=subprocess.PIPE, text=True
    ) as machine:
        assert machine.stdout is not None
        try:
            for seed, violations in map(json.loads, machine.stdout):
                again = f"`python -m tests.faults.campaigns.machine {backend} {seed}` makes it short"
                yield Trial(f"{backend}, the run of seed {seed}", [f"{one}\n{again}" for one in violations])
            if machine.wait():
                yield Trial(backend, [f"the machine ended with {machine.returncode}"])
        finally:
            machine.kill()


def _command(backend: str, seeds: Sequence[int]) -> list[str]:
    two = "2"  # the first example of a seed is always an empty one
    command = [sys.executable, "-m", "tests.faults.machine", backend, "--examples", two]
    return [*command, "--seed", *map(str, seeds)]


def _environment(path: str | None) -> dict[str, str]:
    environment = shim.environment()
    if path is not None:
        environment["PYTHONPATH"] = os.pathsep.join([path, *filter(None, [environment.get("PYTHONPATH")])])
    return environment


CAMPAIGN = Campaign(
    "machine",
    "G10",
    "whatever is done, in whatever order, killed or failing at any call, it is done whole or not at all",
    tuple(BACKENDS),
    run,
    shim.no_compiler,
)


if __name__ == "__main__":
    sys.exit(subprocess.call([*_command(sys.argv[1], [int(sys.argv[2])]), "--shrink"], env=_environment(None)))
