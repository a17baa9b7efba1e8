"""Collecting garbage, keeping to a quota and checking a store, against `git gc` and `sha256sum` on the same history.

    python -m benchmarks.collect [--only NAME ...] [--files N] [--checkpoints N] [--folder FOLDER]

Both sides have the same tree and the same changes, and lose every second checkpoint. A full run replaces its section of
RESULTS.md; any other only prints.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.garbage import measure_collect, measure_disk, measure_saves
from benchmarks.history import History, make_history
from benchmarks.measure import size
from benchmarks.report import Findings, Report, measure_part, number_from, parser_of, run_all
from benchmarks.upkeep import Settings, measure_check, measure_limit
from lastgood.store import Store

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

    def measure(folder: Path) -> Report:
        history = make_history(folder, options.files, options.checkpoints, CHANGES)
        findings = [measure_part(name, folder, _part(name, history)) for name in names]
        return Report(_explain(history), findings)

    is_full = (options.files, options.checkpoints, set(names)) == (FILES, CHECKPOINTS, set(PARTS))
    is_full = is_full and all(hasattr(Store, needed) for needed, _ in PARTS.values())
    return run_all("collect", options.folder, measure, is_full=is_full)


def _part(name: str, history: History) -> Callable[[Path], Findings]:
    needed, measure = PARTS[name]
    if not hasattr(Store, needed):
        return lambda _: Findings([], [f"Not measured, {name}: there is no store.{needed}."])
    return lambda folder: measure(Settings(folder, history))


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
    parser = parser_of("collect", PARTS)
    parser.add_argument("--files", type=number_from(100), default=FILES, help="of the tree")
    parser.add_argument("--checkpoints", type=_eights, default=CHECKPOINTS, help="of the history")
    return parser.parse_args(arguments)


def _eights(text: str) -> int:
    """A quarter of them must be even, too: the last one stays."""
    if (value := int(text)) < 8 or value % 8:
        raise argparse.ArgumentTypeError("a multiple of 8")
    return value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
