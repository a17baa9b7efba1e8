"""One run of a benchmark: its command line, a folder to measure in, its parts one by one, and what it tells."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import IN_MEMORY, Row, facts, file_system, say, table, write_results


class Findings(NamedTuple):
    rows: list[Row]
    notes: list[str]


class Report(NamedTuple):
    """How it was measured, and what that gave."""

    explanation: list[str]
    findings: list[Findings]


def parser_of(name: str, parts: Iterable[str]) -> argparse.ArgumentParser:
    """With the options that all benchmarks have."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--only", action="append", choices=list(parts), help="this part alone; may be repeated")
    parser.add_argument("--folder", help="where to measure; a folder of its own is made there and removed")
    return parser


def number_from(least: int) -> Callable[[str], int]:
    """How an option is read that is a number, and not below `least`."""

    def count(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"at least {least}")
        return value

    return count


def measure_part(name: str, folder: Path, measure: Callable[[Path], Findings]) -> Findings:
    """In a folder of its own."""
    say(f"== {name}")
    own = folder / name
    own.mkdir()
    found = measure(own)
    shutil.rmtree(own)
    for row in found.rows:
        say(f"  {row.measure}: {row.ours} against {row.other}, {row.ratio}, {row.result}")
    return found


def run_all(name: str, parent: str | None, measure: Callable[[Path], Report], *, is_full: bool) -> int:
    """Measure on a disk, print it, and if it is a full run put it into the results; the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="lastgood-bench-", dir=parent))
    try:
        if (kind := file_system(folder)) in IN_MEMORY:
            print(f"{kind} is not durable: give a --folder on a disk", file=sys.stderr)
            return 2
        about = facts(folder)
        report = measure(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = [row for found in report.findings for row in found.rows]
    notes = about + report.explanation + [note for found in report.findings for note in found.notes]
    text = "\n".join([f"## {name.capitalize()}", "", *(f"- {note}" for note in notes), "", table(rows)])
    say(f"\n{text}\n")
    if is_full:
        write_results(name, text)
    else:
        say("A shortened run: RESULTS.md stays as it is.")
    return 0
