"""Garbage collection in a process of its own, for commands, which end before the work would be done."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lastgood.engine.engine import Engine


def start_apart(engine: Engine, user: str) -> None:
    """Start a process that collects and goes on when this one has ended."""
    import subprocess

    max_bytes = engine.options.max_bytes
    said = [str(engine.location.catalog), user, "" if max_bytes is None else str(max_bytes)]
    code = "from lastgood.cli.background import work_apart; work_apart()"
    nothing = subprocess.DEVNULL
    with suppress(OSError):  # the next one tries again
        subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-c", code, *said],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,
            cwd="/",
        )


def work_apart() -> None:
    """Collect, or keep to the limit: what that process runs."""
    from lastgood.opening import open_store
    from lastgood.upkeep.housekeeping import Housekeeping

    file, user, max_bytes = sys.argv[1:]
    os.nice(10)
    with open_store(file, user=user, max_bytes=int(max_bytes) if max_bytes else None) as store:
        Housekeeping(store._engine, user).work()
