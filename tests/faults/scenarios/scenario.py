"""What a scenario is, and what many of them begin with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tests.faults import shim
from tests.faults.acting import Actor, write_files


class Scenario(NamedTuple):
    """`prepare` runs undisturbed, once; `act` runs once for each fault. Each in a process of its own, which may set
    constants of lastgood to what it needs. `beside` is what another process does meanwhile, undisturbed, again and
    again with the number of the round; and once more when `act` is over, however it ended."""

    prepare: Callable[[Actor], None]
    act: Callable[[Actor], None]
    beside: Callable[[Actor, int], None] | None = None


def tune(module: ModuleType, **constants: Any) -> None:
    """For the rest of this process."""
    for name, value in constants.items():
        assert hasattr(module, name), f"{module.__name__} has no {name}"
        setattr(module, name, value)


def nothing(actor: Actor) -> None:
    pass


def some_state(number: int, size: int = 40) -> dict[str, Any]:
    return {"n": number, "log": [f"entry {one} of {number} " * 9 for one in range(size)], "raw": bytes([number]) * 700}


def packs(actor: Actor) -> list[Path]:
    """The files of the store that hold many blobs each."""
    return [path for path in (actor.world.store / "objects" / "packs").rglob("*") if path.is_file()]


def save_some(actor: Actor) -> None:
    """Three saves of the same few files."""
    write_files(actor.world.work, ["a", "b", "deep/c"], seed=1, size=400)
    with shim.pause():
        (actor.world.work / "link").symlink_to("a")
        (actor.world.work / "empty").mkdir()
    for number in range(3):
        actor.save(actor.task, some_state(number), f"save {number}")
