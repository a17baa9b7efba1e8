"""Runs campaigns, several parts at a time, and adds up what they found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import NamedTuple

from tests.faults.campaign import Plan
from tests.faults.campaigns import CAMPAIGNS

MOST_SHOWN = 20


class Tally(NamedTuple):
    """What one part came to. `found`: the first of the violations, each with the trial it was in."""

    campaign: str
    part: str
    trials: int
    saves: int
    violations: int
    found: list[str]
    seconds: float


class Job(NamedTuple):
    campaign: str
    part: str
    plan: Plan


def run_part(job: Job) -> Tally:
    begun = time.monotonic()
    trials, saves, violated, found = 0, 0, 0, []
    try:
        for trial in CAMPAIGNS[job.campaign].run(job.part, job.plan):
            trials += 1
            saves += trial.saves
            violated += bool(trial.violations)
            found += [f"{trial.name}: {violation}" for violation in trial.violations]
    except Exception as error:
        violated += 1
        found.append(f"the campaign itself broke: {error!r}")
    if not (trials or violated):
        violated, found = 1, ["nothing was tried"]
    return Tally(job.campaign, job.part, trials, saves, violated, found[:MOST_SHOWN], time.monotonic() - begun)


def run_jobs(jobs: Iterable[Job], at_once: int, tell: Callable[[Tally], None]) -> Iterator[Tally]:
    with ProcessPoolExecutor(at_once, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run_part, job) for job in jobs]):
            tell(done.result())
            yield done.result()
