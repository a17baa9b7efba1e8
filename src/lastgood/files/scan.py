"""Scanning a root: every folder visited by descriptor, what is known of the names in it told from what has to be read.

A folder whose names, rules and signatures are those of its record is done with one comparison. Folders that changed
while others were visited are visited again, so that a file that moved between two of them is not lost. When it is
known what has changed, the other folders are not visited: their records stand for them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from lastgood.files.index import FolderRecord, encode, list_names, split
from lastgood.files.read import SIDECARS, Content, LeftOut, ReadJob, is_same, main_of, refuse
from lastgood.local.paths import (
    MAX_DEPTH,
    STORE_LOCK,
    FolderWalk,
    Signature,
    find_stores,
    is_settled,
    join,
    open_folder,
    signature,
)
from lastgood.local.paths import split as split_path
from lastgood.model.tree import (
    AttributedFile,
    Entry,
    File,
    KeyedFile,
    Left,
    Link,
    Why,
    is_git,
    is_sidecar,
    is_temporary,
)

if TYPE_CHECKING:
    from lastgood.files.rules import RuleLevel

Known = Mapping[bytes, tuple[Signature, Entry]]
EnterRules = Callable[[bytes, Collection[bytes]], "RuleLevel"]
"""Gives the rules for the names in a folder, see `Rules.enter`."""
Expect = Callable[[list[ReadJob]], None]
"""Gets the files that will have to be read, folder by folder, as soon as that is known."""


class Changed(NamedTuple):
    """A set of changes. In `folders` something may have changed under these names (None: under any), but not in the
    folders below them. `trees` have come or gone, or are others than they were, with all that is in them."""

    folders: Mapping[bytes, set[bytes] | None]
    trees: set[bytes]


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
    reports: dict[bytes, LeftOut] = field(default_factory=dict)
    ignored: dict[bytes, Entry | None] = field(default_factory=dict)
    """What is not to be captured but lies beside a file that may be a database, and how it is left out if that is
    none."""
    is_sure: bool = True
    """False: the next capture has to examine each name."""
    touched: Set[bytes] | None = None
    """The names that were examined, if the record stands for all others."""
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
            if isinstance(entry := self.entries.get(name), File | Link) or is_sidecar(entry)
        }

    def accept(self, name: bytes, content: Content) -> None:
        self.signatures[name] = content.seen
        mode, size, digest, blob = stat.S_IMODE(content.seen[0]), content.size, content.digest, content.blob
        chunks = blob if content.listing else None
        if chunks is not None:
            self.lists[blob] = content.listing
        if content.attributes is not None:
            whole = digest if chunks is not None else blob
            self.entries[name] = AttributedFile(name, mode, size, digest, chunks, whole, content.attributes)
        elif chunks is not None:
            self.entries[name] = File(name, mode, size, digest, chunks)
        elif blob == digest:
            self.entries[name] = File(name, mode, size, digest)
        else:
            self.entries[name] = KeyedFile(name, mode, size, digest, None, blob)

    def leave_beside(self, name: bytes) -> None:
        """Leave out what was captured with the database that it lies beside."""
        self.entries[name] = Left(name, "sidecar")

    def leave_ignored(self, name: bytes) -> None:
        """Leave out what does not lie beside a database after all."""
        self.left.append(name)
        self.signatures.pop(name, None)
        self.jobs.pop(name, None)
        self.entries.pop(name, None)
        if (entry := self.ignored[name]) is not None:
            self.entries[name] = entry

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
            self.reports[name] = skipped._replace(path=name)
            self.entries[name] = Left(name, skipped.why)

    def _unfold(self) -> None:
        """Copy what the record says, so that it can be changed."""
        if self.same is not None:
            self.signatures = {name: seen for name, (seen, _) in self.same.known().items()}
            self.entries = self.same.entries()
            self.left = split(self.same.left)
            self.lists = lists_of(None, self.same)
            self.reports = {report.path: report for report in self.same.reports}
            self.same = None

    def recall(self, record: FolderRecord, touched: Set[bytes]) -> None:
        """Take what the record says of all names but these."""
        self.same, self.folders, self.touched = record, list(record.folders()), touched
        self._unfold()
        for name in touched:
            for known in (self.signatures, self.entries, self.reports):
                known.pop(name, None)

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
        return {name: seen[4:] for name, seen in self.signatures.items() if name not in self.ignored}


def examine(folder: int, visit: FolderVisit, name: bytes, seen: Signature, was: tuple[Signature, Entry] | None) -> None:
    mode = seen[0]
    visit.signatures[name] = seen
    if stat.S_ISREG(mode):
        if was is not None and is_same(was[1], was[0], seen):
            visit.entries[name] = was[1]
            if isinstance(was[1], File):
                visit.reused.append(name)
        else:
            visit.jobs[name] = ReadJob(join(visit.path, name), seen)
    elif stat.S_ISLNK(mode):
        visit.entries[name] = Link(name, os.readlink(name, dir_fd=folder))
    elif stat.S_ISDIR(mode):  # a moment ago it was something else: the folder has changed and is visited again
        visit.is_sure = False
    else:
        visit.entries[name] = Left(name, "special")
        visit.reports[name] = LeftOut(name, "special", _name_of(mode))


def demand_files(visit: FolderVisit, names: Iterable[bytes]) -> None:
    """Have files read that were thought to be known."""
    for name in names:
        visit.jobs[name] = ReadJob(join(visit.path, name), visit.signatures[name])
    keep_databases_whole(visit, {})


def keep_databases_whole(visit: FolderVisit, known: Known) -> None:
    """Have a database read whose write-ahead log or journal changed, though its own file is untouched."""
    mains = {name: main_of(name) for name in {*visit.signatures, *known} if name.endswith(SIDECARS)}
    beside = {name: main for name, main in mains.items() if _is_file(visit, main)}
    for name in mains.keys() & visit.signatures.keys() - beside.keys():
        if name in visit.ignored:
            visit.leave_ignored(name)
        elif is_sidecar(visit.entries.get(name)):  # and the database is gone
            visit.jobs[name] = ReadJob(join(visit.path, name), visit.signatures[name])
    for name, main in beside.items():
        has_changed = name in visit.jobs or name not in visit.signatures
        if has_changed and not name.endswith(b"-shm"):  # which readers write, too
            _demand(visit, main, "database")
    for name, main in beside.items():
        if main in visit.jobs and name in visit.signatures:
            _demand(visit, main, "database")
        if not _is_file(visit, name) or visit.jobs.keys().isdisjoint((name, main)):
            continue
        if main not in visit.jobs and name in known and is_sidecar(known[name][1]):
            del visit.jobs[name]
            visit.leave_beside(name)
        else:
            _demand(visit, name, "sidecar")
    visit.reused = [name for name in visit.reused if name not in visit.jobs]


def _is_file(visit: FolderVisit, name: bytes) -> bool:
    return name in visit.signatures and stat.S_ISREG(visit.signatures[name][0])


def _demand(visit: FolderVisit, name: bytes, kind: Literal["database", "sidecar"]) -> None:
    visit.jobs[name] = ReadJob(join(visit.path, name), visit.signatures[name], kind)


def lists_of(before: FolderVisit | None, record: FolderRecord | None) -> dict[bytes, bytes]:
    lists = dict(record.lists) if record is not None else {}
    return lists if before is None else lists | before.lists


def _name_of(mode: int) -> str:
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a pipe" if stat.S_ISFIFO(mode) else "a device"


@dataclass
class Scan:
    """A scan of one root. `wanted`: the names to capture, for folders of which not everything is captured.

    `changed`: what has changed since the records were made, if that is known. `watch` gets each folder before it is
    listed, `expect` the files to read.
    """

    walk: FolderWalk
    enter: EnterRules | None
    records: Mapping[bytes, FolderRecord]
    is_trusted: bool
    began_ns: int
    left_out: Mapping[bytes, Collection[bytes]]
    wanted: Mapping[bytes, Collection[bytes]]
    changed: Changed | None
    watch: Callable[[bytes, int], None] | None
    expect: Expect | None
    has_new_links: bool = False
    """Whether a file that has changed has other names: folders that were not visited may have it, too."""
    visits: dict[bytes, FolderVisit] = field(default_factory=dict)
    fresh: list[FolderVisit] = field(default_factory=list)
    """Those with jobs, or with content reused from the index, that are still to be dealt with."""

    def __post_init__(self) -> None:
        self.is_partial = self.changed is not None
        self._due: set[bytes] = set()
        self._levels: dict[bytes, RuleLevel] = {}
        """The rules in folders that are not visited."""
        if self.changed is not None:
            restless = [path for path, record in self.records.items() if record.is_restless]
            self._due.update(*self.changed, self.left_out, restless)
        # Where folders came or went, a record may be that of another folder.
        self._named = self.changed.folders if self.changed is not None and not self.changed.trees else {}

    def begin(self) -> None:
        """Visit everything that may have changed; OSError when the root itself cannot be.

        The root in any case: what is excluded by the repository is not written in a folder that is captured.
        """
        self._descend(self.walk.root, self._visit(self.walk.root, b""), 0)
        self._enter_all(self._due)

    def widen(self, folders: Mapping[bytes, set[bytes] | None]) -> bool:
        """Visit these folders, too; return whether one of them had not been, or not under all of these names."""
        self._due.update(folders)
        found = self._enter_all(folders)
        for path, names in folders.items():
            visit = self.visits.get(path)
            if visit is not None and visit.touched is not None and (names is None or not names <= visit.touched):
                found = True
                self._enter_one(path)
        return found

    def revisit(self) -> list[bytes]:
        """Visit the folders again that may have changed meanwhile; return those that have.

        When there are none, no file has moved from a folder that was yet to come into one that was done: what each
        folder held when it was visited, it held still after all of them had been. One that holds what it held before,
        but has another status, may have held something else in between.
        """
        moved = []
        for visit in [visit for visit in self.reached() if self._may_have_changed(visit)]:
            try:
                folder = self.walk.folder(visit.path)
                again = self._visit(folder, visit.path)
            except OSError as error:
                refuse(visit.path, error)  # the folder that it lay in has changed as well, and tells
                moved.append(visit.path)
                continue
            if not visit.holds_still(again):
                self._descend(folder, again, _depth(visit.path))
            elif visit.status == again.status:
                continue
            visit.status = again.status
            moved.append(visit.path)
        return moved

    def reached(self) -> Iterator[FolderVisit]:
        """Yield all folders of the tree that were visited, parents first."""
        if self.is_partial:
            yield from [self.visits[path] for path in sorted(self.visits) if self._is_led_to(path)]
            return
        todo = [b""]
        while todo:
            visit = self.visits.get(todo.pop())
            if visit is not None:
                yield visit
                todo.extend(join(visit.path, name) for name in visit.folders)

    def _may_have_changed(self, visit: FolderVisit) -> bool:
        if not is_settled(visit.status, self.began_ns):
            return True
        try:
            found = os.stat(visit.path or b".", dir_fd=self.walk.root, follow_symlinks=False)
        except OSError:
            return True
        return bool(signature(found) != visit.status)

    def _enter_all(self, folders: Collection[bytes]) -> bool:
        found = False
        for path in sorted(folders):
            # What is not recorded is new, and found in the folder that it lies in, if it is to be captured at all.
            if path in self.records and path not in self.visits and self._is_led_to(path):
                found = True
                self._enter_one(path)
        return found

    def _enter_one(self, path: bytes) -> None:
        """Visit a folder, however the scan came to it."""
        self._enter_above(path)
        try:
            folder = self.walk.folder(path)
            self._descend(folder, self._visit(folder, path), _depth(path))
        except OSError as error:
            skipped = refuse(path, error)
            above, name = split_path(path)
            if above not in self.visits:
                self._enter_one(above)
            elif name in self.visits[above].folders:
                self.visits[above].refuse(name, skipped)

    def _enter_above(self, path: bytes) -> None:
        """Read the rules in folders above that are not visited: they are in the files that were there, if any was."""
        above = split_path(path)[0]
        if path and self.enter is not None and above not in self.visits and above not in self._levels:
            self._enter_above(above)
            self._levels[above] = self.enter(above, split(self.records[above].listing.partition(b"\0\0")[0]))

    def _is_led_to(self, path: bytes) -> bool:
        """Return whether the folders above it, as far as they were visited, still have it."""
        while path:
            path, name = split_path(path)
            if path in self.visits and name not in self.visits[path].folders:
                return False
        return True

    def _is_known(self, visit: FolderVisit, is_below_known: bool) -> bool:
        """Return whether the records of the folders in it hold, unless one of them is due."""
        record = self.records.get(visit.path)
        is_same = (
            record is not None
            and record.rules == visit.rules
            and not (self.changed and visit.path in self.changed.trees)
        )
        return self.is_partial and is_below_known and is_same

    def _descend(self, folder: int, visit: FolderVisit, depth: int, is_below_known: bool = True) -> None:
        is_known = self._is_known(visit, is_below_known)
        self.visits[visit.path] = visit
        if visit.jobs or visit.reused:
            self.fresh.append(visit)
        if visit.jobs and self.expect is not None:
            self.expect([job for job in visit.jobs.values() if job.kind == "file"])
        for name in visit.folders[:]:
            path = join(visit.path, name)
            if path in self.visits:  # whether it is still the same is looked at on its own
                continue
            if is_known and path in self.records and path not in self._due:
                continue
            if depth >= MAX_DEPTH:
                visit.refuse(name, LeftOut(path, "unreadable", "it is nested too deeply"))
                continue
            try:
                below = open_folder(folder, name)
            except OSError as error:
                visit.refuse(name, refuse(path, error))
                continue
            try:
                self._descend(below, self._visit(below, path), depth + 1, is_known)
            except OSError as error:
                visit.refuse(name, refuse(path, error))
            finally:
                os.close(below)

    def _visit(self, folder: int, path: bytes) -> FolderVisit:
        if self.watch is not None:
            self.watch(path, folder)
        status: Signature = signature(os.fstat(folder))
        with os.scandir(folder) as found:
            entries = [entry for entry in found if entry.name[0] != "." or not _is_nothing(entry.name)]
        if path in self.wanted:
            entries = [entry for entry in entries if self._is_wanted(path, entry)]
        listed = os.fsencode("\0".join([entry.name for entry in entries]))
        names = split(listed)
        folders = [name for name, entry in zip(names, entries, strict=True) if entry.is_dir(follow_symlinks=False)]
        level = self.enter(path, names) if self.enter is not None else None
        left_out = self.left_out.get(path, ())
        if STORE_LOCK in listed:
            left_out = {*left_out, *find_stores(folder, names)}
        rules = (level.digest if level is not None else b"listed") + b"\0".join(sorted(left_out))
        visit = FolderVisit(path, status, list_names(names, folders), rules, level)
        record = self.records.get(path)
        touched = None
        if self.is_trusted and record is not None:
            touched = self._find_touched(visit, record, names, folders)
            if touched is not None:
                visit.recall(record, touched)
            elif _is_unchanged(visit, record, names, folders, entries):
                return visit
        there = {name: one for name, one in zip(names, entries, strict=True) if touched is None or name in touched}
        self._examine(folder, visit, there, frozenset(folders), left_out)
        return visit

    def _find_touched(
        self, visit: FolderVisit, record: FolderRecord, names: list[bytes], folders: list[bytes]
    ) -> set[bytes] | None:
        """Return the names to examine if the record is known to hold for all others; else None. Only for the first
        visit: others are made because something has moved meanwhile."""
        named = self._named.get(visit.path)
        if named is None or visit.path in self.visits or record.is_restless or record.rules != visit.rules:
            return None
        if any(ending in visit.listing or ending in record.listing for ending in SIDECARS):
            return None
        listed, _, were_folders = record.listing.partition(b"\0\0")
        touched = named | {*names}.symmetric_difference(split(listed))
        is_plain = touched.isdisjoint((*folders, *split(were_folders), *split(record.left)))
        return touched if is_plain else None

    def _is_wanted(self, path: bytes, entry: os.DirEntry[str]) -> bool:
        """Return whether to capture it. What only leads to a wanted name has to be a folder: links are not followed."""
        name = os.fsencode(entry.name)
        if name not in self.wanted[path]:
            return main_of(name) in self.wanted[path]
        return join(path, name) not in self.wanted or entry.is_dir(follow_symlinks=False)

    def _examine(
        self,
        folder: int,
        visit: FolderVisit,
        entries: Mapping[bytes, os.DirEntry[str]],
        folders: Collection[bytes],
        left_out: Collection[bytes],
    ) -> None:
        before = self.visits.get(visit.path)
        record = self.records.get(visit.path)
        last = before or record
        known = last.known() if last is not None else {}
        has_same_rules = last is not None and last.rules == visit.rules
        visit.lists = lists_of(before, record)
        for name, entry in entries.items():
            if visit.path in self.wanted and name not in self.wanted[visit.path]:
                visit.left.append(name)
                continue
            is_folder = name in folders
            why: Why | None = "store" if name in left_out else "repository" if is_git(name) else None
            if why is None and visit.level is not None:
                # The same rules let the same file through.
                is_captured = has_same_rules and name in known and isinstance(known[name][1], File | Link)
                why = visit.level.decide(name, is_folder) if is_folder or not is_captured else None
            if why is not None:
                visit.left.append(name)
                visit.entries[name] = Left(name, why)
                if why == "secret":
                    visit.reports[name] = LeftOut(name, why)
            elif is_folder:
                visit.folders.append(name)
            else:
                try:
                    found = entry.stat(follow_symlinks=False)
                    seen: Signature = signature(found)
                    if found.st_nlink > 1:
                        visit.has_links = True
                        self.has_new_links |= name not in known or known[name][0] != seen
                    examine(folder, visit, name, seen, known.get(name))
                except OSError as error:
                    visit.refuse(name, refuse(join(visit.path, name), error))
        for name in [name for name in visit.left if _is_file(visit, main_of(name))]:
            self._examine_ignored(folder, visit, name, entries[name], known)
        keep_databases_whole(visit, known)
        if visit.level is not None:
            for name, said in visit.level.remarks.items():
                visit.reports.setdefault(name, LeftOut(name, "rules", said))

    def _examine_ignored(
        self, folder: int, visit: FolderVisit, name: bytes, entry: os.DirEntry[str], known: Known
    ) -> None:
        """Examine what is left out, but may be a database's log: what was committed into it is the database's."""
        left = visit.entries.get(name)
        if isinstance(left, Left) and left.why != "ignored":
            return
        with suppress(OSError):
            seen: Signature = signature(entry.stat(follow_symlinks=False))
            if stat.S_ISREG(seen[0]):
                visit.left.remove(name)
                visit.ignored[name] = visit.entries.pop(name, None)
                examine(folder, visit, name, seen, known.get(name))


def _depth(path: bytes) -> int:
    return path.count(b"/") + bool(path)


def _is_nothing(name: str) -> bool:
    """Return whether it is what a restore is writing now, which is not even left out."""
    return is_temporary(os.fsencode(name))


def _is_unchanged(
    visit: FolderVisit, record: FolderRecord, names: list[bytes], folders: list[bytes], entries: list[os.DirEntry[str]]
) -> bool:
    """Compare with the record. The hot path of 50,000 files: nothing is made for each of them but its signature."""
    if not record.is_sure or record.listing != visit.listing or record.rules != visit.rules:
        return False
    kept = folders
    if folders or record.left:
        left = frozenset(split(record.left))
        kept = [name for name in folders if name not in left]
        other = left.union(folders)
        entries = [entry for name, entry in zip(names, entries, strict=True) if name not in other]
    try:
        seen = encode([signature(entry.stat(follow_symlinks=False)) for entry in entries])
    except OSError:
        return False
    if seen != record.seen:
        return False
    visit.same, visit.folders = record, kept
    return True
