"""Capturing a root: scan it, read what is new, and put blobs and trees where they are kept, leaves first."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from lastgood.errors import CheckpointError, InvalidError, UnavailableError
from lastgood.files.index import FolderRecord, StatIndex, encode, name_others
from lastgood.files.read import BlobSink, Content, LeftOut, ReadFiles, ReadJob, main_of, read_jobs, without_ctime
from lastgood.files.rules import GIT_RULES, OWN_RULES
from lastgood.files.scan import Expect, FolderVisit, Scan, demand_files
from lastgood.local.paths import FolderWalk, Signature, is_settled, join, split
from lastgood.model.tree import (
    MODE_BITS,
    Entry,
    File,
    Folder,
    Left,
    Link,
    decode_chunks,
    encode_tree,
    is_name,
    is_sidecar,
    put_tree,
)

if TYPE_CHECKING:
    from lastgood.files.roots import Root
    from lastgood.files.rules import Rules
    from lastgood.files.scan import Changed
    from lastgood.files.watch import Watcher

ROUNDS = 8
"""How often folders that changed during the scan are visited again."""


class Sink(BlobSink, Protocol):
    """A place for blobs. What `has` says is there, a tree may name without putting it."""

    def has(self, ids: Sequence[bytes]) -> set[bytes]:
        """Return which of these blobs are stored already."""


class Captured(NamedTuple):
    """A captured root.

    `file_count` counts files and links, `new_bytes` the content that had to be read, stored before or not. `records`
    are those of its folders.
    """

    tree: bytes
    file_count: int
    total_size: int
    skipped: tuple[LeftOut, ...]
    partial: bool
    new_bytes: int
    records: Mapping[bytes, FolderRecord]


def capture(
    root: Root,
    rules: Rules,
    index: StatIndex,
    sink: Sink,
    *,
    files: Sequence[bytes] | None = None,
    leave: Collection[str] = (),
    trusted: bytes | None = None,
    read_files: ReadFiles | None = None,
    read_apart: ReadFiles | None = None,
    expect: Expect | None = None,
    changed: Changed | None = None,
    watch: Watcher | None = None,
) -> Captured:
    """Put the root as it lies there into the sink, as trees and blobs. The index is brought up to date, not saved.

    `files`: only these, whatever the rules say; a folder among them stands for all that is in it. `leave`: real paths
    that belong to the store. `trusted`: a tree of this root whose blobs are sure to be stored; what else the index
    knows is checked with `sink.has` and read again when it is missing.

    `read_files` reads files, in other processes perhaps, and hands back what has to be read apart: files that this
    process has open, since closing one would drop the locks on it. They go to `read_apart`, and so do SQLite databases
    and what lies beside them; without it, an open file is unreadable and a database a file like any other. `expect`
    gets early what `read_files` will be asked for.

    `changed`: all that has changed since the index was last brought up to date; if the trusted tree is the one that
    came of that, only these folders are visited. `watch` gets every folder before it is listed.
    """
    wanted = None if files is None else _name_wanted(files)
    records = index.folders if wanted is None else index.listed
    is_trusted = trusted is not None and b"" in records and records[b""].id == trusted
    read = read_files or partial(read_jobs, root.path, sink=sink, databases=read_apart is None)
    began_ns = time.time_ns()

    def scan_root(changed: Changed | None) -> tuple[Scan, _Reader, list[LeftOut] | None]:
        scan = Scan(
            walk,
            rules.enter if wanted is None else None,
            records,
            is_trusted=is_trusted,
            began_ns=began_ns,
            left_out=_below(root.path, leave),
            wanted=wanted or {},
            changed=changed,
            watch=watch.add if watch is not None and wanted is None else None,
            expect=expect,
        )
        scan.begin()
        reader = _Reader(scan, sink, read, read_apart, is_trusted)
        return scan, reader, _read_until_stable(scan, reader, watch)

    try:
        with FolderWalk(root.path) as walk:
            scan, reader, restless = scan_root(changed if is_trusted and wanted is None else None)
            if restless is None:
                scan, reader, restless = scan_root(None)
    except OSError as error:
        if isinstance(error, CheckpointError):
            raise
        raise UnavailableError("the workspace cannot be read", hint="look at the folder and its permissions") from error
    builder = _Builder(scan, records, sink, is_trusted, began_ns)
    top = builder.build(b"")
    index.replace(builder.records, listed=wanted is not None)
    skipped = [*builder.skipped(), *(restless or ()), *_missing(files or (), scan)]
    return Captured(top.id, top.files, top.size, tuple(skipped), wanted is not None, reader.new_bytes, builder.records)


def _read_until_stable(scan: Scan, reader: _Reader, watch: Watcher | None) -> list[LeftOut] | None:
    """Read, and scan again until nothing has moved meanwhile; return the folders that kept changing.

    None when folders or rules changed meanwhile, or files that have other names, or when it is not known what has
    changed: everything has to be scanned.
    """
    reader.read()
    moved: list[bytes] = []
    for _ in range(ROUNDS):
        moved = scan.revisit()
        is_wider = False
        if scan.is_partial and watch is not None:  # a file may have moved from a folder that is looked at into another
            meanwhile = watch.look()
            if meanwhile is None or meanwhile.trees or scan.has_new_links or _changes_rules(meanwhile):
                return None
            is_wider = scan.widen(meanwhile.folders)
        if not moved and not is_wider:
            break
        reader.read()
    return [LeftOut(path, "unstable", "files came and went while it was captured") for path in moved]


def _changes_rules(changed: Changed) -> bool:
    """Return whether folders below may have been visited by other rules than those that hold now."""
    return any(names and not names.isdisjoint((GIT_RULES, OWN_RULES)) for names in changed.folders.values())


@dataclass
class _Reader:
    """A reader of the content that the scan found missing."""

    _scan: Scan
    _sink: Sink
    _read: ReadFiles
    _read_apart: ReadFiles | None
    _is_trusted: bool
    new_bytes: int = 0
    _databases: dict[bytes, tuple[tuple[int, ...], Content | LeftOut]] = field(default_factory=dict)
    """Inode and device of each file read as a database, and what came of reading it: one moment of this capture is
    enough, and a busy one would be read, or waited for, as often as its folder is visited."""
    _mains: set[bytes] = field(default_factory=set)
    """Files that something of SQLite's lies beside."""

    def read(self) -> None:
        visits, self._scan.fresh = self._scan.fresh, []
        if not self._is_trusted:
            self._demand_missing(visits)
        if self._read_apart is None:
            for visit in visits:
                for name in visit.ignored:
                    visit.leave_ignored(name)
        apart: list[ReadJob] = []
        rest: list[ReadJob] = []
        for job in [job for visit in visits for job in visit.jobs.values()]:
            if self._databases and self._is_done(job):
                continue
            (rest if self._read_apart is None or job.kind == "file" else apart).append(job)
        apart += self._take(rest, self._read(rest)) if rest else []
        if self._read_apart is not None:
            for _ in range(2):  # what is handed back is read like other files, and perhaps apart once more
                files = self._take(apart, self._read_apart(apart)) if apart else []
                apart = self._take(files, self._read(files)) if files else []
        for job in apart:
            self._refuse(job, LeftOut(job.path, "unreadable", "this process has the file open"))

    def _take(self, jobs: list[ReadJob], answers: Iterator[Content | LeftOut | ReadJob]) -> list[ReadJob]:
        """Note what was read; return the jobs that were handed back."""
        returned = []
        for job, answer in zip(jobs, answers, strict=True):
            if job.kind == "database" and not isinstance(answer, ReadJob):
                self._databases[job.path] = job.seen[4:], answer
            if isinstance(answer, Content):
                folder, name = split(job.path)
                self._scan.visits[folder].accept(name, answer)
                self.new_bytes += answer.size
            elif isinstance(answer, ReadJob):
                returned += self._hand_back(answer)
            else:
                self._refuse(job, answer)
        return returned

    def _is_done(self, job: ReadJob) -> bool:
        """Return whether it belongs to a database that was read before, and note what came of that."""
        folder, name = split(job.path)
        main = join(folder, main_of(name)) if job.kind == "sidecar" else job.path
        identity, answer = self._databases.get(main, ((), None))
        seen = self._scan.visits[folder].signatures.get(split(main)[1])
        if answer is None or seen is None or seen[4:] != identity or answer[1] == "missing":
            return False
        if job.kind == "sidecar":
            if main not in self._mains:
                return False
            self._scan.visits[folder].leave_beside(name)
        elif isinstance(answer, Content):
            self._scan.visits[folder].accept(name, answer)
        else:
            self._refuse(job, answer)
        return True

    def _hand_back(self, job: ReadJob) -> list[ReadJob]:
        folder, name = split(job.path)
        visit = self._scan.visits[folder]
        if name not in visit.ignored:
            return [job]
        visit.leave_ignored(name)
        return []

    def _refuse(self, job: ReadJob, skipped: LeftOut) -> None:
        folder, name = split(job.path)
        if skipped.why == "sidecar":
            self._mains.add(join(folder, main_of(name)))
            self._scan.visits[folder].leave_beside(name)
        else:
            self._scan.visits[folder].refuse(name, skipped)

    def _demand_missing(self, visits: Iterable[FolderVisit]) -> None:
        """Have files read that the index knows, but whose blobs are not stored."""
        needed = [(visit, {name: _blobs_of(visit.entries[name], visit) for name in visit.reused}) for visit in visits]
        ids = {blob for _, files in needed for blobs in files.values() for blob in blobs or ()}
        stored = self._sink.has(sorted(ids)) if ids else set()
        for visit, files in needed:
            missing = [name for name, blobs in files.items() if blobs is None or not stored.issuperset(blobs)]
            if missing:
                demand_files(visit, missing)


def _blobs_of(entry: Entry, visit: FolderVisit) -> list[bytes] | None:
    """Return the blobs of a file; None when they are not known."""
    assert isinstance(entry, File)
    if entry.chunks is None:
        return [entry.blob]
    listing = visit.lists.get(entry.chunks)
    return None if listing is None else [entry.chunks, *(chunk.digest for chunk in decode_chunks(listing, entry))]


@dataclass
class _Builder:
    """A builder of the trees, and of the records for the next capture."""

    _scan: Scan
    _old: dict[bytes, FolderRecord]
    _sink: Sink
    _is_trusted: bool
    _began_ns: int

    def __post_init__(self) -> None:
        self.records: dict[bytes, FolderRecord] = dict(self._old) if self._scan.is_partial else {}
        self._above = _above(self._scan.visits) if self._scan.is_partial else set()
        """The folders of which something below was visited."""

    def build(self, path: bytes) -> FolderRecord:
        visit = self._scan.visits.get(path)
        if visit is None:
            visit = FolderVisit.recalled(path, self._old[path])
        visits, above = self._scan.visits, self._above
        paths = [join(path, name) for name in visit.folders]
        below = [self.build(path) if path in visits or path in above else self._old[path] for path in paths]
        modes = self._modes(visit)
        children = encode([(mode, record.id) for mode, record in zip(modes, below, strict=True)])
        record = visit.same
        if record is None or record.children != children:
            record = self._renew(visit, children, modes, below)
        record = _dated(record, visit)
        if self._scan.is_partial and record is not self._old.get(path):
            self._drop_vanished(visit)
        self.records[path] = record
        return record

    def _modes(self, visit: FolderVisit) -> list[int]:
        visits = [self._scan.visits.get(join(visit.path, name)) for name in visit.folders]
        before = self._old[visit.path].folders() if None in visits else {}
        return [
            before[name] if below is None else below.status[0] & MODE_BITS
            for name, below in zip(visit.folders, visits, strict=True)
        ]

    def _drop_vanished(self, visit: FolderVisit) -> None:
        old = self._old.get(visit.path)
        gone = [] if old is None else [join(visit.path, name) for name in old.folders() if name not in visit.folders]
        while gone:
            path = gone.pop()
            record = self.records.pop(path, None)
            gone += [join(path, name) for name in record.folders()] if record is not None else []

    def skipped(self) -> Iterator[LeftOut]:
        for path, record in self.records.items():
            for report in record.reports:
                yield report._replace(path=join(path, report.path))

    def _renew(self, visit: FolderVisit, children: bytes, modes: list[int], below: list[FolderRecord]) -> FolderRecord:
        entries = visit.entries if visit.same is None else visit.same.entries()
        folders = [
            Folder(name, mode, record.id) for name, mode, record in zip(visit.folders, modes, below, strict=True)
        ]
        tree = encode_tree([*entries.values(), *folders])
        files = sum(isinstance(entry, File | Link) for entry in entries.values())
        size = sum(entry.size for entry in entries.values() if isinstance(entry, File))
        return msgspec.structs.replace(
            visit.same or self._remember(visit),
            children=children,
            tree=tree,
            id=self._put(visit.path, tree),
            files=files + sum(record.files for record in below),
            size=size + sum(record.size for record in below),
        )

    def _remember(self, visit: FolderVisit) -> FolderRecord:
        used = {entry.chunks for entry in visit.entries.values() if isinstance(entry, File)}
        seen = [self._trust(visit, name) for name in name_others(visit.listing, visit.left)]
        return FolderRecord(
            listing=visit.listing,
            rules=visit.rules,
            left=b"\0".join(visit.left),
            seen=encode(seen),
            reports=tuple(visit.reports.values()),
            lists=tuple(listed for listed in visit.lists.items() if listed[0] in used),
            is_sure=visit.is_sure,
            is_restless=not visit.is_sure or visit.has_links or None in seen,
            newest=_newest_in(visit),
        )

    def _put(self, path: bytes, tree: bytes) -> bytes:
        old = self._old.get(path)
        return old.id if self._is_trusted and old is not None and old.tree == tree else put_tree(tree, self._sink.put)

    def _trust(self, visit: FolderVisit, name: bytes) -> Signature | None:
        """Return what the next capture may compare with: nothing, if a later write could look the same."""
        seen = visit.signatures.get(name)
        entry = visit.entries.get(name)
        if seen is None or entry is None or (isinstance(entry, Left) and entry.why not in ("special", "sidecar")):
            return None
        if is_sidecar(entry):
            seen = without_ctime(seen)
        return seen if is_settled(seen, self._began_ns) else None


def _newest_in(visit: FolderVisit) -> tuple[int, bytes]:
    """Find the last change in one folder. What is left out does not count, nor what readers of databases write."""
    signatures, entries = visit.signatures, visit.entries
    stamps = [
        (seen[3], name)
        for name, seen in signatures.items()
        if isinstance(entry := entries.get(name), File | Link) or (is_sidecar(entry) and not name.endswith(b"-shm"))
    ]
    return max(stamps, default=(0, b""))


def _dated(record: FolderRecord, visit: FolderVisit) -> FolderRecord:
    """Return the record of a folder with when the folder itself was changed, if that was later.

    Folders are stamped when names in them come and go, ignored ones too, and that says nothing; but then their mtime is
    the same. One that was moved, or whose mode was changed, has a later ctime, and brings all of its files along.
    """
    _, _, mtime, ctime, *_ = visit.status
    is_later = mtime < ctime > record.newest[0] and record.files and visit.path
    return msgspec.structs.replace(record, newest=(ctime, b"")) if is_later else record


def _above(paths: Iterable[bytes]) -> set[bytes]:
    above: set[bytes] = set()
    for path in paths:
        while path and (path := split(path)[0]) not in above:
            above.add(path)
    return above


def _name_wanted(files: Iterable[bytes]) -> dict[bytes, set[bytes]]:
    """Return the names to capture in each folder on the way to a listed path; InvalidError for no path below."""
    listed = set(files)
    wanted: dict[bytes, set[bytes]] = {b"": set()}
    for path in sorted(listed):
        parts = path.split(b"/")
        if not all(is_name(part) for part in parts):
            raise InvalidError(
                f"not a path below the workspace: {os.fsdecode(path)[:200]!a}",
                hint="paths are relative to the workspace; .. and .git cannot be captured",
            )
        above = [b"/".join(parts[:depth]) for depth in range(len(parts))]
        if listed.isdisjoint(above):
            for folder, name in zip(above, parts, strict=True):
                wanted.setdefault(folder, set()).add(name)
    return wanted


def _missing(files: Iterable[bytes], scan: Scan) -> Iterator[LeftOut]:
    found: set[bytes] = set()
    for visit in scan.reached() if files else ():
        entries = visit.entries if visit.same is None else visit.same.entries()
        found.update(join(visit.path, name) for name in (*entries, *visit.folders))
    return (LeftOut(path, "missing", "it is not there") for path in dict.fromkeys(files) if path not in found)


def _below(root: str, paths: Iterable[str]) -> dict[bytes, set[bytes]]:
    """Return these absolute paths as names in folders of the root, as far as they lie in it."""
    start = os.fsencode(root.rstrip("/")) + b"/"
    names: dict[bytes, set[bytes]] = {}
    for path in map(os.fsencode, paths):
        if path.startswith(start):
            folder, name = split(path[len(start) :])
            names.setdefault(folder, set()).add(name)
    return names
