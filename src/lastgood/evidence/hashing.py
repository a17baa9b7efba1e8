"""SHA-256 of open files, and the memory of what was hashed (D10)."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from hashlib import sha256

from lastgood.errors import InvalidError
from lastgood.local.fork import renew_after_fork
from lastgood.local.paths import Signature

CHUNK_BYTES = 1 << 18
CACHE_ENTRIES = 65_536

# Files are stamped with the kernel's coarse clock, which may lag by one tick: 10 ms at 100 Hz. Two ticks, then.
_TICK_NS = 20_000_000
# A stamp of whole seconds may come from a file system that knows nothing finer; FAT counts in steps of two.
_WHOLE_SECONDS_NS = 2_000_000_000


class HashCache:
    """A cache of digests by file and stat signature; the least recently used go first. Safe for threads and fork().

    A file written through a memory map may change without a new time stamp; this does not notice
    it either.
    """

    def __init__(self, max_entries: int = CACHE_ENTRIES) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[tuple[int, int], tuple[Signature, str]] = OrderedDict()
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        self._lock = threading.Lock()

    def get(self, seen: Signature) -> str | None:
        key = seen[:2]
        with self._lock:
            if (entry := self._entries.get(key)) is None or entry[0] != seen:
                return None
            self._entries.move_to_end(key)
            return entry[1]

    def put(self, seen: Signature, digest: str) -> None:
        key = seen[:2]
        with self._lock:
            self._entries[key] = seen, digest
            self._entries.move_to_end(key)
            if len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)


def is_settled(seen: Signature, began_ns: int) -> bool:
    """Tell whether a write after `began_ns` is sure to give the file another stamp, so that its digest may be kept."""
    _, _, _, modified, changed, _ = seen
    margin = _TICK_NS if changed % 1_000_000_000 else _TICK_NS + _WHOLE_SECONDS_NS
    return max(modified, changed) < began_ns - margin


def hash_open(descriptor: int, max_bytes: int, deadline: float) -> str:
    """Hash what is left to read; InvalidError beyond the bound or the deadline."""
    digest, total = sha256(), 0
    while chunk := os.read(descriptor, CHUNK_BYTES):
        digest.update(chunk)
        total += len(chunk)
        if total > max_bytes:
            raise too_large(total, max_bytes)
        if time.monotonic() > deadline:
            raise InvalidError("reading the file took too long", hint="give the verifier a longer timeout")
    return digest.hexdigest()


def too_large(size: int, max_bytes: int) -> InvalidError:
    return InvalidError(
        f"the file is {_in_words(size)}, more than the {_in_words(max_bytes)} that evidence reads",
        hint="give the verifier a larger max_file_bytes",
    )


def _in_words(size: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:.4g} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
