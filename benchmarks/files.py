"""Capturing, restoring and comparing files, against a shadow git repository as coding agents keep one.

    python -m benchmarks.files [--only NAME ...] [--files N] [--scale] [--folder FOLDER]

Both sides have the same tree, each its own copy, and take turns at the same changes. A full run with --scale replaces
its section of RESULTS.md; any other only prints.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.captures import measure_command, measure_first, measure_library
from benchmarks.large import measure_large
from benchmarks.many import measure_many, measure_scale
from benchmarks.measure import size
from benchmarks.report import Findings, Report, measure_part, number_from, parser_of, run_all
from benchmarks.restores import measure_copy, measure_diff, measure_restore
from benchmarks.sides import Pair, Settings

FILES = 50_000

PARTS: dict[str, Callable[[Settings], Findings]] = {
    "first": measure_first,
    "command": measure_command,
    "library": measure_library,
    "restore": measure_restore,
    "copy": measure_copy,
    "diff": measure_diff,
    "large": measure_large,
    "many": measure_many,
    "scale": measure_scale,
}


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    names = options.only or [name for name in PARTS if name != "scale" or options.scale]

    def measure(folder: Path) -> Report:
        pair = Pair(folder, options.files)
        settings = Settings(folder, options.files, pair)
        findings = [measure_part(name, folder, _part(name, settings)) for name in names]
        pair.close()
        return Report(_explain(pair), findings)

    return run_all("files", options.folder, measure, is_full=(options.files, set(names)) == (FILES, set(PARTS)))


def _part(name: str, settings: Settings) -> Callable[[Path], Findings]:
    return lambda folder: PARTS[name](settings._replace(folder=folder))


def _explain(pair: Pair) -> list[str]:
    made = pair.made["ours"]
    version = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    missing = [name for name in ("restic", "borg") if shutil.which(name) is None]
    return [
        f"{version}; not measured: restic, borg{' (not installed)' if len(missing) == 2 else ''}",
        f"The tree: {made.total:,} files, {made.folders:,} folders, {size(made.size)}; du: {size(made.allocated)}.",
        "Medians, with p10..p90 in parentheses. Warm caches; both sides take turns, each on its own copy of the tree.",
        "What was written before is synced before each timing, outside of it.",
        "Theirs is `git add -A && git commit -q` in a shadow repository, GIT_DIR elsewhere, with git's defaults.",
        "Automatic gc is off, since it would go on behind the timings; one `git gc` follows the first commit.",
        "By default git does not sync loose objects; ours is durable when it returns.",
    ]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = parser_of("files", PARTS)
    parser.add_argument("--files", type=number_from(1000), default=FILES, help="of the tree")
    parser.add_argument("--scale", action="store_true", help="also with a tenth and with four times as many files")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
