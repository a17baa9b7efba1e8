"""Applying a restore plan: by directory descriptors, never through a symbolic link, never over what was not captured.

Two walks over the plan's steps. The first writes every new file under a temporary name beside its place, and nothing
that is there changes. The second removes and renames. So a full disk or a damaged blob is met while everything still is
as it was, and whenever a process is killed, each path holds what it held before, nothing, or what it shall hold:
applying the same plan again finishes it, and applying the plan of the way back undoes it. Nothing waits for the disk:
until `sync` has, power loss can leave older or half-written content at each path.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from hashlib import sha256
from itertools import count
from typing import NamedTuple

from lastgood.errors import CheckpointError, DiskFullError, IntegrityError, UnavailableError
from lastgood.files.folders import CHANGED, OpenFolder, Refused, exchange, hash_file, rename_exclusively, set_mode
from lastgood.files.plan import Enter, Leave, PutFile, Remove, RestorePlan, Step
from lastgood.files.read import DATABASE, SIDECARS
from lastgood.local.paths import (
    GONE,
    NOT_SETUID,
    allow_mode,
    give_attributes,
    is_settled,
    join,
    open_file,
    open_folder,
    read_attributes,
    signature,
    split,
)
from lastgood.local.process import descriptors, find_open_files, write_all
from lastgood.model.tree import File, Link, attributes_of

OpenContent = Callable[[File], Iterator[bytes]]
"""The content of a file in pieces, each checked against the blob that it is. That these are all of the file, and in
order, is checked here."""
Recall = Callable[[bytes, os.stat_result], bytes | None]
"""The digest of the file at a path that has this stat, if it is known without opening the file here; empty for one that
was captured with the database that it lies beside."""


class FailedPath(NamedTuple):
    """A path that is not as the plan wants it, and why."""

    path: bytes
    reason: str


class Applied(NamedTuple):
    """A result: the paths that are as the plan wants them now, and those that are not. A folder that still holds
    something uncaptured stays and is in neither."""

    restored: tuple[bytes, ...]
    deleted: tuple[bytes, ...]
    failed: tuple[FailedPath, ...]
    lacking: tuple[FailedPath, ...] = ()
    """What is there, but could not be given its owner, an attribute, or setuid."""


FULL = "the disk is full"

_ZEROS = bytes(64 << 10)

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def apply(
    root_path: str,
    plan: RestorePlan,
    open_content: OpenContent,
    *,
    on_done: Callable[[bytes], None] | None = None,
    recall: Recall | None = None,
    copying: bool = False,
    trusted: bool = False,
) -> Applied:
    """Make the folder what the plan says. What cannot be done is reported and the rest goes on (B9).

    `on_done` is called after each path that was dealt with. `copying`: nobody relies on the outcome after a crash, so
    new files are written in their places. `trusted`: nobody but this user can have written what the trees say of
    owners, setuid and setgid; else none of that is given.

    Raises IntegrityError when content is not what its file says, UnavailableError when the folder cannot be opened,
    DiskFullError when there is no room for all that is to come; nothing has changed then.
    """
    try:
        root = open_folder(None, root_path)
    except OSError as error:
        raise UnavailableError(f"the workspace cannot be opened: {_say(error)}") from error
    on_done, recall = on_done or (lambda path: None), recall or (lambda path, found: None)
    run = _Run(OpenFolder(root), plan, open_content, on_done, recall, copying, trusted)
    try:
        run.carry_out()
    finally:
        run.close()
    return run.report()


class _Full(Exception):  # noqa: N818
    """An error of a disk without space."""


class _Run:
    def __init__(
        self,
        root: OpenFolder,
        plan: RestorePlan,
        open_content: OpenContent,
        on_done: Callable[[bytes], None],
        recall: Recall,
        copying: bool,
        trusted: bool,
    ) -> None:
        self._plan = plan
        self._steps = plan.steps
        self._ends = _find_ends(plan.steps)
        self._open_content = open_content
        self._on_done = on_done
        self._recall = recall
        self._copying = copying
        self._trusted = trusted
        self._stack = [root]
        self._names = (b".lastgood-%s-%x.tmp" % (os.urandom(8).hex().encode(), number) for number in count(1))
        self._staged: dict[int, bytes] = {}
        self._made: set[bytes] = set()
        self._known: dict[bytes, tuple[tuple[int, ...], bytes | None]] = {}
        self._databases: set[int] = set()
        """The steps that put a database in place."""
        self._failed: dict[bytes, str] = {}
        self._lacking: dict[bytes, str] = {}
        self._kept: set[bytes] = set()

    def carry_out(self) -> None:
        if not self._steps:
            return
        try:
            self._stage(0, self._stack[0])
            self._perform()
        except _Full as full:
            if not self._at and not self._copying:  # nothing was changed yet
                raise DiskFullError(
                    "the disk of the workspace is full", hint="nothing was restored: free some space and restore again"
                ) from full
            self._fail_from(self._at, FULL)
        finally:
            self._discard()

    def close(self) -> None:
        descriptors.close_parked()
        while self._stack:
            self._stack.pop().close()

    def report(self) -> Applied:
        gone = self._failed.keys() | self._kept
        return Applied(
            tuple(path for path in self._plan.restored if path not in self._failed),
            tuple(path for path in self._plan.deleted if path not in gone),
            tuple(FailedPath(path, reason) for path, reason in self._failed.items()),
            tuple(FailedPath(path, why) for path, why in self._lacking.items() if path not in self._failed),
        )

    _at = 0
    """The step that is being performed."""

    # The first walk.

    def _stage(self, first: int, folder: OpenFolder) -> None:
        """Write the files that come in this folder under temporary names, and make the folders for them. What cannot be
        written is left to `_place`."""
        with closing(self._walk(first, folder, self._enter_staging)) as walk:
            for index, step, inside in walk:
                if isinstance(step, PutFile) and isinstance(step.new, File):
                    with suppress(Refused), _translated():
                        if self._needs_content(step, step.new, inside):
                            name = step.name if self._copying and step.old is None else next(self._names)
                            self._write(index, step.new, inside, name)
                            self._staged[index] = name
        self._made.clear()

    def _enter_staging(self, step: Enter, parent: OpenFolder) -> OpenFolder | None:
        if step.what == "empty" or step.late:
            return None
        with suppress(Refused), _translated():
            try:
                return parent.open(step.name)
            except FileNotFoundError:
                self._made.add(step.path)
                return parent.make(step.name)
        return None

    def _needs_content(self, step: PutFile, new: File, folder: OpenFolder) -> bool:
        found = None if folder.fresh else folder.look(step.name)
        if found is None:
            return True
        if self._holds(step, new, found, folder):
            return self._is_other(step, new, found, folder)
        return step.old is not None

    def _write(self, index: int, file: File, folder: OpenFolder, name: bytes) -> None:
        """Write the content, checked, into a new file of that name."""
        descriptor = os.open(name, _CREATE, 0o600, dir_fd=folder.fd)
        try:
            hasher, size = sha256() if file.chunks is not None else None, 0
            for part in self._open_content(file):
                if hasher is not None:
                    hasher.update(part)
                if not size and part.startswith(DATABASE):
                    self._databases.add(index)
                size += len(part)
                if file.chunks is None:
                    write_all(descriptor, part)
                else:
                    _write_sparsely(descriptor, part)
            if size != file.size or (hasher is not None and hasher.digest() != file.digest):
                raise IntegrityError("the stored content of a file is not what it was", hint="verify the checkpoint")
            if file.chunks is not None:
                os.ftruncate(descriptor, size)  # which a hole at its end does not
            about, trusted = attributes_of(file), self._trusted
            if lacking := give_attributes(descriptor, about, file.mode, folder.fd, trusted=trusted):
                self._lacking[self._steps[index].path] = lacking
        except BaseException:
            os.unlink(name, dir_fd=folder.fd)
            raise
        finally:
            os.close(descriptor)

    def _discard(self) -> None:
        """Take back what was staged and not used, and the folders that were made for nothing."""
        if not self._staged and not self._made:
            return
        with closing(self._walk(0, self._stack[0], self._enter_discarding)) as walk:
            for index, step, folder in walk:
                with suppress(OSError):
                    if index in self._staged:
                        os.unlink(self._staged.pop(index), dir_fd=folder.fd)
                    elif step.path in self._made:
                        os.rmdir(step.name, dir_fd=folder.fd)

    def _enter_discarding(self, step: Enter, parent: OpenFolder) -> OpenFolder | None:
        with suppress(OSError, Refused):
            return None if step.what == "empty" else parent.open(step.name)
        return None

    def _walk(
        self, first: int, folder: OpenFolder, enter: Callable[[Enter, OpenFolder], OpenFolder | None]
    ) -> Generator[tuple[int, Step, OpenFolder]]:
        """Yield what is put and each folder that is left, and the folder around it; skip where `enter` gives none."""
        stack = [folder]
        index = first + 1
        try:
            while index < self._ends[first]:
                step = self._steps[index]
                if isinstance(step, Enter):
                    if (below := enter(step, stack[-1])) is not None:
                        stack.append(below)
                    else:
                        index = self._ends[index]
                elif isinstance(step, Leave):
                    stack.pop().close()
                    yield index, step, stack[-1]
                elif isinstance(step, PutFile):
                    yield index, step, stack[-1]
                index += 1
        finally:
            while len(stack) > 1:
                stack.pop().close()

    # The second walk.

    def _perform(self) -> None:
        self._at = 1
        while self._at < len(self._steps) - 1:
            step, depth = self._steps[self._at], len(self._stack)
            try:
                with _translated():
                    self._take(step)
            except (Refused, _Full) as refused:  # a full disk, too: what is to be written is there already
                reason = str(refused) or FULL
                end = self._at
                if isinstance(step, Enter):
                    end = self._ends[self._at]
                    while len(self._stack) > depth:
                        self._stack.pop().close()
                self._failed.setdefault(step.path, reason)
                self._fail_from(self._at, reason, end)
                self._at = end
            else:
                self._on_done(step.path)
            self._at += 1

    def _take(self, step: Step) -> None:
        match step:
            case Enter():
                self._enter(step)
            case Remove():
                self._remove(step, self._stack[-1])
            case PutFile():
                self._place(step, self._stack[-1])
            case Leave():
                self._leave(step)

    def _enter(self, step: Enter) -> None:
        parent = self._stack[-1]
        try:
            folder = parent.open(step.name)
        except FileNotFoundError:
            if step.what == "empty":
                self._at = self._ends[self._at]
                return
            folder = parent.make(step.name)
        except OSError as error:
            if error.errno not in GONE:
                raise
            if step.what == "empty" and step.replaced:
                self._at = self._ends[self._at]
                return
            raise Refused(_in_the_way(parent.look(step.name))) from error
        self._stack.append(folder)
        if step.late:
            self._stage(self._at, folder)

    def _leave(self, step: Leave) -> None:
        folder = self._stack.pop()
        try:
            if step.remove and self._remove_folder(step, folder, self._stack[-1]):
                return
            folder.settle(step.mode)
        finally:
            folder.close()

    def _remove_folder(self, step: Leave, folder: OpenFolder, parent: OpenFolder) -> bool:
        found = parent.look(step.name)
        if found is None or (found.st_dev, found.st_ino) != folder.id:
            raise Refused(CHANGED)
        try:
            os.rmdir(step.name, dir_fd=parent.fd)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            self._kept.add(step.path)
            return False
        return True

    def _remove(self, step: Remove, folder: OpenFolder) -> None:
        found = folder.look(step.name)
        if found is None or (step.replaced and stat.S_ISDIR(found.st_mode)):
            return
        if not self._holds(step, step.old, found, folder):
            raise Refused(CHANGED)
        if self._clear_beside(step, folder, found):
            os.unlink(step.name, dir_fd=folder.fd)
            return
        name = next(self._names)
        rename_exclusively(folder, step.name, name)
        try:
            if not self._is_still(step, found, name, folder):
                raise Refused(CHANGED)
            os.unlink(name, dir_fd=folder.fd)
        except BaseException:
            with suppress(FileNotFoundError):
                rename_exclusively(folder, name, step.name)
            raise

    def _place(self, step: PutFile, folder: OpenFolder) -> None:
        """Put a file or link in its place, if that destroys nothing."""
        try:
            if step.old is None:
                self._clear_beside(step, folder)
            if step.old is None and (staged := self._staged.get(self._at)) is not None:
                if staged == step.name:
                    del self._staged[self._at]
                    return
                with suppress(FileExistsError):
                    rename_exclusively(folder, staged, step.name)
                    del self._staged[self._at]
                    return
            found = folder.look(step.name)
            if found is None or not self._holds(step, step.new, found, folder):
                if found is not None and (step.old is None or not self._holds(step, step.old, found, folder)):
                    raise self._changed(found) if step.old is not None else Refused(_in_the_way(found))
                self._put(step, found, folder)
            elif isinstance(step.new, File):
                if self._is_other(step, step.new, found, folder):
                    self._put(step, found, folder)
                elif stat.S_IMODE(found.st_mode) != step.new.mode:
                    set_mode(folder.fd, step.name, self._allow(step.path, step.new, found), stat.S_IFREG)
        finally:
            if (unused := self._staged.pop(self._at, None)) is not None:
                with suppress(OSError):
                    os.unlink(unused, dir_fd=folder.fd)

    def _put(self, step: PutFile, found: os.stat_result | None, folder: OpenFolder) -> None:
        """Replace exactly what was found."""
        if isinstance(step.new, Link):
            name = next(self._names)
            os.symlink(step.new.target, name, dir_fd=folder.fd)
            self._staged[self._at] = name
        elif self._at not in self._staged:
            name = next(self._names)
            self._write(self._at, step.new, folder, name)
            self._staged[self._at] = name
        name = self._staged[self._at]
        if found is None:
            self._clear_beside(step, folder)
            rename_exclusively(folder, name, step.name)
        else:
            now = folder.look(step.name)
            if now is None or signature(now) != signature(found):
                raise self._changed(found)
            if self._clear_beside(step, folder, found):
                os.rename(name, step.name, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
            else:
                self._replace(step, now, name, folder)
        del self._staged[self._at]

    def _replace(self, step: PutFile, found: os.stat_result, name: bytes, folder: OpenFolder) -> None:
        """Put what has this temporary name in the place of what was found; what was written there in this moment is put
        back. What a program writes later into a file that it holds open is lost with that."""
        if not exchange(folder, name, step.name):
            os.rename(name, step.name, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
            return
        if not self._is_still(step, found, name, folder):
            exchange(folder, name, step.name)
            raise Refused(CHANGED)
        os.unlink(name, dir_fd=folder.fd)

    def _is_still(self, step: PutFile | Remove, found: os.stat_result, name: bytes, folder: OpenFolder) -> bool:
        """Return whether what has this temporary name now is what was found under the step's own."""
        now = folder.look(name)
        if now is None or _untouched(now) != _untouched(found):
            return False
        if not isinstance(step.old, File) or is_settled((0, 0, *2 * (now.st_mtime_ns,), 0, 0), time.time_ns()):
            return True
        return hash_file(name, now, folder) == step.old.digest  # a write a moment ago may have left it its stamp

    # What both need.

    def _holds(self, step: PutFile | Remove, entry: File | Link, found: os.stat_result, folder: OpenFolder) -> bool:
        """Return whether what was found is this file (whatever its mode) or link."""
        if isinstance(entry, Link):
            return stat.S_ISLNK(found.st_mode) and os.readlink(step.name, dir_fd=folder.fd) == entry.target
        if not stat.S_ISREG(found.st_mode):
            return False
        seen, known = self._known.get(step.path, ((), None))
        if seen != signature(found):
            known = self._recall(step.path, found)
            if known is None:
                if found.st_size != entry.size or step.beside:  # a database in use is more than its own file
                    return False
                known = hash_file(step.name, found, folder)
            self._known[step.path] = signature(found), known
        return known == entry.digest

    def _clear_beside(self, step: PutFile | Remove, folder: OpenFolder, found: os.stat_result | None = None) -> bool:
        """Remove what lies beside a database that goes, before it goes: SQLite would take it for the next one's. Return
        whether something did: then the database has to go, too, because it is not whole any more."""
        comes = self._at in self._databases
        if not step.beside and not comes:
            return False
        if found is not None and (has_it_open := self._find_user(found)):
            raise Refused(has_it_open)
        going = []
        for name in (step.name + ending for ending in SIDECARS):
            if (there := folder.look(name)) is None:
                continue
            is_log = not name.endswith(b"-shm")  # which any reader writes, and a log alone gives it a meaning
            if name in step.beside:
                if is_log and self._recall(join(split(step.path)[0], name), there) is None:
                    raise Refused(CHANGED)
                going.append(name)
            elif comes and is_log and there.st_size:
                raise Refused("a log or journal that is not the database's own lies beside it")
        for name in going:
            os.unlink(name, dir_fd=folder.fd)
        return bool(going)

    def _changed(self, found: os.stat_result) -> Refused:
        """Return the error for what is not what was captured; who writes a database is worth telling."""
        is_database = self._at in self._databases
        return Refused((is_database and self._find_user(found)) or CHANGED)

    def _find_user(self, found: os.stat_result) -> str | None:
        """Return a sentence about a process that has this file open."""
        process = self._open_files.get((found.st_dev, found.st_ino))
        return None if process is None else f"process {process} has the database open; close it, then restore again"

    @cached_property
    def _open_files(self) -> dict[tuple[int, int], int]:
        return find_open_files()

    def _is_other(self, step: PutFile, new: File, found: os.stat_result, folder: OpenFolder) -> bool:
        """Return whether a file of this content has to be another one: because its attributes differ, or its mode, and
        its other names keep theirs."""
        if found.st_nlink > 1 and stat.S_IMODE(found.st_mode) != new.mode:
            return True
        if attributes_of(step.old) == attributes_of(new):
            return False
        descriptor = open_file(folder.fd, step.name)
        try:
            return read_attributes(descriptor, found, folder.fd) != attributes_of(new)
        finally:
            descriptors.close(descriptor, found)

    def _allow(self, path: bytes, new: File, found: os.stat_result) -> int:
        """Return the mode that a file may have, and note what it may not."""
        attributes = attributes_of(new)
        allowed = allow_mode(new.mode, attributes.owner if attributes and self._trusted else None, found)
        if allowed != new.mode:
            self._lacking[path] = f"it is there, but without {NOT_SETUID}"
        return allowed

    def _fail_from(self, first: int, reason: str, end: int | None = None) -> None:
        for step in self._steps[first:end]:
            if not isinstance(step, Leave) and not (isinstance(step, Enter) and step.what == "pass"):
                self._failed.setdefault(step.path, reason)


def _write_sparsely(descriptor: int, part: bytes) -> None:
    """Write on, with holes for zeros: what was sparse must not fill the disk."""
    data = 0
    for at in range(0, len(part), len(_ZEROS)):
        if not part[at] and part.startswith(_ZEROS, at):
            write_all(descriptor, part[data:at])
            os.lseek(descriptor, len(_ZEROS), os.SEEK_CUR)
            data = at + len(_ZEROS)
    write_all(descriptor, part[data:])


def _find_ends(steps: tuple[Step, ...]) -> dict[int, int]:
    """Return the index of the step that leaves a folder, by that of the step that enters it."""
    ends, entered = {}, []
    for index, step in enumerate(steps):
        if isinstance(step, Enter):
            entered.append(index)
        elif isinstance(step, Leave):
            ends[entered.pop()] = index
    return ends


def _untouched(found: os.stat_result) -> tuple[int, ...]:
    """Return what a rename leaves as it is, and a write does not."""
    return found.st_mode, found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev


@contextmanager
def _translated() -> Iterator[None]:
    """Turn what the system says about a path into a reason; errors of this package pass."""
    try:
        yield
    except CheckpointError:
        raise
    except OSError as error:
        raise _Full if error.errno in (errno.ENOSPC, errno.EDQUOT) else Refused(_say(error)) from error


def _in_the_way(found: os.stat_result | None) -> str:
    if found is None:
        return CHANGED
    if stat.S_ISDIR(found.st_mode):
        return "a folder is in the way that was not captured, or holds something that was not"
    return f"a {'link' if stat.S_ISLNK(found.st_mode) else 'file'} that was not captured is in the way"


def _say(error: OSError) -> str:
    return (error.strerror or "input/output error").lower()
