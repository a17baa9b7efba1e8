"""What is done to a store while faults happen to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.faults import shim
from tests.faults.acting import Actor, write_files


class Scenario(NamedTuple):
    """`prepare` runs undisturbed, once; `act` runs once for each fault."""

    prepare: Callable[[Actor], None]
    act: Callable[[Actor], None]


def _nothing(actor: Actor) -> None:
    pass


# --- saving ---------------------------------------------------------------------------------------------------------


def _state(number: int, size: int = 40) -> dict[str, Any]:
    return {"n": number, "log": [f"entry {one} of {number} " * 9 for one in range(size)], "raw": bytes([number]) * 700}


def _first_saves(actor: Actor) -> None:
    write_files(actor.world.work, ["a", "b", "deep/c"], seed=1, size=400)
    with shim.pause():
        (actor.world.work / "link").symlink_to("a")
        (actor.world.work / "empty").mkdir()
    for number in range(3):
        actor.save(actor.task, _state(number), f"save {number}")


def _save_inline(actor: Actor) -> None:
    task = actor.task
    for number in range(3, 5):
        write_files(actor.world.work, ["a", "deep/new"], seed=number, size=300)
        actor.save(task, _state(number), f"save {number}")


def _save_packed(actor: Actor) -> None:
    task = actor.task
    for number in range(3, 5):
        write_files(actor.world.work, [f"many/{one % 4}/{one}" for one in range(30)], seed=number)
        actor.save(task, _state(number), f"save {number}")


def _save_large(actor: Actor) -> None:
    task = actor.task
    write_files(actor.world.work, ["large"], seed=7, size=2_500_000)
    actor.save(task, _state(3), "save 3")
    with shim.pause(), (actor.world.work / "large").open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"changed")
    actor.save(task, _state(4, 3000), "save 4")


SCENARIOS = {
    "create": Scenario(_nothing, _first_saves),
    "save inline": Scenario(_first_saves, _save_inline),
    "save packed": Scenario(_first_saves, _save_packed),
    "save large": Scenario(_first_saves, _save_large),
}
