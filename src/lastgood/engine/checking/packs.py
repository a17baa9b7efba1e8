"""Packs: whether they are there, as long as they were, and hold what the catalog says, down to the last byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from lastgood.catalog.audit import PackRow
from lastgood.catalog.contract import FILES
from lastgood.content.compression import RAW, decompress
from lastgood.content.packs import HEAD_SIZE, HEADER_SIZE, Entry, is_head, is_header, read_index
from lastgood.engine.checking.report import Code, Finding, LookedAt
from lastgood.engine.checking.shelf import Shelf
from lastgood.errors import CheckpointError, IntegrityError, NotFoundError
from lastgood.objects.contract import ObjectStore

WINDOW = 8 << 20
THREADS = 2
WAITING = 2 * THREADS  # windows in memory at once

Progress = Callable[[int, int], None]
"""Called with how many bytes were read, and how many there are to read."""


class Examined(NamedTuple):
    """A pack that can be read: what its index says it holds, or else the catalog."""

    row: PackRow
    entries: Sequence[Entry]
    has_index: bool


def examine_packs(objects: ObjectStore, shelf: Shelf, looked_at: LookedAt) -> tuple[list[Finding], list[Examined]]:
    """By their sizes and indexes alone."""
    findings: list[Finding] = []
    examined: list[Examined] = []
    by_pack = shelf.by_pack()
    for pack in shelf.packs.values():
        looked_at.packs += 1
        placed = by_pack.get(pack.number, [])
        found = _examine(objects, shelf, pack, placed)
        if isinstance(found, Finding):
            findings.append(found)
            size = _size(objects, pack.name)
            for entry in placed:
                if entry.position + entry.length > size:
                    shelf.lose((FILES, entry.blob_id), "blob_missing", "is gone with its pack", pack.name)
            examined.append(Examined(pack, [entry for entry in placed if entry.position + entry.length <= size], False))
        else:
            examined.append(found)
    return findings, examined


def find_unmentioned(objects: ObjectStore, shelf: Shelf) -> Iterator[Finding]:
    """Packs that the catalog does not speak of: work in progress, or what an interrupted save has left."""
    known = {pack.name for pack in shelf.packs.values()}
    for listed in objects.list("packs/"):
        if listed.name not in known:
            sentence = f"the pack {listed.name} ({listed.size:,} bytes) belongs to no checkpoint; it is no damage"
            yield _finding("pack_unmentioned", listed.name, sentence)


def read_packs(
    objects: ObjectStore,
    shelf: Shelf,
    examined: Sequence[Examined],
    looked_at: LookedAt,
    pick: Callable[[], bool] | None,
    progress: Progress | None,
) -> list[Finding]:
    """Read blobs front to back, each once, in as many threads as pay; with `pick` those that it says yes to."""
    from concurrent.futures import Future, ThreadPoolExecutor

    findings: list[Finding] = []
    packs = [
        one._replace(entries=[entry for entry in one.entries if pick()] if pick else one.entries) for one in examined
    ]
    total, done = sum(entry.length for one in packs for entry in one.entries), 0
    waiting: list[tuple[Examined, list[Entry], Future[_Outcome]]] = []
    strays: dict[str, int] = {}

    def settle() -> None:
        nonlocal done
        pack, window, future = waiting.pop(0)
        outcome = future.result()
        strays[pack.row.name] = strays.get(pack.row.name, 0) + outcome.stray
        for entry in outcome.damaged:
            placed = shelf.placed.get(entry.blob_id)
            if placed is not None and placed.pack == pack.row.number:
                shelf.lose((FILES, entry.blob_id), "blob_damaged", "is not what was stored", pack.row.name)
            else:  # it lies elsewhere, too, and is read from there
                strays[pack.row.name] += 1
        done += sum(entry.length for entry in window)
        looked_at.blobs_read += len(window)
        if progress is not None:
            progress(done, total)

    with ThreadPoolExecutor(THREADS, "lastgood check") as pool:
        for pack in packs:
            if pick is None and pack.has_index and not _begins_right(objects, pack.row.name):
                strays[pack.row.name] = 1
            for window in _windows(pack.entries):
                waiting.append((pack, window, pool.submit(_check_window, objects, pack, window)))
                if len(waiting) >= WAITING:
                    settle()
        while waiting:
            settle()
    looked_at.bytes_read += done
    for name, count in strays.items():
        if count:
            sentence = f"the pack {name} has damaged bytes that no checkpoint needs"
            findings.append(_finding("pack_damaged", name, sentence))
    return findings


class _Outcome(NamedTuple):
    """`stray`: how many heads of entries are not as they were written; what is read does not depend on them."""

    damaged: list[Entry]
    stray: int


def _check_window(objects: ObjectStore, pack: Examined, window: Sequence[Entry]) -> _Outcome:
    start, last = window[0].position - HEAD_SIZE, window[-1]
    try:
        data = memoryview(objects.get(pack.row.name, start, last.position + last.length - start))
    except CheckpointError:
        if len(window) == 1:
            return _Outcome(list(window), 0)
        outcomes = [_check_window(objects, pack, [entry]) for entry in window]
        return _Outcome([entry for one in outcomes for entry in one.damaged], 0)
    damaged, stray = [], 0
    for entry in window:
        at = entry.position - start
        stray += pack.has_index and not is_head(data[at - HEAD_SIZE : at], entry)
        if not _is_content(data[at : at + entry.length], entry):
            damaged.append(entry)
    return _Outcome(damaged, stray)


def _is_content(stored: memoryview, entry: Entry) -> bool:
    if entry.encoding == RAW:
        return entry.length == entry.size and sha256(stored).digest() == entry.blob_id
    try:
        return sha256(decompress(entry.encoding, bytes(stored), entry.size)).digest() == entry.blob_id
    except IntegrityError:
        return False


def _windows(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Entries that are read at once: they lie beside each other, and are not too many bytes."""
    window: list[Entry] = []
    for entry in entries:
        if window:
            end = window[-1].position + window[-1].length
            if entry.position - HEAD_SIZE != end or end - window[0].position > WINDOW:
                yield window
                window = []
        window.append(entry)
    if window:
        yield window


def _begins_right(objects: ObjectStore, name: str) -> bool:
    try:
        return is_header(objects.get(name, 0, HEADER_SIZE))
    except CheckpointError:
        return False


def _examine(objects: ObjectStore, shelf: Shelf, pack: PackRow, placed: Sequence[Entry]) -> Finding | Examined:
    try:
        size = objects.size(pack.name)
        if size != pack.size:
            sentence = f"the pack {pack.name} has {size:,} bytes; it was stored with {pack.size:,}"
            return _finding("pack_size", pack.name, sentence)
        index = read_index(partial(objects.get, pack.name), size)
    except NotFoundError:
        return _finding("pack_missing", pack.name, f"the pack {pack.name} is gone")
    except IntegrityError:
        return _finding(
            "pack_index", pack.name, f"the index of the pack {pack.name} is damaged; its blobs may be whole"
        )
    except CheckpointError as error:
        return _finding("pack_unreadable", pack.name, f"the pack {pack.name} cannot be read: {error}")
    held = {entry.blob_id: entry for entry in index.entries}
    for entry in placed:
        if held.get(entry.blob_id) != entry:
            shelf.lose((FILES, entry.blob_id), "blob_place", "does not lie where the catalog says", pack.name)
    return Examined(pack, index.entries, True)


def _size(objects: ObjectStore, name: str) -> int:
    try:
        return objects.size(name)
    except CheckpointError:
        return 0


def _finding(code: Code, name: str, sentence: str) -> Finding:
    return Finding(code=code, kind="pack", name=name, sentence=sentence)
