"""Which bytes of a store's files are read: seen below SQLite and below the objects."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from lastgood.objects import local

NAME = "watched"


@contextmanager
def record_reads(folder: Path) -> Iterator[set[tuple[str, int, int]]]:
    """(file below `folder`, from, to) of everything that is read in here. Only where no store was opened before: the
    checksum VFS stands on the one that is the default when it is loaded."""
    seen: set[tuple[str, int, int]] = set()
    system = _System(folder, seen)
    read = local._read_exactly

    def read_exactly(descriptor: int, start: int, length: int, name: str) -> bytes:
        seen.add((f"objects/{name}", start, start + length))
        return read(descriptor, start, length, name)

    local._read_exactly = read_exactly
    try:
        yield seen
    finally:
        local._read_exactly = read
        system.unregister()


class _System(apsw.VFS):
    def __init__(self, folder: Path, seen: set[tuple[str, int, int]]) -> None:
        self._folder, self._seen = folder, seen
        self._below = apsw.vfs_names()[0]
        super().__init__(NAME, self._below, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self._below, self._folder, self._seen, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, below: str, folder: Path, seen: set[tuple[str, int, int]], name: Any, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._name = os.path.relpath(path or "", folder)
        self._seen = seen
        super().__init__(below, name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._seen.add((self._name, offset, offset + amount))
        return super().xRead(amount, offset)
