"""The one table: what was tried, what was broken, how long it took."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.faults.campaigns import CAMPAIGNS
from tests.faults.runner import Tally

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- the table: written by ./dev faults -->", "<!-- end of the table -->"


def draw(tallies: Sequence[Tally], obstacles: Mapping[str, str], seed: int, seconds: float) -> str:
    lines = ["| goal | campaign | promise | points | violations | time |", "|---|---|---|---:|---:|---:|"]
    for name, campaign in CAMPAIGNS.items():
        mine = [tally for tally in tallies if tally.campaign == name]
        if name in obstacles:
            lines.append(f"| {campaign.goals} | {name} | {campaign.promise} | not run: {obstacles[name]} | | |")
        elif mine:
            trials, violations = sum(tally.trials for tally in mine), sum(tally.violations for tally in mine)
            took = sum(tally.seconds for tally in mine)
            lines.append(
                f"| {campaign.goals} | {name} | {campaign.promise} | {trials:,} | {violations} | {took:.0f} s |"
            )
    points, broken = sum(tally.trials for tally in tallies), sum(tally.violations for tally in tallies)
    lines.append(f"| | all | | {points:,} | {broken} | {seconds:.0f} s by the clock |")
    today = datetime.now(UTC).date()
    where = f"Linux {platform.release()}, Python {platform.python_version()}, seed {seed}"
    return "\n".join([*lines, "", f"{today}, {where}."])


def record(table: str) -> None:
    """Put it into the page on reliability, in place of the one from before."""
    before, rest = PAGE.read_text().split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}")
