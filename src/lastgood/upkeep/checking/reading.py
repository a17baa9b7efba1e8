"""The content of packs, read front to back, each blob once: every byte is compared with what it should be."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

from lastgood.catalog.values import FILES
from lastgood.codec.compress import RAW, decompress
from lastgood.codec.pack import HEAD_SIZE, HEADER_SIZE, PackEntry, is_head, is_header
from lastgood.errors import CheckpointError, IntegrityError
from lastgood.objects.contract import ObjectStore
from lastgood.upkeep.checking.packs import Examined, pack_finding
from lastgood.upkeep.checking.report import Finding, LookedAt
from lastgood.upkeep.checking.shelf import Shelf

WINDOW = 8 << 20
THREADS = 2  # hashing lets others have Python meanwhile: no gain for blobs of 6 KB, much for those of 1 MB
WAITING = 2 * THREADS  # windows in memory at once

Progress = Callable[[int, int], None]
"""Called with how many bytes were read, and how many there are to read."""


def read_packs(
    objects: ObjectStore,
    shelf: Shelf,
    examined: Sequence[Examined],
    looked_at: LookedAt,
    pick: Callable[[], bool] | None,
    progress: Progress | None,
) -> list[Finding]:
    """What is wrong with packs; damaged blobs are lost on the shelf. With `pick` those are read that it says yes to."""
    packs = [_picked(pack, pick) for pack in examined]
    total = sum(entry.length for pack in packs for entry in pack.entries)
    done = looked_at.bytes_read
    strays: Counter[str] = Counter()
    if pick is None:
        strays.update(pack.row.name for pack in packs if pack.has_index and not _begins_right(objects, pack.row.name))
    for pack, window, outcome in _check_all(objects, packs):
        strays[pack.row.name] += outcome.stray
        for entry in outcome.damaged:
            placed = shelf.placed.get(entry.blob_id)
            if placed is not None and placed.pack == pack.row.number:
                shelf.lose((FILES, entry.blob_id), "blob_damaged", "is not what was stored", pack.row.name)
            else:  # it lies elsewhere, too, and is read from there
                strays[pack.row.name] += 1
        looked_at.blobs_read += len(window)
        looked_at.bytes_read += sum(entry.length for entry in window)
        if progress is not None:
            progress(looked_at.bytes_read - done, total)
    return [
        pack_finding("pack_damaged", name, f"the pack {name} has damaged bytes that no checkpoint needs")
        for name, count in strays.items()
        if count
    ]


def _check_all(objects: ObjectStore, packs: Sequence[Examined]) -> Iterator[tuple[Examined, list[PackEntry], _Outcome]]:
    """Windows of all packs in order, a few of them at once."""
    from concurrent.futures import Future, ThreadPoolExecutor

    waiting: deque[tuple[Examined, list[PackEntry], Future[_Outcome]]] = deque()
    with ThreadPoolExecutor(THREADS, "lastgood check") as pool:
        for pack in packs:
            for window in _windows(pack.entries):
                waiting.append((pack, window, pool.submit(_check_window, objects, pack, window)))
                if len(waiting) >= WAITING:
                    first, looked, future = waiting.popleft()
                    yield first, looked, future.result()
        for first, looked, future in waiting:
            yield first, looked, future.result()


def _picked(pack: Examined, pick: Callable[[], bool] | None) -> Examined:
    return pack if pick is None else pack._replace(entries=[entry for entry in pack.entries if pick()])


class _Outcome(NamedTuple):
    """`stray`: how many heads of entries are not as they were written; what is read does not depend on them."""

    damaged: list[PackEntry]
    stray: int


def _check_window(objects: ObjectStore, pack: Examined, window: Sequence[PackEntry]) -> _Outcome:
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


def _is_content(stored: memoryview, entry: PackEntry) -> bool:
    if entry.encoding == RAW:
        return entry.length == entry.size and sha256(stored).digest() == entry.blob_id
    try:
        return sha256(decompress(entry.encoding, bytes(stored), entry.size)).digest() == entry.blob_id
    except IntegrityError:
        return False


def _windows(entries: Sequence[PackEntry]) -> Iterator[list[PackEntry]]:
    """Entries that are read at once: they lie beside each other, and are not too many bytes."""
    window: list[PackEntry] = []
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
