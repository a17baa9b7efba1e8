"""A worker of a pool that was warmed up is as fresh as one of a pool that was not."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from weakref import WeakSet

import pytest
from tests.faults.pool import WorkerPool
from tests.faults.shim import no_compiler

HARMLESS = ("lastgood.local.process._this", "__msgspec_cache__")
"""Who the process is, which is asked anew where its number is another; how to decode a class."""
DEPTH = 6


@pytest.mark.skipif(no_compiler() is not None, reason=str(no_compiler()))
def test_nothing_is_remembered_of_the_store_that_a_pool_was_warmed_up_with(tmp_path: Path) -> None:
    told = []
    for warm in (False, True):
        (tmp_path / str(warm)).mkdir()
        with WorkerPool(tmp_path / str(warm), warm=warm) as pool:
            outcome = pool.run("tests.faults.test_pool:describe_memory")
            assert outcome.ended == "done", outcome.error
            told.append(outcome.given)
    cold, warmed = told
    assert len(cold) > 1000
    others = {path for path in cold.keys() | warmed.keys() if cold.get(path) != warmed.get(path)}
    assert {path: (cold.get(path), warmed.get(path)) for path in sorted(others)} == {}


def describe_memory() -> dict[str, str]:
    """As a job of a pool: all that lastgood's modules hold, by the path to it."""
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
        if not path.endswith(HARMLESS)
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
