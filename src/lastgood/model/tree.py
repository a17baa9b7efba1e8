"""Trees: a directory as a canonical list of entries, content-addressed like everything else.

The entries of a wide directory lie in parts that are trees themselves, so that a save costs what changed in it.

Names are raw bytes, as the file system has them. A tree that holds a name which could lead elsewhere is damaged.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple, TypeGuard
from zlib import crc32

import msgspec

from lastgood.errors import IntegrityError
from lastgood.model.identity import DIGEST_SIZE

Why = Literal["ignored", "secret", "repository", "special", "unreadable", "unstable", "store", "sidecar"]
"""Why something was left out: by an ignore rule, as a secret, as the `.git` of a repository, a socket, fifo or device,
not readable, changing while it was read, or because it is the store itself."""

MODE_BITS = 0o7777
SPECIAL_BITS = 0o6000
MAX_ATTRIBUTES = 1 << 16
"""Bytes of extended attributes that a file may have in all; they lie in its folder's tree."""
MAX_ENTRIES = 10_000_000
_ACL = b"system.posix_acl_access"
_FOLDER, _LEFT = 2, 4
_MAX_ID = (1 << 32) - 2
_DOT = ord(".")
_TEMPORARY = re.compile(rb"\.lastgood-[0-9a-f]{16}-[0-9a-f]+\.tmp")


# Checked by what decodes them, in C: of 17 files that takes 3 µs, and in Python it took 14 more.
Digest = Annotated[bytes, msgspec.Meta(min_length=DIGEST_SIZE, max_length=DIGEST_SIZE)]
Mode = Annotated[int, msgspec.Meta(ge=0, le=MODE_BITS)]


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    name: Annotated[bytes, msgspec.Meta(min_length=1)]


class File(_Entry, frozen=True, array_like=True, tag=1):
    """A file. `digest` is the SHA-256 of the whole content; `chunks` the blob that lists its chunks (`encode_chunks`).
    Without it the content is one blob, whose id is `blob`."""

    mode: Mode
    size: Annotated[int, msgspec.Meta(ge=0)]
    digest: Digest
    chunks: Digest | None = None

    @property
    def blob(self) -> bytes:
        return self.digest


class KeyedFile(File, frozen=True, array_like=True, tag=5):
    """A file in a store whose blob ids are not digests."""

    blob: Digest = b""


Owner = tuple[int, int]
"""The numbers of a user and a group."""


class Attributes(msgspec.Struct, frozen=True, array_like=True):
    """What a file has besides content and mode; `named`: extended attributes, sorted by name."""

    owner: Owner | None
    named: tuple[tuple[bytes, bytes], ...] = ()


class AttributedFile(KeyedFile, frozen=True, array_like=True, tag=6):
    """A file that has more than content and mode."""

    attributes: Attributes | None = None


def attributes_of(entry: Entry | None) -> Attributes | None:
    return entry.attributes if isinstance(entry, AttributedFile) else None


class Folder(_Entry, frozen=True, array_like=True, tag=_FOLDER):
    """A folder; `tree` is the blob of its tree."""

    mode: Mode
    tree: Digest


class Link(_Entry, frozen=True, array_like=True, tag=3):
    """A symbolic link and where it points, as it stands there."""

    target: Annotated[bytes, msgspec.Meta(min_length=1)]


class Left(_Entry, frozen=True, array_like=True, tag=_LEFT):
    """An entry that was not captured; restoring leaves it alone."""

    why: Why


Entry = File | KeyedFile | AttributedFile | Folder | Link | Left


def is_sidecar(entry: Entry | None) -> TypeGuard[Left]:
    """Return whether it is what SQLite keeps beside a database, whose content the database's entry has."""
    return isinstance(entry, Left) and entry.why == "sidecar"


_COUNTED = File, Link
"""What counts as a file."""

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
_ENTRIES, _PARTS, _LISTS = 1, 2, 3
"""Layouts: entries; ids of parts, which hold entries; ids of lists of parts."""
_HEADS = b"\x92\x02", b"\x92\x03"
"""What a wide directory begins with: an array of two, and the layout."""
WHOLE = 32_768
"""Bytes of a directory up to which it is one blob."""
PART, PART_MIN, PART_MAX = 8192, 4096, 32_768
"""Bytes of a part. One change among 50,000 files costs 19 KB: a part of 11, compressed, and lists of 8 at most. Half of
this makes it 22, twice of it 19."""
LIST_BELOW, LIST_MIN, LIST_MAX = 4, 16, 256
_KEPT = 1024
"""Trees that stay decoded: one that has changed is read by the scan, the plan and the next scan."""
_trees = msgspec.msgpack.Decoder(tuple[int, Tree])
_entries = msgspec.msgpack.Decoder(Entry)
_raw_trees = msgspec.msgpack.Decoder(tuple[int, list[msgspec.Raw]])
_part_lists = msgspec.msgpack.Decoder(tuple[int, bytes])
_chunks = msgspec.msgpack.Decoder(Chunked)
_PREFIX = 32  # bytes at the beginning of a tree that most versions of it share: its first name among them


def encode_tree(entries: Sequence[Entry]) -> bytes:
    """Encode a directory canonically."""
    return msgspec.msgpack.encode((_ENTRIES, sorted(entries, key=lambda entry: entry.name)))


_NONE = encode_tree(())


def put_tree(data: bytes, put: Callable[[bytes], bytes]) -> bytes:
    """Store an encoded directory, a wide one in parts, and return its id, which depends on the entries alone."""
    if len(data) <= WHOLE:
        return put(data)
    parts = [put(part) for part in _cut_entries(_raw_trees.decode(data)[1])]
    if len(parts) <= LIST_MAX:
        return put(msgspec.msgpack.encode((_PARTS, b"".join(parts))))
    lists = [put(msgspec.msgpack.encode((_PARTS, b"".join(some)))) for some in _cut_list(parts)]
    return put(msgspec.msgpack.encode((_LISTS, b"".join(lists))))


def _cut_entries(raws: Sequence[msgspec.Raw]) -> Iterator[bytes]:
    """Cut after entries whose bytes say so, whatever lies before: a change moves the ends near it alone."""
    part: list[msgspec.Raw] = []
    size = 0
    for raw in raws:
        part.append(raw)
        size += (length := len(memoryview(raw)))
        if (size >= PART_MIN and crc32(raw) * PART < length << 32) or size >= PART_MAX:
            yield msgspec.msgpack.encode((_ENTRIES, part))
            part, size = [], 0
    if part:
        yield msgspec.msgpack.encode((_ENTRIES, part))


def _cut_list(parts: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    start = 0
    for end, part in enumerate(parts, 1):
        if (part[0] < LIST_BELOW and end - start >= LIST_MIN) or end - start >= LIST_MAX or end == len(parts):
            yield parts[start:end]
            start = end


Fetch = Callable[[Sequence[bytes]], Mapping[bytes, bytes]]
"""The verified bytes of blobs, by id; of others, too, perhaps. IntegrityError when one is missing or damaged."""


def one_by_one(read: Callable[[bytes], bytes]) -> Fetch:
    return lambda keys: {key: read(key) for key in keys}


def open_tree(data: bytes, fetch: Fetch, *, skip: Collection[bytes] = ()) -> Tree:
    """Decode a directory as `decode_tree` does, whether it lies in parts or not; without the parts to skip."""
    parts = list_parts(data, fetch)
    if not parts:
        return decode_tree(data)
    parts = [part for part in parts if part not in skip]
    found = fetch(parts)
    entries: list[Entry] = []
    for part in parts:
        some = decode_tree(found[part])
        if not some or (entries and some[0].name <= entries[-1].name) or len(entries) > MAX_ENTRIES:
            raise _damaged("has parts that do not follow each other")
        entries += some
    return tuple(entries)


def open_differing(old: bytes | None, new: bytes | None, fetch: Fetch) -> tuple[Tree, Tree]:
    """Return the entries of two directories (None: an empty one), without parts that both have."""
    one, other = (_NONE if tree is None else fetch([tree])[tree] for tree in (old, new))
    both = {*list_parts(one, fetch)} & {*list_parts(other, fetch)}
    return open_tree(one, fetch, skip=both), open_tree(other, fetch, skip=both)


def list_parts(data: bytes, fetch: Fetch) -> Sequence[bytes]:
    """Return the parts that hold the entries of a wide directory, in order; of others nothing."""
    parts = parts_of(data)
    if data[:2] == _HEADS[1]:
        found = fetch(parts)
        lists = [found[each] for each in parts]
        if any(each[:2] != _HEADS[0] for each in lists) or sum(map(len, lists)) > MAX_ENTRIES * DIGEST_SIZE:
            raise _damaged("has lists of parts that cannot be such")
        parts = [part for each in lists for part in parts_of(each)]
    return parts


def parts_of(data: bytes) -> Sequence[bytes]:
    """Return what a wide directory, or a list of its parts, refers to itself; of others nothing."""
    if data[:2] not in _HEADS:
        return ()
    try:
        _, ids = _part_lists.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise _damaged("has a list of parts that cannot be read") from error
    parts = [ids[at : at + DIGEST_SIZE] for at in range(0, len(ids), DIGEST_SIZE)]
    if not parts or len(parts[-1]) != DIGEST_SIZE or len(set(parts)) != len(parts):
        raise _damaged("has a list of parts that cannot be one")
    return parts


@lru_cache(_KEPT)
def decode_tree(data: bytes) -> Tree:
    """Decode a tree that is one blob, of bytes that were compared with their id. IntegrityError when it could lead out
    of itself."""
    entries = _decode(data)
    _require_entries(entries)
    return entries


class Versions:
    """A decoder of many trees, most of which are versions of each other: only the entries whose bytes differ from
    those of the version before are read. 45,000 trees with 1.4 million entries take 0.3 s, not 2."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, bytes], tuple[bytes, list[int], TreeSummary]] = {}

    def decode_new(self, data: bytes) -> tuple[Sequence[Entry], TreeSummary]:
        """Decode the entries that were not there before, of bytes that were compared with their id; and summarize the
        tree."""
        prefix = len(data), data[:_PREFIX]
        if (last := self._last.get(prefix)) is not None:
            before, starts, summary = last
            changes = _differing(before, data, starts)
            if changes is not None:
                summary = _summarize_again(summary, changes)
                self._last[prefix] = data, starts, summary
                return [new for _, new in changes], summary
        entries = _decode(data)
        _require_entries(entries)
        end = len(data)
        starts = [end]
        for raw in reversed(_raw_trees.decode(data)[1]):
            end -= len(memoryview(raw))
            starts.append(end)
        starts.reverse()
        summary = _summarize(entries)
        self._last[prefix] = data, starts, summary
        return entries, summary


def _differing(before: bytes, data: bytes, starts: list[int]) -> list[tuple[Entry, Entry]] | None:
    """The entries of a version whose bytes are others than in the one before, each with the one before; None where that
    cannot be said: then an entry begins elsewhere, or is called otherwise."""
    size = len(data)
    bits = int.from_bytes(before) ^ int.from_bytes(data)
    first = size - (bits.bit_length() + 7) // 8
    if first < starts[0]:
        return None
    last = size - ((bits & -bits).bit_length() + 7) // 8
    changes: list[tuple[Entry, Entry]] = []
    for at in range(bisect_right(starts, first) - 1, bisect_right(starts, last)) if bits else ():
        start, end = starts[at : at + 2]
        if data[start:end] == before[start:end]:
            continue
        try:
            entry, old = _entries.decode(data[start:end]), _entries.decode(before[start:end])
        except (msgspec.DecodeError, msgspec.ValidationError):
            return None
        if entry.name != old.name:
            return None
        if not _is_possible(entry):
            raise _damaged("holds an entry that cannot be one")
        changes.append((old, entry))
    return changes


def _decode(data: bytes) -> Tree:
    try:
        layout, entries = _trees.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise _damaged("cannot be read") from error
    if layout != _ENTRIES:
        raise _damaged(f"has the unknown layout {layout}")
    return entries


def _require_entries(entries: Tree) -> None:
    last = b""
    for entry in entries:
        name = entry.name
        is_plain = type(entry) in _PLAIN and name[0] != _DOT and b"/" not in name and b"\0" not in name
        if name <= last or not (is_plain or _is_possible(entry)):
            raise _damaged("holds an entry that cannot be one")
        last = name


def _is_possible(entry: Entry) -> bool:
    return (is_name(entry.name) or _is_repository(entry)) and _is_whole(entry)


_PLAIN = frozenset((File, Folder))
"""Entries of which nothing but the name is left to check when they are decoded."""


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


class TreeSummary(NamedTuple):
    """A tree in short: how many files and links are in it, and the trees of its folders, or its parts. `first` and
    `last`: its first name and its last; of one in parts they are not known."""

    layout: int
    files: int
    trees: Sequence[bytes]
    first: bytes = b""
    last: bytes = b""


def find_misfits(summaries: dict[bytes, TreeSummary]) -> Iterator[bytes]:
    """Find the wide directories, and lists of parts, whose parts are others than parts may be, or not in order."""
    for layout in (_PARTS, _LISTS):
        for key, one in [(key, one) for key, one in summaries.items() if one.layout == layout]:
            parts = [summaries[part] for part in one.trees if part in summaries]
            ends = [name for part in parts for name in (part.first, part.last)]
            if len(parts) < len(one.trees):
                continue  # one of them is damaged itself
            if all(part.layout == layout - 1 and part.first for part in parts) and _are_apart(ends):
                summaries[key] = one._replace(first=ends[0], last=ends[-1])
            else:
                yield key


def _are_apart(ends: Sequence[bytes]) -> bool:
    return all(last < first for last, first in zip(ends[1::2], ends[2::2], strict=False))


def _summarize(entries: Tree) -> TreeSummary:
    trees = [entry.tree for entry in entries if isinstance(entry, Folder)]
    ends = [entries[0].name, entries[-1].name] if entries else []
    return TreeSummary(_ENTRIES, sum(isinstance(entry, _COUNTED) for entry in entries), trees, *ends)


def _summarize_again(before: TreeSummary, changes: Iterable[tuple[Entry, Entry]]) -> TreeSummary:
    """Summarize a version of a tree. Names and their order are the same."""
    files, trees = before.files, list(before.trees)
    for old, new in changes:
        files += isinstance(new, _COUNTED) - isinstance(old, _COUNTED)
        if isinstance(old, Folder):
            trees.remove(old.tree)
        if isinstance(new, Folder):
            trees.append(new.tree)
    return before._replace(files=files, trees=trees)


class EntryCount:
    """A count of what a walk through trees meets. Folders may share their trees: a few kilobytes can lead to more files
    than any machine holds. So a walk ends when it has met more files and links than its record says (`files`; None: not
    known), or more than `MAX_ENTRIES` of all kinds."""

    def __init__(self, files: int | None = None) -> None:
        self._limit = files
        self.files = 0
        self._entries = 0

    def take(self, entries: Tree) -> Tree:
        """Count a folder's entries, and return them. IntegrityError when they are too many."""
        self._entries += len(entries)
        self.files += sum(isinstance(entry, _COUNTED) for entry in entries)
        if self._limit is not None and self.files > self._limit:
            raise _damaged("leads to more files than its record says")
        if self._entries > MAX_ENTRIES:
            raise _damaged(f"leads to more than {MAX_ENTRIES:,} entries")
        return entries


TreePair = tuple[bytes | None, bytes | None]


def differing_below(pairs: Iterable[TreePair], fetch: Fetch) -> list[TreePair]:
    """Return the folders directly below pairs of trees that differ."""
    below: dict[TreePair, None] = {}
    for pair in pairs:
        trees = [open_tree(fetch([tree])[tree], fetch) if tree is not None else () for tree in pair]
        ones, others = ({entry.name: entry.tree for entry in tree if type(entry) is Folder} for tree in trees)
        names = [*ones, *(others.keys() - ones.keys())]
        below.update({(ones.get(name), others.get(name)): None for name in names})
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


def _is_repository(entry: Entry) -> bool:
    """Return whether it says that a `.git` was left out: the one entry that may have that name."""
    return isinstance(entry, Left) and entry.why == "repository" and is_git(entry.name)


def _is_whole(entry: Entry) -> bool:
    if isinstance(entry, KeyedFile):
        return bool(entry.blob) and (not isinstance(entry, AttributedFile) or _are_attributes(entry.attributes))
    return not isinstance(entry, Link) or b"\0" not in entry.target


def is_attribute(name: bytes) -> bool:
    """Return whether an extended attribute is captured, and may be restored: a user's own, and access control lists.
    Others give rights (capabilities), or are the system's (labels)."""
    return name == _ACL or (name.startswith(b"user.") and b"\0" not in name)


def _are_attributes(attributes: Attributes | None) -> bool:
    if attributes is None or not (attributes.owner or attributes.named):
        return False
    names = [name for name, _ in attributes.named]
    size = sum(len(name) + len(value) for name, value in attributes.named)
    return (
        all(map(is_attribute, names))
        and names == sorted(set(names))
        and size <= MAX_ATTRIBUTES
        and all(0 <= number <= _MAX_ID for number in attributes.owner or ())
    )


def _damaged(how: str) -> IntegrityError:
    return IntegrityError(f"a directory of a checkpoint {how}", hint="restore another checkpoint")
