"""What the state machine is run against, and the contents it works with: states and files."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.model_values import Node, Tree

SECRET = ".env"
"""Lies in the workspace and is never captured, so it is never touched."""


class Backend(NamedTuple):
    """`target`: what a store is opened by, given an empty folder of its own."""

    name: str
    target: Callable[[Path], str]


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend("folder", lambda folder: str(folder / "store")),
        Backend("file", lambda folder: str(folder / "store.sqlite")),
    )
}


def state_of(number: int | None) -> Any:
    """A state of several blobs, and the empty one that a task begins with."""
    return {} if number is None else {"n": number, "log": [f"entry {i} of many" for i in range(number * 60)]}


def bytes_of(number: int) -> bytes:
    """Contents of three sizes; those with the same size are told apart by their bytes alone."""
    dice = random.Random(number)
    return dice.randbytes((10, 10, 3000, 3000, 600_000)[number])


# --- folders --------------------------------------------------------------------------------------------------------


def read_folder(folder: Path) -> Tree:
    """All that lies there, but for the secret."""
    found = Tree()
    for path in sorted(folder.rglob("*")):
        name, mode = str(path.relative_to(folder)), path.lstat().st_mode
        if stat.S_ISLNK(mode):
            found[name] = ("link", 0, os.fsencode(path.readlink()))
        elif stat.S_ISDIR(mode):
            found[name] = ("folder", stat.S_IMODE(mode), b"")
        elif name != SECRET:
            found[name] = ("file", stat.S_IMODE(mode), path.read_bytes())
    return found


def write_changes(folder: Path, before: Tree, after: Tree) -> None:
    """What lies in the folder is `before`; make it `after`."""
    for name in sorted(before, reverse=True):
        kept = after.get(name, ("", 0, b""))[0] == before[name][0] != "link"
        if after.get(name) != before[name] and not kept:
            path = folder / name
            path.rmdir() if before[name][0] == "folder" else path.unlink()
    for name in sorted(after):
        if after[name] != before.get(name):
            _make(folder / name, after[name])


def _make(path: Path, node: Node) -> None:
    kind, mode, content = node
    if kind == "link":
        path.symlink_to(os.fsdecode(content))
        return
    if kind == "folder":
        path.mkdir(exist_ok=True)
    else:
        path.write_bytes(content)
    path.chmod(mode)
