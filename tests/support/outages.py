"""What the tests of the spool share: stores that go away in ways that are real, and come back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lastgood
from lastgood.spool.spool import Spool

HOLD = """
import sys
from pathlib import Path
from lastgood.catalog.sqlite.connection import open_connection
connection = open_connection(Path(sys.argv[1]))
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
connection.close()
"""
"""Another program that writes, and does not come to an end."""


def open_store(path: Path, **options: Any) -> lastgood.Store:
    """Whose spool is asked by nobody but the test: nothing happens in the background."""
    store = lastgood.open(path, **{"user": "tester", **options})
    ask_nobody(store)
    return store


def spool_of(store: lastgood.Store) -> Spool:
    spool = store._spool()
    assert spool is not None
    return spool


def ask_nobody(store: lastgood.Store) -> None:
    spool_of(store).breaker.start = lambda: None


@contextmanager
def gone(folder: Path) -> Iterator[None]:
    """The store's folder is elsewhere meanwhile."""
    elsewhere = folder.with_name(folder.name + ".elsewhere")
    folder.rename(elsewhere)
    try:
        yield
    finally:
        elsewhere.rename(folder)


@contextmanager
def locked(catalog: Path) -> Iterator[None]:
    """Another process holds the database."""
    command = [sys.executable, "-c", HOLD, str(catalog)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield
        finally:
            holder.communicate()


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Not a byte is free on the disk."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        try:
            while True:
                os.write(file.fileno(), bytes(4096))
        except OSError:
            pass
    try:
        yield
    finally:
        ballast.unlink()


def numbers(store: lastgood.Store, task_id: str = "t") -> list[int]:
    """What was saved, oldest first."""
    return [checkpoint.state["n"] for checkpoint in reversed(store.list_checkpoints(task_id, limit=1000))]
