"""G7: many processes save to one store while it is collected, and one after the other is killed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.faults.campaign import Campaign, Plan, Trial
from tests.faults.pool import Outcome, WorkerPool
from tests.faults.prepared_scenario import QUICK
from tests.faults.shim import no_compiler

WRITERS, SAVES = 16, 500
SECONDS = 600

_MIXES = {
    "one task": {"append": 4, "compete": 3, "fork": 1},
    "many tasks": {"save": 6, "append": 1, "fork": 1},
    "with files": {"save_files": 4, "append_files": 2, "restore": 1, "save": 1},
    "a file as store": {"save": 2, "append": 2, "compete": 1, "fork": 1, "save_files": 2},
}
_ALONE = "one long-running process"


def run(part: str, plan: Plan) -> Iterator[Trial]:
    saves = plan.points or SAVES
    with tempfile.TemporaryDirectory(prefix="lastgood-crowd-", dir=QUICK if QUICK.is_dir() else None) as folder:
        store = str(Path(folder, "store.sqlite" if part == "a file as store" else "store"))
        with WorkerPool(Path(folder), path=plan.path, seconds=SECONDS) as pool:
            where = {"folder": folder, "store": store}
            if part == _ALONE:
                outcome = pool.run("tests.faults.endurance:run_long", **where, saves=saves * 4, seed=plan.seed)
                yield Trial(f"{part} of {saves * 4} saves", _found(outcome), saves * 4)
                return
            about = {"writers": WRITERS, "saves": saves, "mix": _MIXES[part], "seed": plan.seed}
            outcome = pool.run("tests.faults.crowd:run_crowd", **where, **about)
            disturbances, failures, saved = outcome.given or ([], [f"the crowd {outcome.ended}: {outcome.error}"], 0)
            yield from (
                Trial(f"{part}, {disturbance}") for disturbance in disturbances
            )  # what came of each is told in the end
            yield Trial(f"{part}, {WRITERS} x {saves} saves", failures, saved)
            yield Trial(
                f"{part}, what is there afterwards",
                _found(pool.run("tests.faults.crowd_verdict:verify_crowd", **where)),
            )


def _found(outcome: Outcome) -> list[str]:
    return outcome.given if outcome.ended == "done" else [f"it {outcome.ended}: {outcome.error}"]


CAMPAIGN = Campaign(
    "crowd",
    "G7",
    "16 processes save while others are killed and the store is collected: nothing is lost, doubled or out of order",
    (*_MIXES, _ALONE),
    run,
    no_compiler,
)
