"""How long a save takes while the store is away: `python -m benchmarks.spool [saves]`.

Three ways to be away, each for 1,000 saves of a conversation that grows: the store's folder is gone, another process
holds the database, the disk is full. After the first failure no save may take longer than 50 ms; when the store is
back everything comes into it, in order, and nothing is lost. Nobody asks for the store less often because of this.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.spooling import full, gone, locked

import lastgood
from benchmarks.conversation import conversation
from benchmarks.measure import duration, say
from lastgood.catalog.sqlite import connection

SAVES, LONGEST_SECONDS = 1000, 0.05
BUSY_MS = 500  # 10 s else, twice: the first failure takes as long


class Spread(NamedTuple):
    median: float
    p99: float
    longest: float

    def __str__(self) -> str:
        return f"median {duration(self.median)}, p99 {duration(self.p99)}, longest {duration(self.longest)}"


class Measured(NamedTuple):
    first: float
    saves: Spread
    computing: Spread
    on_processor_or_blocked: Spread
    disk: Spread
    replay: float
    lost: int
    in_order: bool
    whole: bool


def measure(folder: Path, away: Callable[[Path], AbstractContextManager[None]], saves: int) -> Measured:
    messages = conversation(saves + 1)
    with lastgood.open(folder / "store", spool=folder / "spool", warn_state_bytes=1 << 30) as store:
        task = store.task("t")
        saved = [task.save(_state(messages, 0))]
        took: list[float] = []
        computed: list[float] = []
        undelayed: list[float] = []
        disk: list[float] = []
        with away(folder), tempfile.TemporaryFile(dir=folder) as file:
            for number in range(1, saves + 1):
                disk.append(_write_and_sync(file.fileno()))
                began, began_computing, delay = time.perf_counter(), time.thread_time(), _delay()
                saved.append(task.save(_state(messages, number)))
                took.append(time.perf_counter() - began)
                computed.append(time.thread_time() - began_computing)
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
            _spread(computed[first + 1 :]),
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


def main() -> None:
    saves = int(sys.argv[1]) if len(sys.argv) > 1 else SAVES
    connection.BUSY_MS = BUSY_MS
    say(f"{saves} saves while the store is away")
    for name, away in WAYS.items():
        with tempfile.TemporaryDirectory(prefix="lastgood-spool-") as scratch:
            folder = Path(scratch)
            if name == "disk full" and not _mount(folder):
                say(f"  {name}: NOT MEASURED, mounting needs root")
                continue
            try:
                found = measure(folder, away, saves)
            finally:
                _unmount(folder)
        met = found.saves.longest <= LONGEST_SECONDS and not found.lost and found.in_order and found.whole
        say(f"  {name}: {'met' if met else 'NOT MET'}")
        say(f"    the first that failed {duration(found.first)}; then each, all of it: {found.saves}")
        say(f"    without what it waited for a processor: {found.on_processor_or_blocked}")
        say(f"    computing: {found.computing}")
        say(f"    the disk alone, 4 KiB written and synced between the saves: {found.disk}")
        say(f"    replay {duration(found.replay)}; lost {found.lost}, in order {found.in_order}, whole {found.whole}")


def _mount(folder: Path) -> bool:
    return os.system(f"mount -t tmpfs -o size=64m tmpfs {folder} 2>/dev/null") == 0


def _unmount(folder: Path) -> None:
    if os.path.ismount(folder):
        os.system(f"umount -l {folder}")


if __name__ == "__main__":
    main()
