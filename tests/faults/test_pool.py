"""A worker is as fresh as a process that was just started: of a pool that was warmed up, and one that has stayed."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import threading
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from weakref import WeakSet

import pytest
from tests.faults.pool import WorkerPool
from tests.faults.prepared_scenario import open_scenario
from tests.faults.shim import no_compiler

import lastgood

HARMLESS = ("lastgood.local.process._this", "lastgood.model.identity._random", "__msgspec_cache__")
"""Who the process is, which is asked anew where its number is another; random digits; how to decode a class."""
DEPTH = 6

pytestmark = pytest.mark.skipif(no_compiler() is not None, reason=str(no_compiler()))


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[WorkerPool]:
    with WorkerPool(tmp_path) as started:
        started.ask("tests.faults.test_pool:tell_pid")  # and import what that takes
        yield started


def test_nothing_is_remembered_of_the_store_that_a_pool_was_warmed_up_with(tmp_path: Path, pool: WorkerPool) -> None:
    (tmp_path / "cold").mkdir()
    with WorkerPool(tmp_path / "cold", warm=False) as cold:
        assert _differences(_memory(cold), _memory(pool)) == {}


def test_a_verifier_that_stays_remembers_nothing_of_the_stores_before(tmp_path: Path) -> None:
    with open_scenario("step with evidence") as prepared:
        fresh = _memory(prepared.pool)
        for _ in range(3):
            assert prepared.run().ended == "done"
            assert prepared.verify() == []
        assert _differences(fresh, prepared.pool.ask("tests.faults.test_pool:describe_memory").given) == {}


def test_a_worker_stays_for_the_next_job(pool: WorkerPool) -> None:
    assert len({pool.ask("tests.faults.test_pool:tell_pid").given for _ in range(3)}) == 1
    assert len({pool.run("tests.faults.test_pool:tell_pid").given for _ in range(3)}) == 3


@pytest.mark.parametrize("how", ["another value", "an entry", "a name", "a cache", "a file", "a thread", "an error"])
def test_a_worker_does_not_stay_that_remembers_something(pool: WorkerPool, how: str) -> None:
    before = pool.ask("tests.faults.test_pool:tell_pid").given
    assert pool.ask("tests.faults.test_pool:remember", how=how).ended == ("raised" if how == "an error" else "done")
    assert (pool.ask("tests.faults.test_pool:tell_pid").given == before) is (how == "a cache")


def test_what_becomes_of_a_worker_that_stays_is_told(tmp_path: Path) -> None:
    with WorkerPool(tmp_path, seconds=1) as pool:
        assert pool.ask("os:abort").ended == "raised"
        assert pool.ask("signal:pause").ended == "hung"
        assert pool.ask("os:getpid").ended == "done"


# --- jobs of a pool -------------------------------------------------------------------------------------------------


def tell_pid() -> int:
    return os.getpid()


def remember(how: str) -> None:
    from lastgood.codec import classes
    from lastgood.local import process
    from lastgood.model import tree

    match how:
        case "another value":
            process.ENDED = -2
        case "an entry":
            classes._by_name["remembered"] = next(iter(classes._by_name.values()))
        case "a name":
            lastgood.Store.remembered = True  # type: ignore[attr-defined]
        case "a cache":
            tree.decode_tree(tree.encode_tree(()))
        case "a file":
            os.open(os.devnull, os.O_RDONLY)
        case "a thread":
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        case _:
            raise ValueError(how)


def describe_memory() -> dict[str, str]:
    """Return all that lastgood's modules hold, by the path to it."""
    package = importlib.import_module("lastgood")
    for module in pkgutil.walk_packages(package.__path__, "lastgood."):
        if not module.name.endswith("__main__") and ".testing" not in module.name:
            importlib.import_module(module.name)
    seen: set[int] = set()
    ours = [(name, module) for name, module in sorted(sys.modules.items()) if name.startswith("lastgood")]
    return {
        path: what
        for name, module in ours
        for key, value in vars(module).items()
        if not key.startswith("__") and getattr(value, "__module__", name) == name  # else it is told where it is from
        for path, what in _describe(f"{name}.{key}", value, seen, DEPTH)
        if not any(name in path for name in HARMLESS)
    }


def _describe(path: str, value: Any, seen: set[int], depth: int) -> Iterator[tuple[str, str]]:
    if value is None or isinstance(value, str | bytes | int | float):
        yield path, repr(value)
    elif not isinstance(value, ModuleType) and id(value) not in seen:
        seen.add(id(value))
        inside = dict(_inside(value))
        yield path, f"{type(value).__name__} of {len(inside)}"
        for name, one in inside.items() if depth else ():
            yield from _describe(f"{path}.{name}", one, seen, depth - 1)


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, _lru_cache_wrapper):
        yield "size", value.cache_info().currsize
    elif isinstance(value, dict):
        yield from ((repr(key), one) for key, one in value.items())
    elif isinstance(value, list | tuple):
        yield from ((str(number), one) for number, one in enumerate(value))
    elif isinstance(value, set | frozenset | WeakSet):
        yield from ((repr(one), one) for one in value)
    elif isinstance(value, FunctionType):
        yield from ((str(number), cell.cell_contents) for number, cell in enumerate(value.__closure__ or ()))
        yield "defaults", value.__defaults__
    elif not isinstance(value, type) or value.__module__.startswith("lastgood"):
        yield from ((key, one) for key, one in getattr(value, "__dict__", {}).items() if not key.startswith("__"))
        for slot in (slot for kind in type(value).__mro__ for slot in vars(kind).get("__slots__", ())):
            yield slot, getattr(value, slot, None)


def _memory(pool: WorkerPool) -> dict[str, str]:
    outcome = pool.run("tests.faults.test_pool:describe_memory")
    assert outcome.ended == "done", outcome.error
    told: dict[str, str] = outcome.given
    assert len(told) > 1000
    return told


def _differences(one: dict[str, str], other: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    paths = sorted(one.keys() | other.keys())
    return {path: (one.get(path), other.get(path)) for path in paths if one.get(path) != other.get(path)}
