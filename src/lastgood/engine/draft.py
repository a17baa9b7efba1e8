"""A pack on its way: written as a file of its own, and given up without a trace when that fails."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from lastgood.catalog.values import NewPack, PackedBlob
from lastgood.codec.pack import PackWriter, pack_name
from lastgood.errors import DiskFullError, UnavailableError


class PackDraft:
    """A pack file that takes blobs until it is finished or discarded.

    UnavailableError when the disk fails: then it is discarded.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise disk_error(error) from error
        self._file = os.fdopen(descriptor, "wb")
        self._writer = PackWriter(self._file.write)

    @property
    def size(self) -> int:
        return self._writer.size

    def add(self, key: bytes, data: bytes) -> None:
        try:
            self._writer.add(key, data)
        except OSError as error:
            self.discard()
            raise disk_error(error) from error

    def copy(self, key: bytes, size: int, encoding: int, stored: bytes) -> None:
        """Add a blob as another pack holds it."""
        try:
            self._writer.copy(key, size, encoding, stored)
        except OSError as error:
            self.discard()
            raise disk_error(error) from error

    def finish(self) -> NewPack:
        """Complete it; adopting it syncs it, which this does not."""
        try:
            index = self._writer.finish()
            self._file.close()
        except OSError as error:
            self.discard()
            raise disk_error(error) from error
        assert index.digest is not None
        return NewPack(pack_name(index.digest), index.size, [PackedBlob(*entry) for entry in index.entries])

    def discard(self) -> None:
        with suppress(OSError):  # it tries to write what it could not
            self._file.close()
        discard(self.path)


def discard(path: Path) -> None:
    """Remove a draft; one that cannot be removed is swept one day, and must not hide what went wrong."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def disk_error(error: OSError) -> UnavailableError:
    import errno

    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFullError("the disk is full", hint="free some space and try again")
    return UnavailableError("the disk reported an error", hint="look at the disk and the log")
