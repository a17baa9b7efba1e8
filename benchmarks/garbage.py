"""Collecting garbage: how long it takes, how much disk it takes meanwhile, and what it does to saves."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.history import TASK, git
from benchmarks.measure import Row, Series, at_most, duration, interleave, seconds, size
from benchmarks.report import Findings
from benchmarks.tree import change
from benchmarks.upkeep import ROUNDS, Settings, fresh, settled, upkeep
from lastgood.opening import open_store
from lastgood.store import Store
from lastgood.task import Task

SAVES = 300
ROOT = Path(__file__).resolve().parents[1]


def collect_all(store: Store) -> None:
    """All that may go, at once."""
    upkeep(store).collect(grace=0)


def measure_collect(settings: Settings) -> Findings:
    history = settings.history
    objects: dict[Path, int] = {}
    left: dict[Path, int] = {}

    def collect_ours(source: Path) -> Callable[[], float]:
        def collect() -> float:
            with fresh(source, settings.folder / "store") as place:
                with open_store(place) as store:
                    objects[source] = _count_objects(store)
                    took = settled(lambda: collect_all(store))
                    assert store.usage().unreferenced_bytes == 0, "not everything was collected"
                left[source] = _taken(place)
            return took

        return collect

    def collect_theirs(source: Path) -> Callable[[], float]:
        def collect() -> float:
            with fresh(source, settings.folder / "repository") as place:
                took = settled(lambda: git(place, "gc", "-q", "--prune=now"))
                assert not git(place, "fsck", "--unreachable", "--connectivity-only"), "not everything was collected"
                left[source] = _taken(place)
            return took

        return collect

    actions = {
        "early": collect_ours(history.early),
        "ours": collect_ours(history.store),
        "theirs": collect_theirs(history.repository),
    }
    series = interleave(actions, ROUNDS)
    loose = collect_theirs(history.loose)()
    ours, theirs, early = series["ours"], series["theirs"], series["early"]
    each = {source: took.median / objects[source] for source, took in ((history.store, ours), (history.early, early))}
    return Findings(
        [
            at_most("GC after deleting half", ours.median, theirs.median, 1, str(ours), f"{theirs}, git gc"),
            Row(
                "… against loose objects, once", str(ours), f"{duration(loose)}, git gc", f"{ours.median / loose:.3g}x"
            ),
            at_most(
                "… for each object, all checkpoints against a quarter",
                each[history.store],
                each[history.early],
                1.5,
                f"{duration(each[history.store])}, {objects[history.store]:,} objects",
                f"{duration(each[history.early])}, {objects[history.early]:,} objects",
            ),
            Row("… what is left on disk", size(left[history.store]), size(left[history.repository])),
        ],
        [],
    )


def _count_objects(store: Store) -> int:
    count, page = 0, store._engine.catalog.indexed()
    while page:
        count += len(page)
        page = store._engine.catalog.indexed(page[-1].number)
    return count


def measure_disk(settings: Settings) -> Findings:
    """The most that is taken while another process collects."""
    with fresh(settings.history.store, settings.folder / "store") as place:
        before, largest = _taken(place), _largest_pack(place)
        peak = before
        with _collecting(place) as process:
            while process.poll() is None:
                peak = max(peak, _taken(place))
        largest = max(largest, _largest_pack(place))
    allowed = largest + 0.05 * before
    row = at_most(
        "peak extra disk of GC",
        peak - before,
        allowed,
        1,
        f"{size(peak - before)} on {size(before)}",
        f"{size(allowed)}, one pack + 5%",
    )
    return Findings([row], [])


@contextmanager
def _collecting(place: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that collects; it has just begun."""
    code = (
        "import sys\n"
        "from benchmarks.garbage import collect_all, open_store\n"
        "with open_store(sys.argv[1]) as store:\n"
        "    print('ready', flush=True)\n"
        "    collect_all(store)\n"
    )
    command = [sys.executable, "-c", code, str(place)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", "it did not even begin"
        yield process
        if process.wait():
            raise RuntimeError("collecting failed")


def _taken(folder: Path) -> int:
    """As `du` counts it; what goes meanwhile is not counted."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118
            except FileNotFoundError:
                continue
    return total


def _largest_pack(place: Path) -> int:
    packs = (place / "objects" / "packs").rglob("*")
    return max((pack.stat().st_size for pack in packs if pack.is_file()), default=0)


# --- saving meanwhile ----------------------------------------------------------------------------------------------


def measure_saves(settings: Settings) -> Findings:
    """One file changed and saved through a handle that watches, again and again, while another process collects."""
    history, steps = settings.history, iter(range(1 << 30))
    alone, beside = Series(), Series()

    def save(task: Task, file: Path) -> float:
        step = next(steps)
        change([file], step)
        return seconds(lambda: task.save({"step": step}))

    for file in history.made.files[:ROUNDS]:
        with fresh(history.store, settings.folder / "store") as place, open_store(place) as store:
            task = store.task(TASK, workspace=history.tree, watch=True)
            task.save({})
            alone += [save(task, file) for _ in range(SAVES)]
            with _collecting(place) as process:
                while process.poll() is None:
                    beside.append(save(task, file))
    slow, usual = _slowest(beside), _slowest(alone)
    return Findings(
        [at_most("a save while GC runs, p99", slow, usual, 3, duration(slow), f"{duration(usual)}, without")],
        [f"Saves: {len(beside):,} while GC ran, median {duration(beside.median)}; without {duration(alone.median)}."],
    )


def _slowest(series: Series) -> float:
    """The one that 99 in 100 are faster than."""
    return statistics.quantiles(series, n=100, method="inclusive")[-1]
