"""The stat index: what each folder of a root looked like when it was captured last, and what that came to.

A cache, never proof: not that a blob is stored, and not that a file is unchanged unless its time stamps were old enough
when they were seen. It is kept per folder and compared as bytes, so that an unchanged folder costs no object per file.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Self

import msgspec

from lastgood.model.digest import SIZE, digest
from lastgood.model.tree import Entry, Folder, Why, decode_tree

Signature = tuple[int, int, int, int, int, int]
"""mode, size, mtime_ns, ctime_ns, inode, device."""

signature = attrgetter("st_mode", "st_size", "st_mtime_ns", "st_ctime_ns", "st_ino", "st_dev")
encode = msgspec.msgpack.Encoder().encode

_MAGIC = b"lastgood index 2\n"
_signatures = msgspec.msgpack.Decoder(list[Signature | None])
_CLOCK_NS = 20_000_000
_WHOLE_SECONDS_NS = 2_000_000_000


def is_settled(seen: Signature, began_ns: int) -> bool:
    """Whether a write after `began_ns` is sure to give the file another stamp.

    Files are stamped with the kernel's coarse clock, which lags by up to one tick, 10 ms at 100 Hz: two of them, then.
    A stamp of whole seconds may come from a file system that knows nothing finer; FAT counts in steps of two.
    """
    margin = _CLOCK_NS if seen[3] % 1_000_000_000 else _CLOCK_NS + _WHOLE_SECONDS_NS
    return max(seen[2], seen[3]) < began_ns - margin


class Report(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One name in a folder that was not captured, and why."""

    name: bytes
    why: Why
    detail: str = ""


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One folder as it was captured."""

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
    """The encoded tree, and its id."""
    id: bytes = b""
    files: int = 0
    """How many files and links are in it and below, and the bytes of the files."""
    size: int = 0
    reports: tuple[Report, ...] = ()
    lists: tuple[bytes, ...] = ()
    """The chunk lists of the large files in it, encoded."""
    is_sure: bool = True
    """False: the next capture has to look at each name."""
    is_restless: bool = False
    """The next capture has to look at the folder, even if it is told that nothing has changed there."""

    def known(self) -> dict[bytes, tuple[Signature, Entry]]:
        """What may be trusted of the names in it; folders are not among them."""
        entries = {entry.name: entry for entry in decode_tree(self.tree, self.id)}
        names = name_others(self.listing, split(self.left))
        return {
            name: (seen, entries[name])
            for name, seen in zip(names, _signatures.decode(self.seen), strict=True)
            if seen is not None and name in entries
        }

    def entries(self) -> dict[bytes, Entry]:
        """All of its tree but the folders."""
        return {entry.name: entry for entry in decode_tree(self.tree, self.id) if not isinstance(entry, Folder)}

    def folders(self) -> dict[bytes, int]:
        """The folders of its tree and their modes, in the order of the listing."""
        modes = {entry.name: entry.mode for entry in decode_tree(self.tree, self.id) if isinstance(entry, Folder)}
        return {name: modes[name] for name in split(self.listing.partition(b"\0\0")[2]) if name in modes}


def list_names(names: list[bytes], folders: list[bytes]) -> bytes:
    return b"\0".join(names) + b"\0\0" + b"\0".join(folders)


def name_others(listing: bytes, left: Collection[bytes]) -> list[bytes]:
    """The names in it that are neither folders nor left out by a rule."""
    names, _, folders = listing.partition(b"\0\0")
    other = {*split(folders), *left}
    return [name for name in split(names) if name not in other]


def split(names: bytes) -> list[bytes]:
    return names.split(b"\0") if names else []


class _Content(msgspec.Struct, frozen=True, array_like=True):
    root: bytes
    store: str
    folders: dict[bytes, Record]
    listed: dict[bytes, Record]


_content = msgspec.msgpack.Decoder(_Content)


class StatIndex:
    """The records of one root, by path. Whoever uses it holds the lock of the workspace."""

    def __init__(self, file: Path | None = None, root: str = "", store: str = "") -> None:
        """An empty one; without a file it lives in memory alone."""
        self._file = file
        self._owner = os.fsencode(root), store
        self._changed = False
        self.folders: dict[bytes, Record] = {}
        self.listed: dict[bytes, Record] = {}
        """Of captures of everything, and of those of an explicit list."""

    @classmethod
    def load(cls, file: Path, root: str, store: str = "") -> Self:
        """What was saved for this root and store; empty when it is missing, damaged or someone else's."""
        index = cls(file, root, store)
        try:
            data = file.read_bytes()
        except OSError:
            return index
        start = len(_MAGIC) + SIZE
        if not data.startswith(_MAGIC) or digest(data[start:]) != data[len(_MAGIC) : start]:
            return index
        try:
            content = _content.decode(memoryview(data)[start:])
        except (msgspec.DecodeError, msgspec.ValidationError):
            return index
        if (content.root, content.store) == index._owner:
            index.folders, index.listed = content.folders, content.listed
        return index

    def replace(self, records: dict[bytes, Record], *, listed: bool) -> None:
        old = self.listed if listed else self.folders
        if all(old.get(path) is record for path, record in records.items()):
            return
        self._changed = True
        if listed:
            self.listed = records
        else:
            self.folders = records

    def save(self) -> None:
        """At once and whole, or not at all. Not synced: a cache that a power loss damages is found to be so."""
        if self._file is None or not self._changed:
            return
        data = encode(_Content(*self._owner, self.folders, self.listed))
        temporary = self._file.with_name(f"{self._file.name}.{os.getpid()}.tmp")
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(temporary, "wb", opener=_open_private) as file:
                file.write(_MAGIC + digest(data))
                file.write(data)
            temporary.replace(self._file)
        except OSError:  # the next capture reads more, that is all
            with suppress(OSError):
                temporary.unlink()
            return
        self._changed = False


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
