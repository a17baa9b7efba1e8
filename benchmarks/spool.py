"""How long a save takes while the store is away.

    python -m benchmarks.spool [--only NAME ...] [--saves N] [--folder FOLDER]

Three ways to be away, each for 1,000 saves of a conversation that grows: the store's folder is gone, another process
holds the database, the disk is full. After the first failure no save may take longer than 50 ms; when the store is
back everything comes into it, in order, and nothing is lost. A full run replaces its section of RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.outages import full, gone, locked

import lastgood
from benchmarks.conversation import conversation
from benchmarks.measure import Row, duration
from benchmarks.report import Findings, Report, measure_part, number_from, parser_of, run_all
from lastgood.catalog.sqlite import connection

SAVES, LONGEST_SECONDS = 1000, 0.05
BUSY_MS = 500  # 10 s else, twice: the first failure takes as long


class Spread(NamedTuple):
    median: float
    p99: float
    longest: float

    def __str__(self) -> str:
        return f"{duration(self.longest)} (median {duration(self.median)}, p99 {duration(self.p99)})"


class Measured(NamedTuple):
    """`undelayed`: without what a save waited for a processor. `disk`: 4 KiB written and synced between the saves."""

    first: float
    saves: Spread
    undelayed: Spread
    disk: Spread
    replay: float
    lost: int
    in_order: bool
    whole: bool


def main(arguments: list[str]) -> int:
    parser = parser_of("spool", WAYS)
    parser.add_argument("--saves", type=number_from(100), default=SAVES, help="while the store is away")
    options = parser.parse_args(arguments)
    connection.BUSY_MS = BUSY_MS

    def measure(folder: Path) -> Report:
        parts = [name for name in WAYS if not options.only or name in options.only]
        findings = [measure_part(name, folder, partial(_find, name, options)) for name in parts]
        return Report(_explain(options), findings)

    return run_all("spool", options.folder, measure, is_full=not options.only and options.saves == SAVES)


def _find(name: str, options: argparse.Namespace, folder: Path) -> Findings:
    with _place(folder, name) as place:
        if place is None:
            return Findings([], [f"{name}: NOT MEASURED, mounting needs root."])
        found = _measure(place, WAYS[name], options.saves)
    target = f"<= {duration(LONGEST_SECONDS)}"
    is_met = found.saves.longest <= LONGEST_SECONDS
    kept = f"{found.lost} lost, {'in order' if found.in_order else 'NOT IN ORDER'}"
    is_kept = not found.lost and found.in_order and found.whole
    return Findings(
        [
            Row(f"{name}: longest save", str(found.saves), str(found.disk), "–", target, _say(is_met)),
            Row("… without waiting for a processor", str(found.undelayed), "–"),
            Row("… after replay", kept, "–", "–", "0 lost, in order", _say(is_kept)),
        ],
        [f"{name}: the first save that failed took {duration(found.first)}, replay {duration(found.replay)}."],
    )


def _say(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def _measure(folder: Path, away: Callable[[Path], AbstractContextManager[None]], saves: int) -> Measured:
    messages = conversation(saves + 1)
    with lastgood.open(folder / "store", spool=folder / "spool", warn_state_bytes=1 << 30) as store:
        task = store.task("t")
        saved = [task.save(_state(messages, 0))]
        took: list[float] = []
        undelayed: list[float] = []
        disk: list[float] = []
        with away(folder), tempfile.TemporaryFile(dir=folder) as file:
            for number in range(1, saves + 1):
                disk.append(_write_and_sync(file.fileno()))
                began, delay = time.perf_counter(), _delay()
                saved.append(task.save(_state(messages, number)))
                took.append(time.perf_counter() - began)
                undelayed.append(took[-1] - (_delay() - delay))
        began = time.perf_counter()
        store.replay()
        replay = time.perf_counter() - began
        line = list(reversed(_all(store)))
        lost = len({each.id for each in saved} - {each.id for each in line})
        is_same = all(each.state == _state(messages, number) for number, each in list(enumerate(line))[:: saves // 50])
        first = next((index for index, each in enumerate(saved[1:]) if each.status == "spooled"), None)
        assert first is not None, "the store was never away"
        return Measured(
            took[first],
            _spread(took[first + 1 :]),
            _spread(undelayed[first + 1 :]),
            _spread(disk),
            replay,
            lost,
            [each.id for each in line] == [each.id for each in saved],
            is_same and store.check().ok,
        )


def _spread(values: list[float]) -> Spread:
    ordered = sorted(values)
    return Spread(ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1])


def _write_and_sync(descriptor: int) -> float:
    """In place, so that a full disk takes it, too; what a save cannot be faster than."""
    began = time.perf_counter()
    with suppress(OSError):
        os.pwrite(descriptor, bytes(4096), 0)
        os.fsync(descriptor)
    return time.perf_counter() - began


def _delay() -> float:
    """How long this thread has waited for a processor, where the system tells: on a busy machine that is most of it."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _state(messages: list[Any], number: int) -> dict[str, Any]:
    return {"messages": messages[: 1 + number % 200], "step": number}


def _all(store: lastgood.Store) -> list[lastgood.Checkpoint]:
    found = store.list_checkpoints("t", limit=1000)
    while more := store.list_checkpoints("t", limit=1000, before=found[-1].sequence):
        found += more
    return found


@contextmanager
def _full_but_for_the_spool(folder: Path) -> Iterator[None]:
    with full(folder):
        yield


WAYS: dict[str, Callable[[Path], AbstractContextManager[None]]] = {
    "folder gone": lambda folder: gone(folder / "store"),
    "database locked": lambda folder: locked(folder / "store" / "catalog.sqlite"),
    "disk full": _full_but_for_the_spool,
}


@contextmanager
def _place(folder: Path, name: str) -> Iterator[Path | None]:
    """Where to measure: a disk of its own if it is to be full."""
    if name != "disk full":
        yield folder
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode != 0:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def _explain(options: argparse.Namespace) -> list[str]:
    return [
        f"{options.saves:,} saves of a conversation while the store is away; the longest after the first that failed.",
        "Beside it: 4 KiB written and synced between the saves, which no save can be faster than. The full disk is in",
        "memory, because it has to be small; the other two are on the disk.",
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
