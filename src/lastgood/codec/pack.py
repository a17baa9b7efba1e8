"""Packs: many blobs in one immutable object, and the index that finds them again (docs/reference/format.md).

Nothing here opens a file: a writer is given something to write to, a reader something that reads a range.
Memory holds a blob or two and the index, never the pack.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple
from zlib import crc32

import msgspec

from lastgood.codec.compress import RAW, ZSTD, compress, decompress
from lastgood.errors import FormatError, IntegrityError, InvalidError
from lastgood.model.identity import DIGEST_SIZE, BlobId, digest, digest_text

VERSION = 1
MAX_BLOB = 1 << 28  # what a damaged or hostile pack can make a reader allocate

_HEADER = struct.Struct("<4sI16sI")
_HEAD = struct.Struct("<4s32sIIB")
_CHECK = struct.Struct("<I")
_FOOTER = struct.Struct("<IIII")
HEADER_SIZE = _HEADER.size
HEAD_SIZE = _HEAD_SIZE = _HEAD.size + _CHECK.size
_FOOTER_SIZE = _FOOTER.size + DIGEST_SIZE
_MAGIC, _ENTRY, _INDEX = b"LGPK", b"LGPE", b"LGPI"
FRAME_SIZE, ENTRY_SIZE = HEADER_SIZE + len(_INDEX) + 32 + _FOOTER_SIZE, HEAD_SIZE + DIGEST_SIZE + 11
"""What a pack has at most besides its blobs as they are stored: once, and for each of them."""
_BUFFER = 1 << 18  # written and hashed in one go: doing so for each blob of 6 KB took a fifth longer
_WINDOW = 1 << 20  # searched at once when an entry is damaged

ReadRange = Callable[[int, int], bytes]
"""(start, length) -> exactly these bytes of the pack, or an error."""

_columns = msgspec.msgpack.Decoder(tuple[bytes, list[int], list[int], bytes])


class PackEntry(NamedTuple):
    """A blob of `size` bytes; as it is stored, it is the `length` bytes of the pack from `position` on."""

    blob_id: bytes
    position: int
    length: int
    size: int
    encoding: int


class Lost(NamedTuple):
    """A stretch of a damaged pack that cannot be read. The id is that of a blob known to have been there."""

    position: int
    length: int
    what: Literal["header", "blob", "bytes", "index"]
    blob_id: bytes | None = None


class PackIndex(NamedTuple):
    """An index of what a pack holds, in order. `digest`: of all its bytes, if it was just written."""

    entries: tuple[PackEntry, ...]
    size: int
    digest: bytes | None = None
    lost: tuple[Lost, ...] = ()


def pack_name(pack: bytes) -> str:
    """Return the name of the object that a pack with this digest is."""
    return f"packs/{pack[:1].hex()}/{pack.hex()}"


class PackWriter:
    """A writer of blobs as the bytes of a pack, in order. For one thread. Once `write` has failed it is of no use.

    No two packs have the same bytes, so none is taken for another that is being removed.
    """

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._hash = sha256()
        self._entries: dict[bytes, PackEntry] = {}
        self._pending = [_make_header(os.urandom(16))]
        self._pending_size = _HEADER.size
        self.size = _HEADER.size  # of the pack so far

    def add(self, blob_id: bytes, data: bytes) -> None:
        """Append a blob, compressed if that pays; one that is already there is not written again.

        The id is not checked: the caller has just made the blob.
        """
        if blob_id in self._entries:
            return
        if len(blob_id) != DIGEST_SIZE or len(data) > MAX_BLOB:
            raise InvalidError(f"a blob of {len(data)} bytes cannot be put into a pack", hint="cut it into chunks")
        encoding, stored = compress(data)
        self.copy(blob_id, len(data), encoding, stored)

    def copy(self, blob_id: bytes, size: int, encoding: int, stored: bytes) -> None:
        """Append a blob as it is stored elsewhere. What is there has been checked."""
        if blob_id in self._entries:
            return
        head = _HEAD.pack(_ENTRY, blob_id, size, len(stored), encoding)
        self._entries[blob_id] = PackEntry(blob_id, self.size + _HEAD_SIZE, len(stored), size, encoding)
        self._append(head, _CHECK.pack(crc32(head)), stored)

    def finish(self) -> PackIndex:
        """Write what is left, index and footer; to be called once, at the end."""
        entries = tuple(self._entries.values())
        self._append(*_encode_index(entries))
        self._flush()
        return PackIndex(entries, self.size, self._hash.digest())

    def _append(self, *parts: bytes) -> None:
        length = sum(map(len, parts))
        self._pending += parts
        self._pending_size += length
        self.size += length
        if self._pending_size >= _BUFFER:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._pending)
        self._pending.clear()
        self._pending_size = 0
        self._hash.update(data)
        self._write(data)


def unpack(entry: PackEntry, stored: bytes, blob_id: BlobId) -> bytes:
    """Return the blob, from the bytes that the pack has for it. IntegrityError unless they are what its id says."""
    if len(stored) != entry.length or not _is_possible(entry):
        raise _damaged_blob(entry.blob_id)
    data = decompress(entry.encoding, stored, entry.size)
    if blob_id.of(data) != entry.blob_id:
        raise _damaged_blob(entry.blob_id)
    return data


def is_head(data: bytes | memoryview, entry: PackEntry) -> bool:
    """Say whether `data`, the bytes before an entry's content, are those that a writer puts there."""
    head = _HEAD.pack(_ENTRY, entry.blob_id, entry.size, entry.length, entry.encoding)
    return bool(data == head + _CHECK.pack(crc32(head)))


def is_header(data: bytes) -> bool:
    """Say whether a pack may begin with `data`."""
    return len(data) == _HEADER.size and data == _make_header(_HEADER.unpack(data)[2])


def _make_header(unique: bytes) -> bytes:
    head = _HEADER.pack(_MAGIC, VERSION, unique, 0)[: -_CHECK.size]
    return head + _CHECK.pack(crc32(head))


def read_index(read_range: ReadRange, size: int) -> PackIndex:
    """Read the index of a pack of `size` bytes, by two reads. IntegrityError when its index is damaged."""
    if size < _HEADER.size + len(_INDEX) + _FOOTER_SIZE:
        raise _damaged_index()
    footer = read_range(size - _FOOTER_SIZE, _FOOTER_SIZE)
    version, encoding, plain_size, length = _FOOTER.unpack_from(footer)
    start = size - _FOOTER_SIZE - length - len(_INDEX)
    # An entry takes less room in the index than in the pack: what claims to be larger is not decompressed.
    if start < _HEADER.size or plain_size > size:
        raise _damaged_index()
    index = read_range(start, length + len(_INDEX))
    if not index.startswith(_INDEX) or digest(index + footer[: _FOOTER.size]) != footer[_FOOTER.size :]:
        raise _damaged_index()
    if version != VERSION:
        raise FormatError(f"a pack has the unknown version {version}", hint="was it written by a newer version?")
    plain = decompress(encoding, index[len(_INDEX) :], plain_size)
    return PackIndex(tuple(_decode_index(plain, start)), size)


def rebuild_index(read_range: ReadRange, size: int, blob_id: BlobId) -> PackIndex:
    """Find what is left of a pack of `size` bytes, each blob read and checked, and what is lost of it.

    A whole index says where entries are; else each entry is found by its own head.
    """
    try:
        known = read_index(read_range, size).entries
    except IntegrityError:
        found = list(_salvage(read_range, size, blob_id))
    else:
        found = [entry if _is_whole(entry, read_range, blob_id) else _as_lost(entry) for entry in known]
    entries = {item.blob_id: item for item in found if isinstance(item, PackEntry)}
    lost = tuple(item for item in found if isinstance(item, Lost))
    return PackIndex(tuple(entries.values()), size, lost=lost)


def _encode_index(entries: Sequence[PackEntry]) -> tuple[bytes, bytes, bytes]:
    ids, sizes = b"".join(entry.blob_id for entry in entries), [entry.size for entry in entries]
    lengths, encodings = [entry.length for entry in entries], bytes(entry.encoding for entry in entries)
    plain = msgspec.msgpack.encode((ids, sizes, lengths, encodings))
    encoding, stored = compress(plain)
    footer = _FOOTER.pack(VERSION, encoding, len(plain), len(stored))
    return _INDEX + stored, footer, digest(_INDEX + stored + footer)


def _decode_index(plain: bytes, end: int) -> Iterator[PackEntry]:
    try:
        ids, sizes, lengths, encodings = _columns.decode(plain)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise _damaged_index() from error
    names = [ids[at : at + DIGEST_SIZE] for at in range(0, len(ids), DIGEST_SIZE)]
    if len(ids) % DIGEST_SIZE or not len(names) == len(set(names)) == len(sizes) == len(lengths) == len(encodings):
        raise _damaged_index()
    position = _HEADER.size
    for blob_id, size, length, encoding in zip(names, sizes, lengths, encodings, strict=True):
        entry = PackEntry(blob_id, position + _HEAD_SIZE, length, size, encoding)
        if not _is_possible(entry):
            raise _damaged_index()
        position = entry.position + length
        yield entry
    if position != end:
        raise _damaged_index()


def _salvage(read_range: ReadRange, size: int, blob_id: BlobId) -> Iterator[PackEntry | Lost]:
    """Find, front to back, entries that are whole, and the stretches between them that are not.

    Content may look like an entry (someone may keep packs in packs), and may be meant to. So a head is believed
    where one is due; one that was searched for counts only with the content that its id names.
    """
    position, due = _HEADER.size, True
    if size < position or not is_header(read_range(0, position)):
        position, due = _find_entry(read_range, 0, size), False
        yield Lost(0, position, "header")
    while position < size:
        entry = _read_head(read_range, position, size)
        end = entry.position + entry.length if entry else size
        if entry and end <= size and _is_whole(entry, read_range, blob_id):
            yield entry
            position, due = end, True
            continue
        start, what = position, _what_stands(read_range, position, size) if due else None
        # Its length may be right and lead too far all the same, where bytes are missing: the next one is searched for.
        position = _find_entry(read_range, position + 1, size)
        due = due and position == end
        yield Lost(start, position - start, what or "bytes", entry.blob_id if entry and what else None)


def _what_stands(read_range: ReadRange, position: int, size: int) -> Literal["blob", "index"] | None:
    if _read_head(read_range, position, size):
        return "blob"
    return "index" if read_range(position, min(len(_INDEX), size - position)) == _INDEX else None


def _read_head(read_range: ReadRange, position: int, size: int) -> PackEntry | None:
    """Read the entry that begins here, if there is one; its content may be torn off."""
    if size - position < _HEAD_SIZE:
        return None
    head = read_range(position, _HEAD_SIZE)
    mark, blob_id, plain_size, length, encoding = _HEAD.unpack_from(head)
    entry = PackEntry(blob_id, position + _HEAD_SIZE, length, plain_size, encoding)
    right = mark == _ENTRY and _CHECK.pack(crc32(head[: _HEAD.size])) == head[_HEAD.size :]
    return entry if right and _is_possible(entry) else None


def _find_entry(read_range: ReadRange, position: int, size: int) -> int:
    """Find the next head with a right check; the end if there is none."""
    while position < size:
        window = read_range(position, min(_WINDOW + len(_ENTRY) - 1, size - position))  # a mark may lie on the border
        at = window.find(_ENTRY)
        while at >= 0:
            if _read_head(read_range, position + at, size):
                return position + at
            at = window.find(_ENTRY, at + 1)
        position += _WINDOW
    return size


def _is_whole(entry: PackEntry, read_range: ReadRange, blob_id: BlobId) -> bool:
    try:
        unpack(entry, read_range(entry.position, entry.length), blob_id)
    except IntegrityError:
        return False
    return True


def _as_lost(entry: PackEntry) -> Lost:
    return Lost(entry.position - _HEAD_SIZE, entry.length + _HEAD_SIZE, "blob", entry.blob_id)


def _is_possible(entry: PackEntry) -> bool:
    if entry.encoding == RAW:
        return 0 <= entry.length == entry.size <= MAX_BLOB
    if entry.encoding == ZSTD:
        return 0 < entry.length < entry.size <= MAX_BLOB
    return 0 <= entry.length <= MAX_BLOB and 0 <= entry.size <= MAX_BLOB  # a newer version may know how


def _damaged_index() -> IntegrityError:
    return IntegrityError("the index of a pack is damaged", hint="it can be rebuilt from what the pack holds")


def _damaged_blob(blob_id: bytes) -> IntegrityError:
    return IntegrityError("stored content is damaged", hint="restore another checkpoint", blob=digest_text(blob_id))
