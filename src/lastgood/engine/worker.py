"""A process that reads files for another one, and writes what is new into packs (workers.py).

It is told once what it works for, then which files to read, a portion at a time, and answers each portion at once; when
nothing more comes it tells of its packs. Each message is its length and msgpack.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from lastgood.catalog.values import FILES
from lastgood.codec.pack import PackWriter
from lastgood.engine.apart import read_apart
from lastgood.engine.blobs import GROUP_BLOBS, GROUP_BYTES, PACK_BYTES
from lastgood.engine.draft import disk_error
from lastgood.errors import CheckpointError
from lastgood.files.read import Content, LeftOut, ReadJob, read_jobs
from lastgood.model.digest import digest

_LENGTH = struct.Struct("<Q")


class Order(msgspec.Struct, frozen=True):
    """What a worker works for. `catalog`: what it has is not written again. `draft`: how its files' names begin."""

    root: bytes
    draft: bytes
    catalog: bytes | None
    apart: bool


Portion = Sequence[tuple[bytes, tuple[int, ...], str]]
"""Files to read: as a ReadJob each."""


class Written(msgspec.Struct, frozen=True, array_like=True):
    """A pack, where it lies, and what it holds."""

    path: bytes
    digest: bytes
    size: int
    entries: Sequence[tuple[bytes, int, int, int, int]]


class Answer(msgspec.Struct, frozen=True):
    """One for each job: what was read or why not, as plain arrays; a word: its kind, and that it is to be read apart.
    The last one has the packs. `error`: nothing of it counts."""

    answers: Sequence[list[Any] | str] = ()
    packs: Sequence[Written] = ()
    relied: Sequence[bytes] = ()
    error: tuple[str, str] | None = None


def send(stream: BinaryIO, message: object) -> None:
    data = msgspec.msgpack.encode(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: BinaryIO) -> bytes | None:
    """None at the end; EOFError in the middle."""
    head = stream.read(_LENGTH.size)
    if not head:
        return None
    data = stream.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else b""
    if len(head) < _LENGTH.size or len(data) < _LENGTH.unpack(head)[0]:
        raise EOFError
    return data


def work() -> None:
    """What the process does."""
    source, target = sys.stdin.buffer, sys.stdout.buffer
    try:
        _work(source, target)
    except CheckpointError as error:
        send(target, Answer(error=(type(error).__name__, str(error))))
    except OSError as error:
        send(target, Answer(error=(type(disk_error(error)).__name__, str(disk_error(error)))))


def _work(source: BinaryIO, target: BinaryIO) -> None:
    order = msgspec.msgpack.decode(receive(source) or b"", type=Order)
    packs = _Packs(order.draft)
    sieve = _Sieve(order.catalog, packs.add)
    root, database = os.fsdecode(order.root), Path(os.fsdecode(order.draft) + ".db")
    while (message := receive(source)) is not None:
        portion = msgspec.msgpack.decode(message, type=Portion)
        jobs = [ReadJob(*each) for each in portion]
        results: Iterable[Content | LeftOut | ReadJob] = (
            read_apart(root, jobs, sieve.put, database)
            if order.apart
            else read_jobs(root, jobs, sieve.put, databases=False)
        )
        send(target, Answer([result.kind if isinstance(result, ReadJob) else list(result) for result in results]))
    sieve.empty()
    send(target, Answer(packs=packs.finish(), relied=sorted(sieve.relied)))


class _Packs:
    """Writes one pack after the other; `draft` is what their names begin with."""

    def __init__(self, draft: bytes) -> None:
        self._draft = draft
        self._done: list[Written] = []
        self._file: BinaryIO | None = None

    def add(self, key: bytes, data: bytes) -> None:
        if self._file is None:
            self._path = b"%s.%d" % (self._draft, len(self._done))
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
            self._file = os.fdopen(os.open(self._path, flags, 0o600), "wb")
            self._writer = PackWriter(self._file.write)
        self._writer.add(key, data)
        if self._writer.size >= PACK_BYTES:
            self.finish()

    def finish(self) -> list[Written]:
        """All that were written."""
        if self._file is not None:
            index = self._writer.finish()
            self._file.flush()
            os.fsync(self._file.fileno())  # while others read on; whoever adopts it does it again, at no cost
            self._file.close()
            self._file = None
            assert index.digest is not None
            self._done.append(Written(self._path, index.digest, index.size, index.entries))
        return self._done


class _Sieve:
    """Lets through what is not stored yet; asks for many at once."""

    def __init__(self, catalog: bytes | None, add: Callable[[bytes, bytes], None]) -> None:
        self.relied: set[bytes] = set()
        self._add = add
        self._waiting: dict[bytes, bytes] = {}
        self._size = 0
        self._has: Callable[[Iterable[bytes]], set[bytes]] = lambda ids: set()
        if catalog is not None:
            from lastgood.catalog.sqlite.catalog import SQLiteCatalog

            opened = SQLiteCatalog(Path(os.fsdecode(catalog)))
            self._has = lambda ids: opened.has_blobs(FILES, ids)

    def put(self, data: bytes) -> bytes:
        key = digest(data)
        if key not in self.relied and key not in self._waiting:
            self._waiting[key] = data
            self._size += len(data)
            if len(self._waiting) >= GROUP_BLOBS or self._size >= GROUP_BYTES:
                self.empty()
        return key

    def empty(self) -> None:
        stored = self._has(self._waiting)
        self.relied |= stored
        for key, data in self._waiting.items():
            if key not in stored:
                self._add(key, data)
        self._waiting.clear()
        self._size = 0
