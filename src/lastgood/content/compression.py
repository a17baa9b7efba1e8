"""Blobs, compressed when that pays. Decompression never makes more bytes than were recorded."""

from __future__ import annotations

import sys
import threading

from lastgood.errors import IntegrityError

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdCompressor, ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdCompressor, ZstdDecompressor, ZstdError

RAW, ZSTD = 0, 1
LEVEL = 3
WORTHWHILE = 64  # a frame and its header save nothing on less


class _Tools(threading.local):
    """Making a compressor costs as much as compressing a small blob: one per thread."""

    def __init__(self) -> None:
        self.compressor = ZstdCompressor(level=LEVEL)


_tools = _Tools()


def compress(data: bytes) -> tuple[int, bytes]:
    """(encoding, bytes to store)."""
    if len(data) >= WORTHWHILE:
        packed = _tools.compressor.compress(data, ZstdCompressor.FLUSH_FRAME)
        if len(packed) < len(data):
            return ZSTD, packed
    return RAW, data


def decompress(encoding: int, stored: bytes, size: int) -> bytes:
    """The `size` bytes that were compressed. Raises IntegrityError for anything else."""
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
    # The header of a frame can promise any size; only the recorded one is believed.
    decompressor = ZstdDecompressor()
    try:
        return decompressor.decompress(stored, max_length=size + 1)
    except ZstdError as error:
        raise IntegrityError("a blob does not decompress") from error
