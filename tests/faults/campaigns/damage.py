"""G6: files of a store are damaged while nobody has it open: nothing wrong is said, and only the damaged refused."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.faults import damages
from tests.faults.campaign import Campaign, Plan, Trial
from tests.faults.damages import Damage, Place
from tests.faults.pool import Outcome, WorkerPool
from tests.faults.prepared_scenario import QUICK
from tests.faults.shim import no_compiler

Kind = Callable[[Place, random.Random], Damage]
REPAIR_EVERY = 10


class Aim(NamedTuple):
    """Which files of a store are damaged how often, in which way."""

    find: Callable[[Path, Path], Sequence[Place]]
    kinds: dict[Kind, int]


def _database(folder: Path, old: Path) -> list[Place]:
    return [damages.database(folder, old)]


def _log(folder: Path, old: Path) -> list[Place]:
    return [damages.log(folder, old)]


def _file(name: str) -> Callable[[Path, Path], list[Place]]:
    return lambda folder, old: [damages.plain(folder, old, name)]


def _cache(folder: Path, old: Path) -> list[Place]:
    found = sorted((folder / "objects.cache" / "index").iterdir())
    return [damages.plain(folder, old, str(path.relative_to(folder))) for path in found]


def _exchange_between(place: Place, dice: random.Random) -> Damage:
    others = [one for one in damages.packs(place.folder, place.old) if one.file != place.file]
    return damages.exchange(place, dice, dice.choice(others))


_ALL: dict[Kind, int] = {
    damages.flip: 40,
    damages.scramble: 15,
    damages.zero: 10,
    damages.cut: 10,
    damages.append: 5,
    damages.exchange: 10,
    damages.remove: 1,
    damages.replace: 5,
    damages.restore_old: 1,
}


def _times(count: int) -> dict[Kind, int]:
    total = sum(_ALL.values())
    return {kind: max(1, count * share // total) for kind, share in _ALL.items()}


PARTS: dict[str, tuple[str, Sequence[Aim]]] = {
    "database": (
        "closed",
        [
            Aim(
                _database,
                {
                    **_times(3300),
                    damages.flip_head: 300,
                    damages.exchange: 900,
                    damages.age: 200,
                    damages.restore_all_old: 1,
                },
            )
        ],
    ),
    "packs": (
        "closed",
        [Aim(damages.packs, {**_times(2000), damages.exchange: 400, _exchange_between: 200, damages.lose_folder: 60})],
    ),
    "log": (
        "killed",
        [
            Aim(_log, {**_times(1400), damages.flip_head: 100, damages.age: 100, damages.restore_all_old: 1}),
            Aim(_database, {**_times(500), damages.exchange: 200, damages.age: 50}),
            Aim(_file("catalog.sqlite-shm"), _times(200)),
            Aim(_file("catalog.sqlite-lock"), _times(250)),
        ],
    ),
    "beside": ("closed", [Aim(_file("catalog.sqlite-lock"), _times(250)), Aim(_cache, _times(800))]),
}


def run(part: str, plan: Plan) -> Iterator[Trial]:
    state, aims = PARTS[part]
    with tempfile.TemporaryDirectory(prefix="lastgood-faults-", dir=QUICK if QUICK.is_dir() else None) as folder:
        here = Path(folder)
        with WorkerPool(here, path=plan.path, warm=False) as pool:
            for job, more in (("make", {}), ("learn", {"state": state})):
                _require(pool.run(f"tests.faults.sample_store:{job}", folder=folder, **more))
        with WorkerPool(here, path=plan.path) as pool:
            yield _try(pool, here, state, Damage("undamaged", [], lambda store: None, repair=True))
            dice = random.Random(plan.seed)
            points = list(_damages(aims, here / state / "store", here / state / "old", dice))
            for number, damage in enumerate(plan.choose(points)):
                yield _try(pool, here, state, damage._replace(repair=damage.repair or number % REPAIR_EVERY == 0))


def _damages(aims: Sequence[Aim], folder: Path, old: Path, dice: random.Random) -> Iterator[Damage]:
    for aim in aims:
        places = aim.find(folder, old)
        for kind, count in aim.kinds.items():
            for _ in range(count):
                yield kind(dice.choice(places), dice)


def _try(pool: WorkerPool, here: Path, state: str, damage: Damage) -> Trial:
    store = here / "store"
    shutil.copytree(here / state / "store", store)
    try:
        damage.do(store)
        save = any("cache" in file for file, _, _ in damage.ranges)
        how = {"state": state, "ranges": damage.ranges, "repair": damage.repair, "save": save}
        outcome = pool.ask("tests.faults.verdict:give_verdict", folder=str(here), **how)
    finally:
        shutil.rmtree(store)
    if outcome.ended != "done":
        return Trial(damage.name, [f"the verdict {outcome.ended}: {outcome.error[-2000:]}"])
    return Trial(damage.name, outcome.given)


def _require(outcome: Outcome) -> None:
    if outcome.ended != "done":
        raise RuntimeError(f"the store could not be made: {outcome.error}")


CAMPAIGN = Campaign(
    "damage",
    "G6",
    "what is damaged is refused, nothing else is, and nothing wrong is said",
    tuple(PARTS),
    run,
    no_compiler,
)
