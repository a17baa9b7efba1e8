"""What benchmarks share: timing, medians and their spread, facts about the machine, tables, the results file."""

from __future__ import annotations

import os
import platform
import resource
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import apsw

RESULTS = Path(__file__).with_name("RESULTS.md")
IN_MEMORY = ("tmpfs", "ramfs")


def seconds(action: Callable[[], Any]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def interleave(actions: dict[str, Callable[[], float]], rounds: int) -> dict[str, Series]:
    """Each action's own timing once a round, beginning with another one each round."""
    series: dict[str, Series] = {name: Series() for name in actions}
    names = list(actions)
    for round_ in range(rounds):
        first = round_ % len(names)
        for name in names[first:] + names[:first]:
            series[name].append(actions[name]())
    return series


class Series(list[float]):
    """Seconds, one for each time something was done."""

    @property
    def median(self) -> float:
        return statistics.median(self)

    def __str__(self) -> str:
        if len(self) < 2:
            return duration(self.median)
        tenths = statistics.quantiles(self, n=10, method="inclusive")
        return f"{duration(self.median)} ({duration(tenths[0])}..{duration(tenths[-1])})"


def duration(value: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def size(value: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f} B"


# --- what was found ----------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One line of the final table. Without a target it only informs."""

    measure: str
    ours: str
    other: str
    ratio: str = "–"
    target: str = "–"
    result: str = "–"


def at_least(measure: str, ours: float, other: float, target: float, ours_text: str, other_text: str) -> Row:
    """Ours is to be `target` times smaller than the other."""
    ratio = other / ours
    return Row(measure, ours_text, other_text, f"{ratio:.3g}x less", f">= {target:g}x less", _result(ratio >= target))


def at_most(measure: str, ours: float, other: float, target: float, ours_text: str, other_text: str) -> Row:
    """Ours is to be no more than `target` times the other."""
    ratio = ours / other
    return Row(measure, ours_text, other_text, f"{ratio:.3g}x", f"<= {target:g}x", _result(ratio <= target))


def reaches(measure: str, ours: float, other: float, target: float, ours_text: str, other_text: str) -> Row:
    """Ours is to be at least `target` times the other: a rate, of which more is better."""
    ratio = ours / other
    return Row(measure, ours_text, other_text, f"{ratio:.3g}x", f">= {target:g}x", _result(ratio >= target))


def inform(measure: str, ours: Any, theirs: Any, show: Callable[[Any], str] = str) -> Row:
    numbers = [each.median if isinstance(each, Series) else each for each in (ours, theirs)]
    return Row(measure, show(ours), show(theirs), f"{numbers[0] / numbers[1]:.3g}x")


def _result(met: bool) -> str:
    return "met" if met else "MISSED"


def table(rows: Sequence[Row]) -> str:
    """A table that reads well both in a terminal and as Markdown."""
    head = Row("measure", "ours", "theirs / baseline", "ratio", "target", "result")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [head, Row(*("-" * width for width in widths)), *rows]
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)


def write_results(name: str, text: str, file: Path = RESULTS) -> None:
    """Put `text` between the markers of benchmark `name`, and leave the rest of the file as it is."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    section = f"{begin}\n{text.strip()}\n{end}"
    old = file.read_text(encoding="utf-8") if file.exists() else "# Results\n"
    before, marker, rest = old.partition(begin)
    _, ended, after = rest.partition(end)
    if not marker:
        new = f"{old.rstrip()}\n\n{section}\n"
    elif ended:
        new = before + section + after
    else:
        raise ValueError(f"{file.name} has {begin} without {end}")
    file.write_text(new, encoding="utf-8")


# --- where it was found ------------------------------------------------------------------------------------


def facts(folder: Path) -> list[str]:
    """When, and on what kind of machine."""
    busy = os.getloadavg()[0]
    return [
        f"Date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"CPU: {_cpu()}, {os.cpu_count()} cores; load of the last minute {busy:.1f}",
        f"System: {platform.system()} {platform.release().split('-')[0]}, file system {file_system(folder)}",
        f"Python {platform.python_version()}",
        f"SQLite {apsw.sqlite_lib_version()} (apsw, ours), {sqlite3.sqlite_version} (sqlite3, the peer's)",
    ]


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def file_system(folder: Path) -> str:
    """The type of the file system that `folder` is on."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    place = str(folder.resolve())
    holding = [(len(mount[1]), mount[2]) for mount in mounts if _holds(mount[1], place)]
    return max(holding)[1] if holding else "unknown"


def _holds(mount: str, place: str) -> bool:
    return mount == "/" or place == mount or place.startswith(mount + "/")


def environment_with(bytecode: Path) -> dict[str, str]:
    """With compiled modules, as an installed lastgood has them, whatever this clone's environment forbids."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LASTGOOD")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "PYTHONPYCACHEPREFIX": str(bytecode)}


def peak_memory() -> int:
    """Bytes this process has held at most.

    Linux counts the parent's peak into a child's ru_maxrss when it is started by vfork, so the process's own
    high-water mark is read there.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def files_size(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.is_file())


def say(text: str) -> None:
    print(text, flush=True)
