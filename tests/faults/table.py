"""The one table: what was tried, what was broken, how long it took."""

from __future__ import annotations

import platform
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.faults.campaigns import CAMPAIGNS
from tests.faults.runner import Job, Tally

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "reliability.md"
BEGIN, END = "<!-- the table: written by ./dev faults -->", "<!-- end of the table -->"


def draw(
    tallies: Sequence[Tally], obstacles: Mapping[str, str], left_out: Mapping[Job, str], seed: int, seconds: float
) -> str:
    """`obstacles`: why campaigns were not run. `left_out`: why parts of others were not."""
    lines = ["| goal | campaign | promise | points | violations | time |", "|---|---|---|---:|---:|---:|"]
    for name, campaign in CAMPAIGNS.items():
        mine = [tally for tally in tallies if tally.campaign == name]
        not_run = [why for job, why in left_out.items() if job.campaign == name]
        about = f"| {campaign.goals} | {name} | {campaign.promise} |"
        if name in obstacles:
            lines.append(f"{about} not run: {obstacles[name]} | | |")
        elif mine or not_run:
            violations, took = sum(tally.violations for tally in mine), sum(tally.seconds for tally in mine)
            lines.append(f"{about} {_points(mine, not_run)} | {violations} | {took:.0f} s |")
    tried, broken = sum(tally.trials for tally in tallies), sum(tally.violations for tally in tallies)
    lines.append(f"| | all | | {tried:,} | {broken} | {seconds:.0f} s by the clock |")
    today = datetime.now(UTC).date()
    where = f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}, seed {seed}"
    return "\n".join([*lines, "", f"{today}, {_tree()}, {where}."])


def _tree() -> str:
    """What was tried: the commit, and whether anything had been changed since."""
    command = ["git", "-C", str(PAGE.parent), "describe", "--always", "--dirty=, changed since"]
    try:
        return "at " + subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "outside of version control"


def _points(mine: Sequence[Tally], not_run: Sequence[str]) -> str:
    """How many there were, and where that says more, in how many saves; and how many parts were not run."""
    trials, saves = sum(tally.trials for tally in mine), sum(tally.saves for tally in mine)
    said = [f"{trials:,} in {saves:,} saves" if saves else f"{trials:,}"]
    return "; ".join([*said, *(f"{count} not run: {why}" for why, count in Counter(not_run).items())])


def record(table: str) -> None:
    """Put it into the page on reliability, in place of the one from before."""
    before, rest = PAGE.read_text().split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}")
