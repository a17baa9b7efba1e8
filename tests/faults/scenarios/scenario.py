"""What a scenario is, and what many of them begin with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tests.faults import shim
from tests.faults.worker import Worker, write_files


class Scenario(NamedTuple):
    """`prepare` runs undisturbed, once; `run` runs once for each fault. Each in a process of its own, which may set
    constants of lastgood to what it needs. `beside` is what another process does meanwhile, undisturbed, again and
    again with the number of the round; and once more when `run` is over, however it ended."""

    prepare: Callable[[Worker], None]
    run: Callable[[Worker], None]
    beside: Callable[[Worker, int], None] | None = None


def tune(module: ModuleType, **constants: Any) -> None:
    """For the rest of this process."""
    for name, value in constants.items():
        assert hasattr(module, name), f"{module.__name__} has no {name}"
        setattr(module, name, value)


def nothing(worker: Worker) -> None:
    pass


def some_state(number: int, size: int = 40) -> dict[str, Any]:
    return {"n": number, "log": [f"entry {one} of {number} " * 9 for one in range(size)], "raw": bytes([number]) * 700}


def packs(worker: Worker) -> list[Path]:
    """The files of the store that hold many blobs each."""
    return [path for path in (worker.sandbox.store / "objects" / "packs").rglob("*") if path.is_file()]


def save_some(worker: Worker) -> None:
    """Three saves of the same few files."""
    write_files(worker.sandbox.work, ["a", "b", "deep/c"], seed=1, size=400)
    with shim.pause():
        (worker.sandbox.work / "link").symlink_to("a")
        (worker.sandbox.work / "empty").mkdir()
    for number in range(3):
        worker.save(worker.task, some_state(number), f"save {number}")
