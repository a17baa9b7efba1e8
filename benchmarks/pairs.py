"""This checkout against another one, taking turns: what has become slower, and how sure that is.

    python -m benchmarks.pairs OTHER [--pairs N] [--only NAME ...] [--files N] [--folder FOLDER]

Each side is a process of its own with the same Python and packages; only `lastgood` is another. A pair is one timing of
each, one right after the other, the first of them in turns. Given are the median of the ratios this / other, and the
interval that holds the true median with a probability of at least 95%, whatever the distribution (order statistics).
Only the public API and the command line are used, so that other versions can be compared.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAIRS, FILES = 20, 20_000
WARM_UP = 2
SMALL = {"messages": [{"role": "user", "content": f"hello {number}"} for number in range(5)], "round": 0}
Timings = Generator[float, None, None]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench pairs", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("other", type=Path, help="another checkout")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--only", action="append", choices=OPERATIONS)
    parser.add_argument("--files", type=int, default=FILES, help="of the workspace")
    parser.add_argument("--folder", type=Path, help="where to work (default: the temporary folder)")
    options = parser.parse_args(arguments)
    print(f"| {'operation':32} | {'this':>9} | {'other':>9} | this / other | 95% interval |")
    print("|---|---:|---:|---:|---:|")
    for name in options.only or OPERATIONS:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            sides = [Side(name, source, Path(folder) / which, options.files) for which, source in _sources(options)]
            try:
                print(_row(name, _take_turns(sides, options.pairs)), flush=True)
            finally:
                for side in sides:
                    side.close()
    return 0


def _sources(options: argparse.Namespace) -> list[tuple[str, Path]]:
    return [("this", ROOT / "src"), ("other", options.other.resolve() / "src")]


def _take_turns(sides: list[Side], pairs: int) -> list[tuple[float, float]]:
    found = []
    for number in range(WARM_UP + pairs):
        timed = {side: side.time() for side in (sides if number % 2 else reversed(sides))}
        found.append((timed[sides[0]], timed[sides[1]]))
    return found[WARM_UP:]


def _row(name: str, pairs: list[tuple[float, float]]) -> str:
    ratios = sorted(this / other for this, other in pairs)
    outside = _outside(len(ratios))
    low, high = ratios[outside], ratios[-1 - outside]
    this, other = (statistics.median(side) * 1e3 for side in zip(*pairs, strict=True))
    interval = f"{low:.3f}..{high:.3f}"
    return f"| {name:32} | {this:6.3g} ms | {other:6.3g} ms | {statistics.median(ratios):12.3f} | {interval:12} |"


def _outside(count: int) -> int:
    """Return how many of `count` sorted values may be left out on each side of an interval for the median."""
    below, tail = 0, 0.0
    while (tail := tail + math.comb(count, below) / 2**count) <= 0.025:
        below += 1
    return max(0, below - 1)


class Side:
    """A process that times one operation with the `lastgood` of one checkout, each time it is told to."""

    def __init__(self, name: str, source: Path, folder: Path, files: int) -> None:
        folder.mkdir()
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LASTGOOD")}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        environment = {**kept, "PYTHONPATH": str(source), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
        line = [sys.executable, __file__, "--side", name, str(folder), str(files), str(source)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(line, env=environment, stdin=pipe, stdout=pipe, text=True)

    def time(self) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print("go", file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


# --- in the process of one side --------------------------------------------------------------------------------


def serve(name: str, folder: Path, files: int, source: str) -> None:
    import lastgood

    assert lastgood.__file__.startswith(source), f"{lastgood.__file__} is not in {source}"
    timings = OPERATIONS[name](folder, files)
    for _ in sys.stdin:
        print(next(timings), flush=True)


def _timed(action: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def _open(folder: Path) -> Any:
    import lastgood

    return lastgood.open(folder / "store", user="bench", collect="never")


def save_small(folder: Path, files: int) -> Timings:
    """200 saves of a small state."""
    task = _open(folder).task("t")
    numbers = iter(range(1 << 60))

    def save_many() -> None:
        for _ in range(200):
            task.save({**SMALL, "round": next(numbers)})

    while True:
        yield _timed(save_many)


def save_conversation(folder: Path, files: int) -> Timings:
    """100 saves of a conversation of 1,000 messages that grows."""
    task, dice = _open(folder).task("t"), random.Random(1)
    messages = [_message(dice) for _ in range(1000)]

    def save_many() -> None:
        for _ in range(100):
            messages.append(_message(dice))
            task.save({"messages": messages})

    while True:
        yield _timed(save_many)


def _message(dice: random.Random) -> dict[str, Any]:
    return {"role": "user", "content": " ".join(str(dice.random()) for _ in range(60))}


def save_evidence(folder: Path, files: int) -> Timings:
    """50 steps with four pieces of evidence."""
    import lastgood

    for number in range(4):
        (folder / f"made {number}").write_text(str(number))
    store = lastgood.open(folder / "store", user="bench", collect="never", base_path=folder)
    task = store.task("t")

    def run_steps() -> None:
        for _ in range(50):
            with task.step("work") as step:
                step.state = SMALL
                for number in range(4):
                    step.expect_file(f"made {number}")

    while True:
        yield _timed(run_steps)


def list_and_load(folder: Path, files: int) -> Timings:
    """List 1,000 checkpoints, and load the states of 20."""
    store = _open(folder)
    task, dice = store.task("t"), random.Random(1)
    messages: list[Any] = []
    for _ in range(1000):
        messages.append(_message(dice))
        task.save({"messages": messages})
    store.close()

    def look() -> None:
        with _open(folder) as opened:
            found = opened.list_checkpoints("t", limit=1000)
            for checkpoint in found[::50]:
                assert checkpoint.state

    while True:
        yield _timed(look)


def first_capture(folder: Path, files: int) -> Timings:
    """The first save of a workspace."""
    work = _workspace(folder, files)
    while True:
        shutil.rmtree(folder / "store", ignore_errors=True)
        with _open(folder) as store:
            task = store.task("t", workspace=work)
            os.sync()
            yield _timed(partial(task.save, {}))


def save_one_change(folder: Path, files: int) -> Timings:
    """20 saves after one file was changed."""
    task, paths = _captured(folder, files)

    def save_many() -> None:
        for _ in range(20):
            next(paths).write_text(str(time.time_ns()))
            task.save({})

    while True:
        yield _timed(save_many)


def restore_100(folder: Path, files: int) -> Timings:
    """A restore after 100 files were changed."""
    task, paths = _captured(folder, files)
    good = task.head
    while True:
        for _ in range(100):
            next(paths).write_text(str(time.time_ns()))
        os.sync()
        yield _timed(lambda: task.restore(good))


def diff_100(folder: Path, files: int) -> Timings:
    """Compare two checkpoints with 100 files changed, as text."""
    task, paths = _captured(folder, files)
    for _ in range(100):
        next(paths).write_text(str(time.time_ns()))
    before, after = task.head, task.save({})
    while True:
        yield _timed(lambda: task.diff(before, after).files.patch())


def _captured(folder: Path, files: int) -> tuple[Any, Iterator[Path]]:
    work = _workspace(folder, files)
    task = _open(folder).task("t", workspace=work)
    task.save({})
    dice = random.Random(2)
    found = sorted(path for path in work.rglob("*") if path.is_file())
    return task, iter(lambda: dice.choice(found), None)


def _workspace(folder: Path, files: int) -> Path:
    """Make a tree of small text files, 50 in a folder."""
    dice, work = random.Random(3), folder / "work"
    for number in range(files):
        path = work / f"part {number // 1000}" / f"folder {number // 50 % 20}" / f"file {number}.txt"
        if number % 50 == 0:
            path.parent.mkdir(parents=True)
        path.write_text("\n".join(str(dice.random()) for _ in range(dice.randrange(20, 400))))
    time.sleep(0.1)  # files that were written this very moment are not trusted, and would be read again
    return work


def _command(*words: str) -> Callable[[Path, int], Timings]:
    def time_command(folder: Path, files: int) -> Timings:
        place = folder / "place"
        place.mkdir()
        (place / "notes.txt").write_text("a draft")
        line = [sys.executable, "-m", "lastgood.cli.main"]
        for made in (["init"], ["save", "--task", "t", "-m", "first"]):
            subprocess.run([*line, *made], cwd=place, check=True, capture_output=True)
        while True:
            yield _timed(lambda: subprocess.run([*line, *words], cwd=place, check=True, capture_output=True))

    return time_command


OPERATIONS: dict[str, Callable[[Path, int], Timings]] = {
    "200 small saves": save_small,
    "100 saves of a long conversation": save_conversation,
    "50 steps with four claims": save_evidence,
    "list 1,000, load 20": list_and_load,
    "first capture": first_capture,
    "20 saves after one change": save_one_change,
    "restore after 100 changes": restore_100,
    "diff of 100 changes": diff_100,
    "lastgood log": _command("log", "--task", "t"),
    "lastgood save": _command("save", "--task", "t", "-m", "again"),
    "lastgood status": _command("status", "--task", "t"),
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        serve(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    else:
        sys.exit(main(sys.argv[1:]))
