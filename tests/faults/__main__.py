"""`./dev faults`: every campaign in full, and one table of what came out.

./dev faults                     everything; the table goes into docs/explanation/reliability.md
./dev faults kill failing        only these campaigns
./dev faults kill --part create  only this part of them (may be given again)
./dev faults --points 50         at most so many trials of each part
./dev faults --seed 7            other choices where something is chosen by chance
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.faults.campaign import Plan
from tests.faults.campaigns import CAMPAIGNS
from tests.faults.runner import Job, Tally, run_jobs
from tests.faults.table import draw, record


def main() -> int:
    options = _options()
    names = options.campaigns or list(CAMPAIGNS)
    obstacles = {name: why for name in names if (why := CAMPAIGNS[name].obstacle())}
    for name, why in obstacles.items():
        print(f"{name} is not run: {why}", flush=True)
    plan = Plan(options.seed, options.points)
    jobs = [
        Job(name, part, plan)
        for name in reversed(names)  # the last ones have few and long parts: short ones fill the end
        if name not in obstacles
        for part in CAMPAIGNS[name].parts
        if not options.part or part in options.part
    ]
    left_out = {job: why for job in jobs if (why := CAMPAIGNS[job.campaign].obstacle_to(job.part))}
    for job, why in left_out.items():
        print(f"{job.campaign}, {job.part} is not run: {why}", flush=True)
    begun = time.monotonic()
    tallies = list(run_jobs([job for job in jobs if job not in left_out], os.cpu_count() or 1, _tell))
    table = draw(tallies, obstacles, left_out, options.seed, time.monotonic() - begun)
    print(f"\n{table}")
    if not (options.campaigns or options.part or options.points):
        record(table)
    return 0 if tallies and not any(tally.violations for tally in tallies) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(usage=__doc__.partition("\n\n")[2])
    parser.add_argument("campaigns", nargs="*", metavar="CAMPAIGN", help=", ".join(CAMPAIGNS))
    parser.add_argument("--part", action="append")
    parser.add_argument("--points", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if unknown := set(options.campaigns) - set(CAMPAIGNS):
        parser.error(f"there is no campaign {min(unknown)!r}; there is {', '.join(CAMPAIGNS)}")
    parts = dict.fromkeys(part for name in options.campaigns or CAMPAIGNS for part in CAMPAIGNS[name].parts)
    if unknown := set(options.part or ()) - set(parts):
        parser.error(f"there is no part {min(unknown)!r}; there is {', '.join(parts)}")
    return options


def _tell(tally: Tally) -> None:
    said = f"{tally.violations} VIOLATIONS" if tally.violations else "ok"
    print(f"{tally.campaign}, {tally.part}: {tally.trials:,} trials, {said}, {tally.seconds:.0f} s", flush=True)
    for found in tally.found:
        print(f"    {found}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
