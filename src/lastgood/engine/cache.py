"""The checkpoints that were saved or loaded last, as encoded bytes; never anyone's live objects (A5)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from lastgood.local.process import renew_after_fork
from lastgood.observe.alerts import LEFT

Blobs = dict[bytes, bytes]


class CacheFigures(msgspec.Struct, frozen=True):
    entries: int
    bytes: int
    hits: int
    misses: int
    evictions: int


class CheckpointCache:
    """At most `max_entries` checkpoints. `alert` is called with their bytes when those come above `alert_bytes`. Hits,
    misses and evictions are this process's, not those of one that it was forked from. A signal handler may save while
    its thread is in here: each change is one call, and no number is read before a call and written after it."""

    def __init__(self, max_entries: int, alert_bytes: int, alert: Callable[[int, int], None]) -> None:
        self._max_entries = max_entries
        self._alert_bytes = alert_bytes
        self._alert = alert
        self._is_above = False
        self._entries: OrderedDict[tuple[str, str], Blobs] = OrderedDict()
        self._bytes = 0
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        self._lock = threading.RLock()
        self._hits = self._misses = self._evictions = 0

    def get(self, owner: str, checkpoint_id: str) -> Blobs | None:
        with self._lock:
            blobs = self._entries.get((owner, checkpoint_id))
            if blobs is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end((owner, checkpoint_id))
            return blobs

    def put(self, owner: str, checkpoint_id: str, blobs: Blobs) -> None:
        with self._lock:
            self._remove((owner, checkpoint_id))
            weight = _weight(blobs)
            self._entries[owner, checkpoint_id] = blobs
            self._bytes += weight
            self._evict()
            crossed = self._bytes > self._alert_bytes and not self._is_above
            if crossed or self._bytes <= self._alert_bytes * LEFT:
                self._is_above = crossed
        if crossed:
            self._alert(self._bytes, self._alert_bytes)

    def drop(self, owner: str, checkpoint_id: str) -> None:
        with self._lock:
            self._remove((owner, checkpoint_id))

    def figures(self) -> CacheFigures:
        with self._lock:
            return CacheFigures(len(self._entries), self._bytes, self._hits, self._misses, self._evictions)

    def _evict(self) -> None:
        while len(self._entries) > self._max_entries:
            _, blobs = self._entries.popitem(last=False)
            self._release(blobs)
            self._evictions += 1

    def _remove(self, key: tuple[str, str]) -> None:
        if (blobs := self._entries.pop(key, None)) is not None:
            self._release(blobs)

    def _release(self, blobs: Blobs) -> None:
        weight = _weight(blobs)
        self._bytes -= weight


def _weight(blobs: Blobs) -> int:
    return sum(map(len, blobs.values()))
