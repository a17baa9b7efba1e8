"""The stat index: what each folder of a root looked like when it was captured last, and what that came to.

A cache, never proof: not that a blob is stored, and not that a file is unchanged unless its time stamps were old enough
when they were seen. It is kept per folder and compared as bytes, so that an unchanged folder costs no object per file.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from lastgood.files.read import LeftOut
from lastgood.local.location import make_private
from lastgood.local.paths import Signature, join, open_private
from lastgood.model.identity import DIGEST_SIZE, digest
from lastgood.model.tree import Entry, Folder, decode_tree

encode = msgspec.msgpack.Encoder().encode

_MAGIC = b"lastgood index 4\n"
_HEAD = struct.Struct(f"<Q{DIGEST_SIZE}s")
_signatures = msgspec.msgpack.Decoder(list[Signature | None])

_KEPT = 1024
"""Records that stay decoded: one that has changed is asked by the scan, while it is applied, and by the next scan."""

_Identity = tuple[int, int, int]
"""Inode, mtime_ns and size of a file in which an index is kept: it grows, or is another one, when one is saved."""


class FolderRecord(msgspec.Struct, frozen=True, array_like=True):
    """A folder as it was captured."""

    listing: bytes
    """`list_names` of it."""
    rules: bytes
    """The digest of the rules that decided what is left out."""
    left: bytes
    """The names that were left out by rules."""
    seen: bytes
    """The signatures of all other names but folders, in the order of the listing; null for one not to be trusted."""
    children: bytes = b""
    """The modes and tree ids of the folders in it that were captured, in the order of the listing."""
    tree: bytes = b""
    """The encoded tree, in one piece however wide it is, and its id."""
    id: bytes = b""
    files: int = 0
    """How many files and links are in it and below, and the bytes of the files."""
    size: int = 0
    reports: tuple[LeftOut, ...] = ()
    """What was not captured of it, by name."""
    lists: tuple[tuple[bytes, bytes], ...] = ()
    """The chunk lists of the large files in it: id and bytes of each."""
    is_sure: bool = True
    """False: the next capture has to examine each name."""
    is_restless: bool = False
    """The next capture has to visit the folder, even if nothing is known to have changed there."""
    newest: tuple[int, bytes] = (0, b"")
    """The ctime and the name of what changed last in it; folders and what was left out do not count. Without a name it
    is the folder itself, which was moved."""

    @lru_cache(_KEPT)  # noqa: B019
    def known(self) -> Mapping[bytes, tuple[Signature, Entry]]:
        """Return what may be trusted of the names in it; folders are not among them."""
        entries = {entry.name: entry for entry in decode_tree(self.tree)}
        names = name_others(self.listing, split(self.left))
        return {
            name: (seen, entries[name])
            for name, seen in zip(names, _signatures.decode(self.seen), strict=True)
            if seen is not None and name in entries
        }

    def entries(self) -> dict[bytes, Entry]:
        """Return all of its tree but the folders."""
        return {entry.name: entry for entry in decode_tree(self.tree) if not isinstance(entry, Folder)}

    @lru_cache(_KEPT)  # noqa: B019
    def folders(self) -> Mapping[bytes, int]:
        """Return the folders of its tree and their modes, in the order of the listing."""
        names = split(self.listing.partition(b"\0\0")[2])
        entries = decode_tree(self.tree) if names else ()
        modes = {entry.name: entry.mode for entry in entries if isinstance(entry, Folder)}
        return {name: modes[name] for name in names if name in modes}


class Newest(NamedTuple):
    """A last change: `path` was changed, made or moved at `stamp`; nothing that was captured changed later."""

    stamp: int
    path: bytes


def find_newest(records: Mapping[bytes, FolderRecord]) -> Newest:
    """Find the last change to all that was captured, by folder."""
    stamp, name, folder = max([(*record.newest, path) for path, record in records.items()])
    return Newest(stamp, join(folder, name) if name else folder)


def list_names(names: list[bytes], folders: list[bytes]) -> bytes:
    return b"\0".join(names) + b"\0\0" + b"\0".join(folders)


def name_others(listing: bytes, left: Collection[bytes]) -> list[bytes]:
    """Return the names in it that are neither folders nor left out by a rule."""
    names, _, folders = listing.partition(b"\0\0")
    other = {*split(folders), *left}
    return [name for name in split(names) if name not in other]


def split(names: bytes) -> list[bytes]:
    return names.split(b"\0") if names else []


class _Content(msgspec.Struct, frozen=True, array_like=True):
    root: bytes
    store: str
    folders: dict[bytes, FolderRecord]
    listed: dict[bytes, FolderRecord]


class _Changes(msgspec.Struct, frozen=True, array_like=True):
    """A change of records; None: they are gone."""

    folders: dict[bytes, FolderRecord | None]
    listed: dict[bytes, FolderRecord | None]


_content = msgspec.msgpack.Decoder(_Content)
_changes = msgspec.msgpack.Decoder(_Changes)


class StatIndex:
    """An index of one root: its records by path. Used with the workspace's lock held.

    Its file begins with all records. What changed is appended, until that is half as much again.
    """

    def __init__(self, file: Path | None = None, root: str = "", store: str = "") -> None:
        """Make an empty one; without a file it lives in memory alone."""
        self._file = file
        self._owner = os.fsencode(root), store
        self._is_kept = False
        self.generation = 0
        """Another number whenever its records were not made by this process."""
        self._begin(None)

    def _begin(self, identity: _Identity | None) -> None:
        self._identity = identity
        """That of its file when it was loaded or saved last."""
        self.generation += 1
        self._changes = _Changes({}, {})
        self._whole, self._appended = 0, 0
        """Bytes in the file; 0 if it has to be written anew."""
        self.folders: dict[bytes, FolderRecord] = {}
        self.listed: dict[bytes, FolderRecord] = {}
        """Of captures of everything, and of those of an explicit list."""

    def refresh(self) -> Self:
        """Load what was saved for this root and store since; empty when it is missing, damaged or another one's.

        Changes that are damaged count for nothing, nor do those after them: older records only tell less.
        """
        if self._file is None or (self._is_kept and (self.folders or self.listed)):
            return self
        found = _identify(self._file)
        if found == self._identity:
            return self
        self._begin(found)
        with suppress(OSError, msgspec.DecodeError), open(self._file, "rb", opener=_open_private) as opened:
            self._take(opened.read())
        return self

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Take it, inside the block, as this process left it, wherever its file is, and do not save it."""
        self._is_kept = True
        try:
            yield
        finally:
            self._is_kept = False

    def forget(self) -> None:
        """Empty it."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)
        self._begin(None)

    def _take(self, data: bytes) -> None:
        whole = _part(data, len(_MAGIC)) if data.startswith(_MAGIC) else None
        if whole is None:
            return
        content = _content.decode(whole)
        if (content.root, content.store) != self._owner:
            return
        self.folders, self.listed = content.folders, content.listed
        at = start = len(_MAGIC) + _HEAD.size + len(whole)
        while (part := _part(data, at)) is not None:
            changes = _changes.decode(part)
            _apply(self.folders, changes.folders)
            _apply(self.listed, changes.listed)
            at += _HEAD.size + len(part)
        if at == len(data):
            self._whole, self._appended = start, at - start

    def replace(self, records: dict[bytes, FolderRecord], *, listed: bool) -> None:
        old, changes = (self.listed, self._changes.listed) if listed else (self.folders, self._changes.folders)
        changed = {path: record for path, record in records.items() if old.get(path) is not record}
        if not changed:
            return
        changes.update(changed)
        changes.update(dict.fromkeys(old.keys() - records.keys()))
        if listed:
            self.listed = records
        else:
            self.folders = records

    def save(self) -> None:
        """Save it, not synced: damage by a power loss is noticed. If that fails, or another process has saved its own,
        the next capture reads more."""
        if self._file is None or self._is_kept or _identify(self._file) != self._identity:
            return
        if not (self._changes.folders or self._changes.listed):
            return
        part = _seal(self._changes)
        try:
            if self._appended + len(part) > self._whole // 2:
                self._write(self._file, _MAGIC + _seal(_Content(*self._owner, self.folders, self.listed)))
            else:
                self._append(self._file, part)
            self._changes = _Changes({}, {})
        except OSError:
            self._whole = 0
        self._identity = _identify(self._file)

    def _write(self, place: Path, data: bytes) -> None:
        """Write the whole file, at once or not at all."""
        temporary = place.with_name(f"{place.name}.{os.getpid()}.tmp")
        try:
            make_private(place.parent)
            with open(temporary, "wb", opener=_open_private) as file:
                file.write(data)
            temporary.replace(place)
        finally:
            with suppress(OSError):
                temporary.unlink()
        self._whole, self._appended = len(data), 0

    def _append(self, place: Path, part: bytes) -> None:
        with open(place, "r+b", opener=_open_private) as file:
            if file.seek(0, os.SEEK_END) != self._whole + self._appended:
                raise FileNotFoundError
            file.write(part)
        self._appended += len(part)


def _identify(file: Path) -> _Identity | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _seal(content: _Content | _Changes) -> bytes:
    data = encode(content)
    return _HEAD.pack(len(data), digest(data)) + data


def _part(data: bytes, at: int) -> bytes | None:
    """Return what was sealed there; None if it is damaged, or if there is nothing."""
    if len(data) < at + _HEAD.size:
        return None
    length, expected = _HEAD.unpack_from(data, at)
    part = data[at + _HEAD.size : at + _HEAD.size + length]
    return part if len(part) == length and digest(part) == expected else None


def _apply(records: dict[bytes, FolderRecord], changes: dict[bytes, FolderRecord | None]) -> None:
    for path, record in changes.items():
        if record is None:
            records.pop(path, None)
        else:
            records[path] = record


def _open_private(path: str, flags: int) -> int:
    """Open a regular file; OSError also for anything else: a fifo would be waited for."""
    descriptor = open_private(path, flags)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
