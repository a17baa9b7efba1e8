"""What the shim has noted, as values: every call that changed something on disk, and the marks between them."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

_RECORD = struct.Struct("=IiiIIIQQQq")
"""As `struct record` of shim.c."""


class Op(IntEnum):
    WRITE = 1
    SYNC = 2
    DATASYNC = 3
    TRUNCATE = 4
    CREATE = 5
    RENAME = 6
    LINK = 7
    UNLINK = 8
    RMDIR = 9
    MKDIR = 10
    SYMLINK = 11
    CHMOD = 12
    MARK = 13
    SYNCALL = 14


class Call(NamedTuple):
    """`number`: as faults are counted, from 1; a mark has that of the call before it.

    `path`: of an open file the name that it has now, with " (deleted)" behind it where it has none. `other`: the new
    name of a rename or a link, the target of a symbolic link. `inode`: 0 where it was not known before the call.
    `amount`: the bytes of a write, the length of a truncation, the mode of what is made or changed. `data`: what was
    written, if the trace has it. A call with an `error` has changed nothing.
    """

    number: int
    op: Op
    path: str
    other: str = ""
    inode: int = 0
    offset: int = 0
    amount: int = 0
    data: bytes = b""
    error: int = 0
    pid: int = 0

    @property
    def is_acknowledgement(self) -> bool:
        return self.op == Op.MARK and self.path == "acknowledged"

    def __str__(self) -> str:
        return f"call {self.number} ({self.op.name.lower()} {Path(self.path).name})"


def read_trace(path: Path) -> list[Call]:
    return list(_parse(path.read_bytes()))


def _parse(noted: bytes) -> Iterator[Call]:
    at = number = 0
    while at < len(noted):
        _, op, error, *sizes, inode, offset, amount, pid = _RECORD.unpack_from(noted, at)
        at += _RECORD.size
        texts = []
        for size in sizes:
            texts.append(noted[at : at + size])
            at += size
        path, other, data = texts
        number += op != Op.MARK
        names = os.fsdecode(path), os.fsdecode(other)
        yield Call(number, Op(op), *names, inode, offset, amount, data, error, pid)
