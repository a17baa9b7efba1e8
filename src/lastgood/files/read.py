"""Reading files for a capture: never torn, never through a link, memory flat at any size.

Also for worker processes: `read_jobs` needs a root's path, jobs, and somewhere to put blobs. `read_apart` is for a
process of its own, and reads what must not be read in the user's: files that it has open, because closing a descriptor
would drop its locks, and SQLite databases, because their content may be more than one file.

A database that is in use comes as SQLite's own backup of it. What lies beside it (log, journal, shared
memory) is left out then: the backup holds everything, and a log would be read into it after a restore.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from lastgood.errors import BusyError, CheckpointError, UnavailableError
from lastgood.local.paths import GONE, FolderWalk, Signature, open_file, read_attributes, signature, split
from lastgood.model.identity import BlobId
from lastgood.model.tree import Attributes, Chunk, Entry, Why, encode_chunks, is_sidecar

if TYPE_CHECKING:
    from pyfastcdc import FastCDC

SMALL = 512 << 10
"""Files below this are one blob."""
MIN_CHUNK, AVERAGE_CHUNK, MAX_CHUNK = 256 << 10, 1 << 20, 4 << 20
ATTEMPTS = 3
DATABASE = b"SQLite format 3\0"
SIDECARS = (b"-wal", b"-journal", b"-shm")
"""What SQLite appends to the name of a database for the files that it keeps beside it."""
DATABASE_SECONDS = 5.0
"""How long a process that reads apart may wait for the writers of databases, all together, or have them wait."""

IsOpen = Callable[[os.stat_result], bool]
"""Whether this process has the file open, so that it must not be opened (and closed) here."""
Close = Callable[[int, os.stat_result], None]
"""Closes a descriptor of the file, or keeps it while closing it would drop someone's locks."""


class BlobSink(Protocol):
    """A place for blobs."""

    blob_id: BlobId

    def put(self, data: bytes) -> bytes:
        """Store a blob, once, and give its id; raises errors of lastgood only."""


class LeftOut(NamedTuple):
    """A path that is not in the tree, or only as left out, and why; "missing" is not in the tree at all. "rules" of
    an ignore file do not all hold."""

    path: bytes
    why: Why | Literal["missing", "rules"]
    detail: str = ""


class ReadJob(NamedTuple):
    """A file to read, and what it looked like. "database": by its header or what lies beside it, SQLite's; "sidecar":
    a log, journal or shared memory beside a file, if that is a database."""

    path: bytes
    seen: Signature
    kind: Literal["file", "database", "sidecar"] = "file"


class Content(NamedTuple):
    """A file's content while its signature was `seen`. `blob` is its id; of a large file that of `listing`, the encoded
    chunk list."""

    size: int
    digest: bytes
    blob: bytes
    seen: Signature
    listing: bytes = b""
    attributes: Attributes | None = None


ReadFiles = Callable[[list[ReadJob]], Iterator[Content | LeftOut | ReadJob]]
"""Reads files of a root: one answer for each job, in their order. A job: to be read apart, see `capture`; from what
reads apart: to be read like other files, because it does not lie beside a database."""


def main_of(name: bytes) -> bytes:
    """Return the name of the database that a file of that name would belong to; empty if to none."""
    main, dash, ending = name.rpartition(b"-")
    return main if dash + ending in SIDECARS else b""


def is_same(entry: Entry, was: Signature, seen: Signature) -> bool:
    """Return whether an entry with this signature is as it was."""
    return was == seen or (is_sidecar(entry) and without_ctime(was) == without_ctime(seen))


def without_ctime(seen: Signature) -> Signature:
    """Return the signature of a database's log without its ctime, which says nothing: when SQLite runs as root, it
    gives a log that it opens, if only to read, the owner of its database."""
    return (*seen[:3], seen[2], *seen[4:])


def close_file(descriptor: int, file: os.stat_result) -> None:
    os.close(descriptor)


def read_jobs(
    root: str,
    jobs: list[ReadJob],
    sink: BlobSink,
    *,
    is_open: IsOpen | None = None,
    close: Close = close_file,
    databases: bool = True,
) -> Iterator[Content | LeftOut | ReadJob]:
    """Read files one by one. Those that are open here are handed back and, unless `databases` are read, those."""
    with FolderWalk(root) as walk:
        for job in jobs:
            folder, name = split(job.path)
            try:
                descriptor = walk.folder(folder)
                if is_open and is_open(os.stat(name, dir_fd=descriptor, follow_symlinks=False)):
                    yield job
                    continue
                got = read_content(descriptor, name, job.seen, sink, close=close, databases=databases)
            except OSError as error:
                yield refuse(job.path, error)
                continue
            if isinstance(got, Content):
                yield got
            else:
                yield job._replace(kind="database") if got == "database" else _leave_out(job, got)


def _leave_out(job: ReadJob, why: Literal["replaced", "unstable"]) -> LeftOut:
    if why == "replaced":
        return LeftOut(job.path, "missing", "something else took its place")
    return LeftOut(job.path, "unstable", "it kept changing while it was read")


def refuse(path: bytes, error: OSError) -> LeftOut:
    """Return what a file or folder that cannot be opened is reported as; raise what is no fault of its own."""
    if isinstance(error, CheckpointError):  # some are OSErrors, too: a full disk must not pass for an unreadable file
        raise error
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        raise UnavailableError("the system gave no more open files or memory to read the workspace") from error
    if error.errno in GONE:
        return LeftOut(path, "missing", "it is not there")
    return LeftOut(path, "unreadable", os.strerror(error.errno) if error.errno else "")


def read_content(
    folder: int, name: bytes, seen: Signature, sink: BlobSink, *, close: Close = close_file, databases: bool = True
) -> Content | Literal["replaced", "unstable", "database"]:
    """Read the file that was `seen` in the folder, as it was at one moment; OSError as the system says it.

    "replaced": something else lies there now. "unstable": it changed each time that it was read. "database": it is one,
    and `databases` are not to be read as they are.
    """
    descriptor = open_file(folder, name)
    found = os.fstat(descriptor)
    try:
        if not stat.S_ISREG(found.st_mode) or (found.st_ino, found.st_dev) != seen[4:]:
            return "replaced"
        before: Signature = signature(found)
        for _ in range(ATTEMPTS):
            is_large = before[1] >= SMALL
            data = None if is_large else _read_small(descriptor, before)
            if not databases:
                start = os.pread(descriptor, len(DATABASE), 0) if data is None else data
                if start.startswith(DATABASE):
                    return "database"
            got = _read_large(descriptor, before, sink) if is_large else None
            if data is not None:
                got = _keep_small(data, before, sink)
            if got is not None:
                attributes = read_attributes(descriptor, found, folder)
                return got if attributes is None else got._replace(attributes=attributes)
            os.lseek(descriptor, 0, os.SEEK_SET)
            before = signature(os.fstat(descriptor))
        return "unstable"
    finally:
        close(descriptor, found)


def _read_small(descriptor: int, before: Signature) -> bytes | None:
    size = before[1]
    data = os.read(descriptor, size + 1)
    while len(data) < size and (more := os.read(descriptor, size + 1 - len(data))):
        data += more
    if len(data) != size or signature(os.fstat(descriptor)) != before:
        return None
    return data


def _keep_small(data: bytes, before: Signature, sink: BlobSink) -> Content:
    blob = sink.put(data)
    return Content(len(data), sink.blob_id.digest_of(data, blob), blob, before)


def _read_large(descriptor: int, before: Signature, sink: BlobSink) -> Content | None:
    whole = sha256()
    left = 0  # and no further: a file that grows as fast as it is read would never end

    class Source:
        def readinto(self, buffer: memoryview) -> int:
            nonlocal left
            got = os.readv(descriptor, [buffer[:left]]) if left else 0
            whole.update(buffer[:got])
            left -= got
            return got

    chunks: list[Chunk] = []
    done = 0
    for start, end in _find_data(descriptor, before[1]):
        if done < start:
            zeros = bytes(MAX_CHUNK)
            hole = Chunk(sink.put(zeros), MAX_CHUNK)
            for _ in range(done, start, MAX_CHUNK):
                whole.update(zeros)
                chunks.append(hole)
        os.lseek(descriptor, start, os.SEEK_SET)
        left, done = end - start, end
        for piece in _chunker().cut_stream(Source()) if left else ():
            data = bytes(piece.data)
            chunks.append(Chunk(sink.put(data), len(data)))
        if left:
            return None
    if signature(os.fstat(descriptor)) != before:
        return None
    listing = encode_chunks(chunks)
    return Content(before[1], whole.digest(), sink.put(listing), before, listing)


def _find_data(descriptor: int, size: int) -> list[tuple[int, int]]:
    """Return where the data of a file begins and ends, the last one at its end. Between two, or before the first, are
    whole chunks of a hole; smaller holes are data."""
    found, start, at = [], 0, 0
    try:
        while at < size:
            hole = os.lseek(descriptor, at, os.SEEK_HOLE)
            try:
                at = os.lseek(descriptor, hole, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                at = size  # there is no more data
            if length := (at - hole) // MAX_CHUNK * MAX_CHUNK:
                found.append((start, hole))
                start = hole + length
    except OSError:  # the file system does not tell, or the file is shorter now
        pass
    return [*found, (start, size)]


@cache
def _chunker() -> FastCDC:
    from pyfastcdc import FastCDC

    return FastCDC(AVERAGE_CHUNK, min_size=MIN_CHUNK, max_size=MAX_CHUNK)


def read_apart(
    root: str, jobs: list[ReadJob], sink: BlobSink, scratch: Path, deadline: float
) -> Iterator[Content | LeftOut | ReadJob]:
    """Read files, with one result for each job. `scratch` is a path where nothing is; nothing is left there. Databases
    that are locked are waited for until the deadline."""
    with FolderWalk(root) as walk:
        for job in jobs:
            try:
                yield _read(walk, root, job, sink, scratch, deadline)
            except OSError as error:
                yield refuse(job.path, error)


def _read(
    walk: FolderWalk, root: str, job: ReadJob, sink: BlobSink, scratch: Path, deadline: float
) -> Content | LeftOut | ReadJob:
    from lastgood.local.database import find_at_rest

    folder, name = split(job.path)
    if job.kind == "sidecar":
        is_beside_database = _is_database(walk.folder(folder), main_of(name))
        return LeftOut(job.path, "sidecar") if is_beside_database else job._replace(kind="file")
    path = os.fsdecode(os.path.join(os.fsencode(root), job.path))  # noqa: PTH118
    at_rest = find_at_rest(path)
    got = read_content(walk.folder(folder), name, job.seen, sink, databases=at_rest is not None)
    if isinstance(got, Content) and (at_rest is None or got.seen == at_rest == find_at_rest(path)):
        return got
    if got == "replaced" or (got == "unstable" and job.kind != "database"):
        return _leave_out(job, got)
    copied = _back_up(path, job, sink, scratch, deadline)
    if isinstance(copied, LeftOut):
        return copied
    descriptor = open_file(walk.folder(folder), name)
    try:
        attributes = read_attributes(descriptor, os.fstat(descriptor), walk.folder(folder))
    finally:
        os.close(descriptor)
    return copied._replace(attributes=attributes)


def _is_database(folder: int, name: bytes) -> bool:
    descriptor = open_file(folder, name)
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode) and os.pread(descriptor, len(DATABASE), 0) == DATABASE
    finally:
        os.close(descriptor)


def _back_up(path: str, job: ReadJob, sink: BlobSink, scratch: Path, deadline: float) -> Content | LeftOut:
    from lastgood.local.database import copy_database, remove_copy

    try:
        copy_database(path, job.seen[4:], scratch, deadline)
        with FolderWalk(str(scratch.parent)) as walk:
            got = read_content(walk.root, os.fsencode(scratch.name), signature(scratch.stat()), sink)
    except BusyError as error:
        return LeftOut(job.path, "unstable", str(error))
    except UnavailableError:  # the disk of the copy: no fault of the database
        raise
    except CheckpointError as error:
        return LeftOut(job.path, "unreadable", str(error))
    finally:
        with suppress(OSError):  # the sweep of drafts removes it one day
            remove_copy(scratch)
    assert isinstance(got, Content), "a file of our own changed"
    return got._replace(seen=job.seen)
