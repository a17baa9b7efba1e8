"""Collecting garbage, keeping to a quota and checking a store, against `git gc` and `sha256sum` on the same history.

    python -m benchmarks.collect [--only NAME ...] [--files N] [--checkpoints N] [--folder FOLDER]

Both sides have the same tree and the same changes, and lose every second checkpoint. A full run replaces its section of
RESULTS.md; any other only prints.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.garbage import measure_collect, measure_disk, measure_saves
from benchmarks.history import History, make_history
from benchmarks.measure import IN_MEMORY, facts, file_system, say, size, table, write_results
from benchmarks.upkeep import Findings, Settings, measure_check, measure_limit
from lastgood.engine.store import Store

FILES, CHECKPOINTS, CHANGES = 50_000, 1000, 10

PARTS: dict[str, tuple[str, Callable[[Settings], Findings]]] = {
    "collect": ("collect", measure_collect),
    "disk": ("collect", measure_disk),
    "saves": ("collect", measure_saves),
    "limit": ("limit", measure_limit),
    "check": ("check", measure_check),
}
"""By name: the method of a store that it needs, and how it is measured."""


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    names = options.only or list(PARTS)
    folder = Path(tempfile.mkdtemp(prefix="lastgood-bench-", dir=options.folder))
    try:
        if (kind := file_system(folder)) in IN_MEMORY:
            print(f"{kind} is not durable: give a --folder on a disk", file=sys.stderr)
            return 2
        about = facts(folder)
        history = make_history(folder, options.files, options.checkpoints, CHANGES)
        findings = [_measure(name, Settings(folder / name, history)) for name in names]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    notes = about + _explain(history) + [note for found in findings for note in found.notes]
    rows = [row for found in findings for row in found.rows]
    text = "\n".join(["## Collecting", "", *(f"- {note}" for note in notes), "", table(rows)])
    say(f"\n{text}\n")
    if (options.files, options.checkpoints, set(names)) == (FILES, CHECKPOINTS, set(PARTS)):
        write_results("collect", text)
    else:
        say("A shortened run: RESULTS.md stays as it is.")
    return 0


def _measure(name: str, settings: Settings) -> Findings:
    needed, measure = PARTS[name]
    say(f"== {name}")
    if not hasattr(Store, needed):
        say(f"  there is no store.{needed}")
        return Findings([], [f"Not measured, {name}: there is no store.{needed}."])
    settings.folder.mkdir()
    began = time.monotonic()
    found = measure(settings)
    shutil.rmtree(settings.folder)
    for row in found.rows:
        say(f"  {row.measure}: {row.ours} against {row.other}, {row.ratio}, {row.result}")
    say(f"  {time.monotonic() - began:.0f} s")
    return found


def _explain(history: History) -> list[str]:
    made = history.made
    version = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return [
        version,
        f"The tree: {made.total:,} files, {made.folders:,} folders, {size(made.size)}.",
        f"The history: {history.checkpoints:,} checkpoints with {CHANGES} changed files each; every second is deleted.",
        "Theirs: the same trees as commits, packed as git's automatic gc does it; then nothing leads to every second.",
        "Loose: only the first commit is packed, as where automatic gc is off.",
        "Ours is as the saves left it; every second checkpoint is purged when GC without a grace period is timed.",
        "Medians, with p10..p90 in parentheses. Each round has fresh copies, and the sides take turns.",
        "What was written before is synced before each timing, outside of it.",
    ]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collect")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="this part alone; may be repeated")
    parser.add_argument("--files", type=int, default=FILES, help="of the tree")
    parser.add_argument("--checkpoints", type=_eights, default=CHECKPOINTS, help="of the history")
    parser.add_argument("--folder", help="where to measure; a folder of its own is made there and removed")
    return parser.parse_args(arguments)


def _eights(text: str) -> int:
    """A quarter of them must be even, too: the last one stays."""
    if (value := int(text)) < 8 or value % 8:
        raise argparse.ArgumentTypeError("a multiple of 8")
    return value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
