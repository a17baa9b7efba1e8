"""Files that must not be read here, read in a process of their own: those that this process has open, because closing
a descriptor would drop its locks, and SQLite databases, because their content may be more than one file.

A database that is in use comes as SQLite's own backup of it. What lies beside it (log, journal, shared
memory) comes empty then: the backup holds everything, and a log would be read into it after a restore.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lastgood.errors import BusyError, CheckpointError
from lastgood.files.folders import FolderWalk, signature, split
from lastgood.files.read import Content, LeftOut, Put, ReadJob, read_content, refuse
from lastgood.local.database import copy_database, is_at_rest

SECONDS = 30.0


def read_apart(root: str, jobs: list[ReadJob], put: Put, scratch: Path) -> Iterator[Content | LeftOut]:
    """Read files, with one result for each job. `scratch` is a path where nothing is; nothing is left there."""
    with FolderWalk(root) as walk:
        for job in jobs:
            try:
                yield _read(walk, root, job, put, scratch)
            except OSError as error:
                yield refuse(job.path, error)


def _read(walk: FolderWalk, root: str, job: ReadJob, put: Put, scratch: Path) -> Content | LeftOut:
    if job.kind == "sidecar":
        return Content(0, put(b""), None, job.seen)
    folder, name = split(job.path)
    path = os.fsdecode(os.path.join(os.fsencode(root), job.path))  # noqa: PTH118
    at_rest = is_at_rest(path)
    got = read_content(walk.folder(folder), name, job.seen, put, databases=at_rest)
    if isinstance(got, Content) and (not at_rest or is_at_rest(path)):
        return got
    if got == "replaced":
        return LeftOut(job.path, "missing", "something else took its place")
    if got == "unstable" and job.kind != "database":
        return LeftOut(job.path, "unstable", "it kept changing while it was read")
    return _back_up(path, job, put, scratch)


def _back_up(path: str, job: ReadJob, put: Put, scratch: Path) -> Content | LeftOut:
    try:
        copy_database(path, job.seen[4:], scratch, time.monotonic() + SECONDS)
        with FolderWalk(str(scratch.parent)) as walk:
            got = read_content(walk.root, os.fsencode(scratch.name), signature(scratch.stat()), put)
    except BusyError as error:
        return LeftOut(job.path, "unstable", str(error))
    except CheckpointError as error:
        return LeftOut(job.path, "unreadable", str(error))
    finally:
        with suppress(OSError):  # the sweep of drafts removes it one day
            scratch.unlink(missing_ok=True)
    assert isinstance(got, Content), "a file of our own changed"
    return got._replace(seen=job.seen)
