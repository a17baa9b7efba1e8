"""The last change to what a capture holds: which file or folder of files, and when, by its ctime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from lastgood.files.beneath import join
from lastgood.files.index import Record
from lastgood.files.scan import Visit
from lastgood.model.tree import File, Link


class Newest(NamedTuple):
    """`path` was changed, made or moved to where it is at `stamp`; nothing that was captured was later than that."""

    stamp: int
    path: bytes


def newest_in(visit: Visit) -> tuple[int, bytes]:
    """Of the files and links in one folder. What is left out does not count, nor what readers of databases write."""
    signatures, entries = visit.signatures, visit.entries
    stamps = [
        (seen[3], name)
        for name, seen in signatures.items()
        if isinstance(entries.get(name), File | Link)
        and not (name.endswith(b"-shm") and name.removesuffix(b"-shm") in signatures)
    ]
    return max(stamps, default=(0, b""))


def dated(record: Record, visit: Visit) -> Record:
    """The record of a folder that was visited, with when the folder itself was changed, if that was later.

    Folders are stamped when names in them come and go, ignored ones too, and that says nothing; but then their mtime is
    the same. One that was moved, or whose mode was changed, has a later ctime, and brings all of its files along.
    """
    _, _, mtime, ctime, *_ = visit.status
    is_later = mtime < ctime > record.newest[0] and record.files and visit.path
    return msgspec.structs.replace(record, newest=(ctime, b"")) if is_later else record


def find_newest(records: Mapping[bytes, Record]) -> Newest:
    """Of all that was captured, by folder."""
    stamp, name, folder = max([(*record.newest, path) for path, record in records.items()])
    return Newest(stamp, join(folder, name) if name else folder)
