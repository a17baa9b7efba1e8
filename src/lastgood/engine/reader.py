"""A process that reads files for another one, and writes what is new into packs (readers.py).

It gets an order, then portions of files, and answers each portion at once; when nothing more comes it lists its packs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

import msgspec

from lastgood.catalog import open_catalog
from lastgood.catalog.values import FILES
from lastgood.codec.pack import PackWriter
from lastgood.engine.blobs import GROUP_BLOBS, GROUP_BYTES
from lastgood.engine.gather import PACK_BYTES, disk_error
from lastgood.engine.readers import MAX_BYTES, Portion, ReadAnswer, ReadOrder, Refusal, WrittenPack
from lastgood.errors import CheckpointError
from lastgood.files.read import DATABASE_SECONDS, Content, LeftOut, ReadJob, read_apart, read_jobs
from lastgood.local.channel import Channel, ChannelClosedError, channel_to_parent
from lastgood.local.paths import open_private
from lastgood.model.identity import BlobId

_REQUESTS: msgspec.msgpack.Decoder[ReadOrder | Portion] = msgspec.msgpack.Decoder(ReadOrder | Portion)


def serve() -> None:
    """Read files until there are no more: what the process runs."""
    channel = channel_to_parent(_REQUESTS, max_bytes=MAX_BYTES)
    try:
        _serve(channel)
    except CheckpointError as error:
        channel.send(ReadAnswer(error=(type(error).__name__, str(error))))
    except OSError as error:
        channel.send(ReadAnswer(error=(type(disk_error(error)).__name__, str(disk_error(error)))))


def _serve(channel: Channel[ReadOrder | Portion]) -> None:
    order = channel.receive()
    assert isinstance(order, ReadOrder)
    packs = _Packs(order.draft)
    sieve = _Sieve(BlobId(order.key), order.catalog, packs.add)
    root, database = os.fsdecode(order.root), Path(os.fsdecode(order.draft) + ".db")
    deadline = time.monotonic() + DATABASE_SECONDS
    while (portion := _next_portion(channel)) is not None:
        jobs = list(portion.jobs)
        results: Iterable[Content | LeftOut | ReadJob] = (
            read_apart(root, jobs, sieve, database, deadline)
            if order.apart
            else read_jobs(root, jobs, sieve, databases=False)
        )
        channel.send(ReadAnswer([_answer(result) for result in results]))
    sieve.empty()
    channel.send(ReadAnswer(packs=packs.finish(), relied=sorted(sieve.relied)))


def _answer(result: Content | LeftOut | ReadJob) -> Content | Refusal | str:
    if isinstance(result, Content):
        return result
    return Refusal(*result) if isinstance(result, LeftOut) else result.kind


def _next_portion(channel: Channel[ReadOrder | Portion]) -> Portion | None:
    """Receive a portion; None when nothing more comes."""
    try:
        portion = channel.receive()
    except ChannelClosedError:
        return None
    assert isinstance(portion, Portion)
    return portion


class _Packs:
    """A writer of one pack after the other; `draft` is what their names begin with."""

    def __init__(self, draft: bytes) -> None:
        self._draft = draft
        self._done: list[WrittenPack] = []
        self._file: BinaryIO | None = None

    def add(self, key: bytes, data: bytes) -> None:
        """Write it. An error of the disk is told as such: as it is, it would pass for one of the file that is read."""
        try:
            self._add(key, data)
        except OSError as error:
            raise disk_error(error) from error

    def _add(self, key: bytes, data: bytes) -> None:
        if self._file is None:
            self._path = b"%s.%d" % (self._draft, len(self._done))
            self._file = os.fdopen(open_private(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY), "wb")
            self._writer = PackWriter(self._file.write)
        self._writer.add(key, data)
        if self._writer.size >= PACK_BYTES:
            self.finish()

    def finish(self) -> list[WrittenPack]:
        """Complete the last pack; return all that were written."""
        if self._file is not None:
            index = self._writer.finish()
            self._file.flush()
            os.fsync(self._file.fileno())  # while others read on; adopting it does so again, at no cost
            self._file.close()
            self._file = None
            assert index.digest is not None
            self._done.append(WrittenPack(self._path, index.digest, index.size, index.entries))  # type: ignore[arg-type]
        return self._done


class _Sieve:
    """A filter that lets through what is not stored yet; it asks for many at once."""

    def __init__(self, blob_id: BlobId, catalog: bytes | None, add: Callable[[bytes, bytes], None]) -> None:
        self.blob_id = blob_id
        self.relied: set[bytes] = set()
        self._add = add
        self._waiting: dict[bytes, bytes] = {}
        self._size = 0
        self._has: Callable[[Iterable[bytes]], set[bytes]] = lambda ids: set()
        if catalog is not None:
            opened = open_catalog(os.fsdecode(catalog))
            self._has = lambda ids: opened.has_blobs(FILES, ids)

    def put(self, data: bytes) -> bytes:
        key = self.blob_id.of(data)
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
