"""What a process remembers of the stores that it has used: nothing, if it is as fresh as one that was just started."""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
from typing import Any

_MODULES = ("lastgood", "os", "socket")
"""Of the last two a scenario exchanges functions."""
_HARMLESS = ("__msgspec_cache__", "_this", "_random")
"""How to decode a class; who the process is; random digits for ids."""


class Memory:
    """What the modules of lastgood hold now, and this process: files, threads, modules."""

    def __init__(self) -> None:
        modules = [vars(module) for name, module in sys.modules.items() if name.partition(".")[0] in _MODULES]
        classes = {value for names in modules for value in names.values() if isinstance(value, type)}
        self._names = modules + [vars(one) for one in classes if one.__module__.startswith("lastgood")]
        self._held = {
            id(value): value for names in self._names for name, value in names.items() if name not in _HARMLESS
        }
        """All that is there, so that nothing else can get its identity."""
        self._collections = [value for value in self._held.values() if isinstance(value, list | dict | set)]
        self._caches = [value for value in self._held.values() if isinstance(value, functools._lru_cache_wrapper)]
        self._before, self._in_full = self._look(), self._look_closely()

    def forget(self) -> None:
        """Empty what functions remember for the rest of the process."""
        for cache in self._caches:
            cache.cache_clear()

    def is_as_it_was(self) -> bool:
        """Tell whether nothing is remembered since this was made, but for what is harmless."""
        if self._look() == self._before:
            return True
        gc.collect()  # what an error held
        self._before, is_same = self._look(), self._look_closely() == self._in_full
        return is_same

    def _look(self) -> list[Any]:
        return [self._look_at_process(), [hash(tuple(map(id, names.values()))) for names in self._names]]

    def _look_closely(self) -> list[Any]:
        held = [{name: id(value) for name, value in names.items() if name not in _HARMLESS} for names in self._names]
        return [self._look_at_process(), held]

    def _look_at_process(self) -> list[Any]:
        kept = sum(cache.cache_info().currsize for cache in self._caches), *map(len, self._collections)
        with os.scandir("/proc/self/fd") as files:
            return [kept, len(sys.modules), sorted(file.name for file in files), threading.active_count()]
