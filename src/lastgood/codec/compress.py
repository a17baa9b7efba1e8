"""Blobs, compressed when that pays. Decompression never makes more bytes than were recorded."""

from __future__ import annotations

import threading

from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError, frame_content_size

from lastgood.errors import IntegrityError

RAW, ZSTD = 0, 1
LEVEL = 1  # on runs of 24 KB: 4% larger than level 3, and faster both ways
SMALL = 512  # below that a frame saves a few bytes, and costs as much as all the rest of encoding
LARGE = 8192
LARGE_RATIO = 0.4  # what is read most is large: it has to shrink this far to be worth the time of reading it


class _Tools(threading.local):
    """A thread's compressor and decompressor: making one costs as much as using it on a small blob."""

    def __init__(self) -> None:
        self.compress = ZstdCompressor(level=LEVEL).compress
        self.decompress = ZstdDecompressor().decompress


_tools = _Tools()


def compress(data: bytes) -> tuple[int, bytes]:
    """Return (encoding, bytes to store)."""
    if len(data) >= SMALL:
        packed = _tools.compress(data)
        if len(packed) < (len(data) if len(data) < LARGE else len(data) * LARGE_RATIO):
            return ZSTD, packed
    return RAW, data


def decompress(encoding: int, stored: bytes, size: int) -> bytes:
    """Return the `size` bytes that were compressed. Raises IntegrityError for anything else."""
    if encoding == RAW:
        data = stored
    elif encoding == ZSTD:
        data = _inflate(stored, size)
    else:
        raise IntegrityError(f"a blob has the unknown encoding {encoding}", hint="was it written by a newer version?")
    if len(data) != size:
        raise IntegrityError("a blob is not as long as it was recorded to be")
    return data


def _inflate(stored: bytes, size: int) -> bytes:
    # The frame's own promise decides how much is allocated: it is believed only when it is the recorded one.
    try:
        if frame_content_size(stored) != size:
            raise IntegrityError("a blob is not as long as it was recorded to be")
        return _tools.decompress(stored, allow_extra_data=False)
    except ZstdError as error:
        raise IntegrityError("a blob does not decompress") from error
