"""The write-ahead log of a catalog: when it is long, and what is to be done when a sync of it has failed.

After a failed fsync Linux takes the pages for written, and the next fsync succeeds without writing them. Commits that
did not wait for the disk may be among them: each frame's checksum continues that of the one before, so that a hole in
the log would take every later commit with it. So all of it is written again before anything is added.
"""

from __future__ import annotations

import os
from pathlib import Path

from lastgood.errors import UnavailableError

LONG_PAGES = 1000
"""A log with so many is moved to the database."""
_PART = 1 << 20


def write_again(catalog: Path) -> None:
    """Make everything in the log durable, whatever was tried before. Nobody may write to it meanwhile."""
    try:
        with catalog.with_name(catalog.name + "-wal").open("r+b", buffering=0) as file:
            position = 0
            while part := os.pread(file.fileno(), _PART, position):
                position += os.pwrite(file.fileno(), part, position)
            os.fsync(file.fileno())
    except FileNotFoundError:
        return
    except OSError as error:
        raise UnavailableError(
            "the disk has failed to keep what was written, and fails still", hint="look at the disk and the log"
        ) from error
