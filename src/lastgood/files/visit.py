"""A folder as one scan found it: what is known of the names in it, and what has to be read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

import msgspec

from lastgood.files.folders import Signature, join
from lastgood.files.index import FolderRecord, Report, split
from lastgood.files.read import Content, LeftOut, ReadJob
from lastgood.model.identity import digest
from lastgood.model.tree import Entry, File, Left, Link

if TYPE_CHECKING:
    from lastgood.files.rules.rules import RuleLevel

SIDECARS = (b"-wal", b"-journal", b"-shm")

Known = Mapping[bytes, tuple[Signature, Entry]]


@dataclass(slots=True)
class FolderVisit:
    """A folder as it was found. `same` is its record if nothing in it has changed; then the rest is empty."""

    path: bytes
    status: Signature
    listing: bytes
    rules: bytes
    level: RuleLevel | None
    """Kept for as long as the folders below may have to be entered."""
    same: FolderRecord | None = None
    folders: list[bytes] = field(default_factory=list)
    left: list[bytes] = field(default_factory=list)
    signatures: dict[bytes, Signature] = field(default_factory=dict)
    """Of every name that is neither a folder nor left out by a rule, in the order of the listing."""
    entries: dict[bytes, Entry] = field(default_factory=dict)
    reused: list[bytes] = field(default_factory=list)
    jobs: dict[bytes, ReadJob] = field(default_factory=dict)
    lists: dict[bytes, bytes] = field(default_factory=dict)
    reports: dict[bytes, Report] = field(default_factory=dict)
    is_sure: bool = True
    """False: the next capture has to examine each name."""
    has_links: bool = False
    """Whether files in it have other names as well, under which they can change."""

    @classmethod
    def recalled(cls, path: bytes, record: FolderRecord) -> Self:
        """Make one from the record of a folder that is known to be as it was."""
        nothing = (0, 0, 0, 0, 0, 0)
        return cls(path, nothing, record.listing, record.rules, None, record, list(record.folders()))

    def known(self) -> Known:
        if self.same is not None:
            return self.same.known()
        return {
            name: (seen, entry)
            for name, seen in self.signatures.items()
            if isinstance(entry := self.entries.get(name), File | Link)
        }

    def accept(self, name: bytes, content: Content) -> None:
        self.signatures[name] = content.seen
        self.entries[name] = File(name, stat.S_IMODE(content.seen[0]), content.size, content.digest, content.chunks)
        if content.chunks is not None:
            self.lists[content.chunks] = content.listing

    def refuse(self, name: bytes, skipped: LeftOut) -> None:
        """Leave it out: it cannot be captured, or (missing) is not there after all."""
        self._unfold()
        self.is_sure = False
        if name in self.folders:
            self.folders.remove(name)
        self.entries.pop(name, None)
        if skipped.why == "missing":
            self.signatures.pop(name, None)  # whatever lies there when the folder is visited again is news
        else:
            assert skipped.why != "rules", "nothing is refused for that"
            self.reports[name] = Report(name, skipped.why, skipped.detail)
            self.entries[name] = Left(name, skipped.why)

    def _unfold(self) -> None:
        """Copy what the record says, so that it can be changed."""
        if self.same is not None:
            self.signatures = {name: seen for name, (seen, _) in self.same.known().items()}
            self.entries = self.same.entries()
            self.left = split(self.same.left)
            self.lists = lists_of(None, self.same)
            self.reports = {report.name: report for report in self.same.reports}
            self.same = None

    def holds_still(self, again: FolderVisit) -> bool:
        """Return whether the same files lie under the same names in a second visit, whatever is in them."""
        return (
            self.listing == again.listing
            and self.rules == again.rules
            and (self.status[0], *self.status[4:]) == (again.status[0], *again.status[4:])
            and self.folders == [name for name in again.folders if name not in self.entries]
            and ((self.same is not None and self.same is again.same) or self._inodes() == again._inodes())
        )

    def _inodes(self) -> dict[bytes, tuple[int, ...]]:
        if self.same is not None:
            return {name: seen[4:] for name, (seen, _) in self.same.known().items()}
        return {name: seen[4:] for name, seen in self.signatures.items()}


def examine(folder: int, visit: FolderVisit, name: bytes, seen: Signature, was: tuple[Signature, Entry] | None) -> None:
    mode = seen[0]
    visit.signatures[name] = seen
    if stat.S_ISREG(mode):
        if was is not None and was[0] == seen:
            visit.entries[name] = was[1]
            visit.reused.append(name)
        else:
            visit.jobs[name] = ReadJob(join(visit.path, name), seen)
    elif stat.S_ISLNK(mode):
        visit.entries[name] = Link(name, os.readlink(name, dir_fd=folder))
    elif stat.S_ISDIR(mode):  # a moment ago it was something else: the folder has changed and is visited again
        visit.is_sure = False
    else:
        visit.entries[name] = Left(name, "special")
        visit.reports[name] = Report(name, "special", _name_of(mode))


def demand_files(visit: FolderVisit, names: Iterable[bytes]) -> None:
    """Have files read that were thought to be known."""
    for name in names:
        visit.jobs[name] = ReadJob(join(visit.path, name), visit.signatures[name])
    keep_databases_whole(visit, {})


def keep_databases_whole(visit: FolderVisit, known: Known) -> None:
    """Have a database read whose write-ahead log or journal changed, though its own file is untouched."""
    beside = [name for name in {*visit.signatures, *known} if name.endswith(SIDECARS) and _is_file(visit, _main(name))]
    for name in beside:
        has_changed = name in visit.jobs or name not in visit.signatures
        if has_changed and not name.endswith(b"-shm"):  # which readers write, too
            _demand(visit, _main(name), "database")
    for name in beside:
        if _main(name) in visit.jobs and name in visit.signatures:
            _demand(visit, _main(name), "database")
        if _is_file(visit, name) and (name in visit.jobs or _main(name) in visit.jobs):
            _demand(visit, name, "sidecar")
    visit.reused = [name for name in visit.reused if name not in visit.jobs]


def _main(sidecar: bytes) -> bytes:
    return sidecar.rpartition(b"-")[0]


def _is_file(visit: FolderVisit, name: bytes) -> bool:
    return name in visit.signatures and stat.S_ISREG(visit.signatures[name][0])


def _demand(visit: FolderVisit, name: bytes, kind: Literal["database", "sidecar"]) -> None:
    visit.jobs[name] = ReadJob(join(visit.path, name), visit.signatures[name], kind)


def lists_of(before: FolderVisit | None, record: FolderRecord | None) -> dict[bytes, bytes]:
    lists = {digest(data): data for data in record.lists} if record is not None else {}
    return lists if before is None else lists | before.lists


def _name_of(mode: int) -> str:
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a pipe" if stat.S_ISFIFO(mode) else "a device"


def newest_in(visit: FolderVisit) -> tuple[int, bytes]:
    """Find the last change in one folder. What is left out does not count, nor what readers of databases write."""
    signatures, entries = visit.signatures, visit.entries
    stamps = [
        (seen[3], name)
        for name, seen in signatures.items()
        if isinstance(entries.get(name), File | Link)
        and not (name.endswith(b"-shm") and name.removesuffix(b"-shm") in signatures)
    ]
    return max(stamps, default=(0, b""))


def dated(record: FolderRecord, visit: FolderVisit) -> FolderRecord:
    """Return the record of a folder with when the folder itself was changed, if that was later.

    Folders are stamped when names in them come and go, ignored ones too, and that says nothing; but then their mtime is
    the same. One that was moved, or whose mode was changed, has a later ctime, and brings all of its files along.
    """
    _, _, mtime, ctime, *_ = visit.status
    is_later = mtime < ctime > record.newest[0] and record.files and visit.path
    return msgspec.structs.replace(record, newest=(ctime, b"")) if is_later else record
