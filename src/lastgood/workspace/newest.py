"""The last change to what a capture holds: which file or folder of files, and when, by its ctime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lastgood.model.tree import File, Link
from lastgood.workspace.beneath import join
from lastgood.workspace.index import Record
from lastgood.workspace.scan import Visit


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


def find_newest(records: Mapping[bytes, Record], visits: Mapping[bytes, Visit]) -> Newest:
    """Of all that was captured: `records` are its folders, `visits` those that were looked at.

    Folders are stamped when names in them come and go, ignored ones too, and that says nothing; but then their mtime is
    the same. One that was moved, or whose mode was changed, has a later ctime, and brings all of its files along.
    """
    stamp, folder = max([(record.newest[0], path) for path, record in records.items()])
    path = join(folder, records[folder].newest[1])
    for moved, visit in visits.items():
        _, _, mtime, ctime, *_ = visit.status
        if ctime > stamp and ctime > mtime and moved and moved in records and records[moved].files:
            stamp, path = ctime, moved
    return Newest(stamp, path)
