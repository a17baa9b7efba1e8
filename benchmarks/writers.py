"""Several threads, and several processes, that save to one store at once."""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks.bulk import USER, small_state
from benchmarks.measure import Row, at_most, duration, reaches, say
from lastgood.opening import open_store

WRITERS = 8
SAVES = 1600  # in all, however many share them
ROUNDS = 9

Run = Callable[[Path, int], tuple[float, list[float]]]
"""Has so many writers do all saves: how long that took, and how long each save took (where that is known)."""

WRITER = """
import json, sys, time
from benchmarks.bulk import small_state
from lastgood.opening import open_store
store = open_store(sys.argv[1], user="bench")
task = store.task(sys.argv[2])
task.save(small_state(0))
print("ready", flush=True)
sys.stdin.readline()
took = []
for step in range(int(sys.argv[3])):
    state = small_state(step)
    start = time.perf_counter()
    task.save(state)
    took.append(time.perf_counter() - start)
print(json.dumps(took), flush=True)
sys.stdin.readline()
store.close()
"""


def measure_writers(folder: Path) -> list[Row]:
    return [*_compare("threads", folder, _threads, 1.5), *_compare("processes", folder, _processes, 0.8)]


def _compare(what: str, folder: Path, run: Run, target: float) -> list[Row]:
    rates: dict[int, list[float]] = {1: [], WRITERS: []}
    latencies: list[float] = []
    for round_ in range(ROUNDS):
        say(f"  {what}, round {round_ + 1} of {ROUNDS}")
        for count in (1, WRITERS) if round_ % 2 else (WRITERS, 1):
            took, each = run(folder / f"{what}-{round_}-{count}", count)
            rates[count].append(SAVES / took)
            if count == WRITERS:
                latencies += each
    many, one = (statistics.median(rates[count]) for count in (WRITERS, 1))
    measure = f"{WRITERS} {what}, saves in a second"
    rows = [reaches(measure, many, one, target, _spread(rates[WRITERS]), f"{_spread(rates[1])}, one")]
    if what == "processes":
        median, p99 = statistics.median(latencies), statistics.quantiles(latencies, n=100)[98]
        rows.append(
            at_most("… their slowest in 100 against the median", p99, median, 10, duration(p99), duration(median))
        )
    return rows


def _threads(folder: Path, count: int) -> tuple[float, list[float]]:
    with open_store(folder, user=USER) as store:
        tasks = [store.task(f"task {number}") for number in range(count)]
        go = threading.Barrier(count + 1)

        def work(number: int) -> None:
            tasks[number].save(small_state(0))
            go.wait()
            for step in range(SAVES // count):
                tasks[number].save(small_state(step))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        go.wait()
        start = time.perf_counter()
        for thread in threads:
            thread.join()
        return time.perf_counter() - start, []


def _processes(folder: Path, count: int) -> tuple[float, list[float]]:
    open_store(folder, user=USER).close()
    children = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), f"task {number}", str(SAVES // count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(count)
    ]
    _hear(children)
    start = time.perf_counter()
    _tell(children)
    answers = _hear(children)
    took = time.perf_counter() - start
    _tell(children)
    for child in children:
        child.communicate()
    return took, [second for answer in answers for second in msgspec.json.decode(answer, type=list[float])]


def _hear(children: list[subprocess.Popen[bytes]]) -> list[bytes]:
    return [child.stdout.readline() for child in children if child.stdout]


def _tell(children: list[subprocess.Popen[bytes]]) -> None:
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.flush()


def _spread(rates: list[float]) -> str:
    return f"{statistics.median(rates):,.0f}/s ({min(rates):,.0f}..{max(rates):,.0f})"
