"""Work in a process of its own, for commands, which end before it is done: garbage collection, and making restored
files durable."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lastgood.engine.engine import Engine
    from lastgood.files.roots import Root
    from lastgood.model.task import Journal


def start_apart(engine: Engine, user: str) -> None:
    """Start a process that collects and goes on when this one has ended."""
    max_bytes = engine.options.max_bytes
    _start("collect_apart", str(engine.location.catalog), user, "" if max_bytes is None else str(max_bytes))


def sync_apart(engine: Engine, user: str, journal: Journal, roots: Sequence[Root]) -> None:
    """Start a process that makes restored files durable, and ends their journal."""
    folders = json.dumps({root.name: root.path for root in roots})
    _start("sync_files", str(engine.location.catalog), user, journal.owner, journal.task_id, journal.id, folders)


def _start(function: str, *arguments: str) -> int | None:
    """Run a function of this module in a process that nobody waits for; return its number."""
    code = f"import os, sys; os.chdir('/'); from lastgood.cli.background import {function}; {function}(*sys.argv[1:])"
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    with suppress(OSError, NotImplementedError):  # the next one tries again
        command = [sys.executable, "-P", "-c", code, *arguments]
        return os.posix_spawn(sys.executable, command, os.environ, file_actions=nowhere, setsid=True)
    return None


def collect_apart(file: str, user: str, max_bytes: str) -> None:
    """Collect, or keep to the limit: what that process runs."""
    from lastgood.opening import open_store
    from lastgood.upkeep.housekeeping import Housekeeping

    os.nice(10)
    if _is_there(file):
        with open_store(file, user=user, max_bytes=int(max_bytes) if max_bytes else None) as store:
            Housekeeping(store._engine, user).work()


def sync_files(file: str, user: str, owner: str, task_id: str, journal_id: str, folders: str) -> None:
    """Make restored files durable: what that process runs."""
    from lastgood.engine.restore_files import FilesRestore
    from lastgood.opening import open_store

    named = json.loads(folders)
    if not _is_there(file, *named.values()):
        return
    with open_store(file, user=user, collect="never") as store:
        task = store.task(task_id, owner=owner, workspace=named.get("", named))
        for journal in store._engine.catalog.journals():
            if journal.id == journal_id and journal.made is not None:
                FilesRestore(task._handle).sync_applied(journal)


def _is_there(*paths: str) -> bool:
    """Return whether these are still there: opening a store that was removed, or unmounted, would make a new one."""
    return all(os.path.exists(path) for path in paths)  # noqa: PTH110
