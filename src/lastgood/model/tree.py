"""Trees: a directory as a canonical list of entries, content-addressed like everything else.

Names are raw bytes, as the file system has them. A tree that holds a name which could lead elsewhere is damaged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from lastgood.errors import IntegrityError
from lastgood.model.identity import DIGEST_SIZE

Why = Literal["ignored", "secret", "special", "unreadable", "unstable", "store"]
"""Why something was left out: by an ignore rule, as a secret, a socket, fifo or device, not readable, changing while it
was read, or because it is the store itself. A `.git` is not even mentioned."""

MODE_BITS = 0o7777
_DOT = ord(".")
_TEMPORARY = re.compile(rb"\.lastgood-[0-9a-f]{16}-[0-9a-f]+\.tmp")


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    name: bytes


class File(_Entry, frozen=True, array_like=True, tag=1):
    """A file. `digest` is the SHA-256 of the whole content; `chunks` the blob that lists its chunks (`encode_chunks`).
    Without it the content is one blob, whose id is `blob`."""

    mode: int
    size: int
    digest: bytes
    chunks: bytes | None = None

    @property
    def blob(self) -> bytes:
        return self.digest


class KeyedFile(File, frozen=True, array_like=True, tag=5):
    """A file in a store whose blob ids are not digests."""

    blob: bytes = b""


class Folder(_Entry, frozen=True, array_like=True, tag=2):
    """A folder; `tree` is the blob of its tree."""

    mode: int
    tree: bytes


class Link(_Entry, frozen=True, array_like=True, tag=3):
    """A symbolic link and where it points, as it stands there."""

    target: bytes


class Left(_Entry, frozen=True, array_like=True, tag=4):
    """An entry that was not captured; restoring leaves it alone."""

    why: Why


Entry = File | KeyedFile | Folder | Link | Left
Tree = tuple[Entry, ...]
"""Sorted by name; names are unique."""


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    digest: bytes
    size: int


class Chunked(msgspec.Struct, frozen=True, array_like=True):
    """A list of the chunks that a large file was cut into, and of what cut it."""

    method: str
    chunks: tuple[Chunk, ...]


_METHOD = "fastcdc-2020"
_LAYOUT = 1
_KEPT = 1024
"""Trees that stay decoded: one that has changed is read by the scan, the plan and the next scan."""
_trees = msgspec.msgpack.Decoder(tuple[int, Tree])
_entries = msgspec.msgpack.Decoder(Entry)
_raw_trees = msgspec.msgpack.Decoder(tuple[int, list[msgspec.Raw]])
_chunks = msgspec.msgpack.Decoder(Chunked)
_PREFIX = 32  # bytes at the beginning of a tree that most versions of it share: its first name among them


def encode_tree(entries: Sequence[Entry]) -> bytes:
    """Encode a directory canonically."""
    return msgspec.msgpack.encode((_LAYOUT, sorted(entries, key=lambda entry: entry.name)))


@lru_cache(_KEPT)
def decode_tree(data: bytes) -> Tree:
    """Decode a tree, of bytes that were compared with their id. IntegrityError when it could lead out of itself."""
    entries = _decode(data)
    _require_entries(entries)
    return entries


class Versions:
    """A decoder of many trees, most of which are versions of each other: only the entries whose bytes differ from
    those of the version before are read. 45,000 trees with 1.4 million entries take 0.5 s, not 2."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, bytes], tuple[bytes, list[int]]] = {}

    def decode_new(self, data: bytes) -> Sequence[Entry]:
        """Decode the entries that were not there before, of bytes that were compared with their id."""
        prefix = len(data), data[:_PREFIX]
        if (last := self._last.get(prefix)) is not None:
            before, starts = last
            new = _differing(before, data, starts)
            if new is not None:
                self._last[prefix] = data, starts
                return new
        entries = _decode(data)
        _require_entries(entries)
        end = len(data)
        starts = [end]
        for raw in reversed(_raw_trees.decode(data)[1]):
            end -= len(bytes(raw))
            starts.append(end)
        starts.reverse()
        self._last[prefix] = data, starts
        return entries


def _differing(before: bytes, data: bytes, starts: list[int]) -> list[Entry] | None:
    """The entries of a version whose bytes are others than in the one before; None where that cannot be said: then an
    entry begins elsewhere, or is called otherwise."""
    if data[: starts[0]] != before[: starts[0]]:
        return None
    new: list[Entry] = []
    waiting = [(0, len(starts) - 1)]
    while waiting:
        low, high = waiting.pop()
        start, end = starts[low], starts[high]
        if data[start:end] == before[start:end]:
            continue
        if high - low > 1:
            middle = (low + high) // 2
            waiting += ((low, middle), (middle, high))
            continue
        try:
            entry, old = _entries.decode(data[start:end]), _entries.decode(before[start:end])
        except (msgspec.DecodeError, msgspec.ValidationError):
            return None
        if entry.name != old.name:
            return None
        if not _is_whole(entry):
            raise _damaged("holds an entry that cannot be one")
        new.append(entry)
    return new


def _decode(data: bytes) -> Tree:
    try:
        layout, entries = _trees.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise _damaged("cannot be read") from error
    if layout != _LAYOUT:
        raise _damaged(f"has the unknown layout {layout}")
    return entries


def _require_entries(entries: Tree) -> None:
    last = b""
    for entry in entries:
        name = entry.name
        if name <= last or not is_name(name) or not _is_whole(entry):
            raise _damaged("holds an entry that cannot be one")
        last = name


def differing_entries(olds: Tree, news: Tree) -> list[tuple[Entry | None, Entry | None]]:
    """Return the entries of two trees that differ, by name."""
    ones = {entry.name: entry for entry in olds}
    both: list[tuple[Entry | None, Entry | None]] = [(ones.pop(entry.name, None), entry) for entry in news]
    differing = [(one, other) for one, other in both if one != other]
    differing += [(one, None) for one in ones.values()]
    return sorted(differing, key=_name_of)


def _name_of(pair: tuple[Entry | None, Entry | None]) -> bytes:
    entry = pair[0] or pair[1]
    assert entry is not None
    return entry.name


TreePair = tuple[bytes | None, bytes | None]


def differing_below(pairs: Iterable[TreePair], found: Mapping[bytes, bytes]) -> list[TreePair]:
    """Return the folders directly below pairs of trees that differ. `found` has the trees by their ids."""
    below = [
        [entry.tree if isinstance(entry, Folder) else None for entry in entries]
        for pair in pairs
        for entries in differing_entries(*(decode_tree(found[tree]) if tree is not None else () for tree in pair))
    ]
    return [(one, other) for one, other in below if one != other]


def encode_chunks(chunks: Sequence[Chunk]) -> bytes:
    return msgspec.msgpack.encode(Chunked(_METHOD, tuple(chunks)))


def decode_chunks(data: bytes, file: File) -> tuple[Chunk, ...]:
    """Decode the chunks of `file`, of bytes that were compared with their id. IntegrityError when they do not fit."""
    try:
        chunks = _chunks.decode(data).chunks
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise _damaged("has a list of chunks that cannot be read") from error
    if sum(chunk.size for chunk in chunks) != file.size or any(
        len(chunk.digest) != DIGEST_SIZE or chunk.size <= 0 for chunk in chunks
    ):
        raise _damaged("has a list of chunks that does not fit its file")
    return chunks


def is_name(name: bytes) -> bool:
    """Say whether a directory entry may have this name, and restoring may touch it: `.git` never, in any spelling."""
    if not name or b"/" in name or b"\0" in name:
        return False
    return name[0] != _DOT or (name not in (b".", b"..") and not is_git(name))


def is_temporary(name: bytes) -> bool:
    """Return whether it is the name of a restore's temporary file; these are never captured."""
    return _TEMPORARY.fullmatch(name) is not None


def is_git(name: bytes) -> bool:
    return name.lower() == b".git"


def _is_whole(entry: Entry) -> bool:
    if isinstance(entry, File):
        ids = (entry.digest, entry.blob, entry.chunks or entry.digest)
        fits = all(len(each) == DIGEST_SIZE for each in ids)
        return fits and entry.size >= 0 and entry.mode == entry.mode & MODE_BITS
    if isinstance(entry, Folder):
        return len(entry.tree) == DIGEST_SIZE and entry.mode == entry.mode & MODE_BITS
    return not isinstance(entry, Link) or (bool(entry.target) and b"\0" not in entry.target)


def _damaged(how: str) -> IntegrityError:
    return IntegrityError(f"a directory of a checkpoint {how}", hint="go back to another checkpoint")
