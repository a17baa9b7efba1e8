"""New content of files on its way into a checkpoint.

A few small blobs go into the catalog with the checkpoint, so that a small save is one transaction; more of them become
a pack, which is durable before the transaction begins.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lastgood.catalog.values import Binding, Blob, NewPack, PackedBlob
from lastgood.codec.compress import compress, decompress
from lastgood.engine.blobs import GROUP_BLOBS, GROUP_BYTES, FileBlobs, Gathered
from lastgood.errors import DiskFullError, UnavailableError
from lastgood.local.paths import open_private
from lastgood.model.identity import new_id

if TYPE_CHECKING:
    from lastgood.files.index import FolderRecord
    from lastgood.model.checkpoint import FileRoot, Skipped
    from lastgood.objects.contract import ObjectStore

INLINE_BLOBS, INLINE_BYTES = 64, 256 << 10
PACK_BYTES = 128 << 20
"""A pack that has so many is finished: rewriting one takes no more room than that."""


class CapturedFiles(NamedTuple):
    """What a capture found: the trees, what was left out, and the new content."""

    roots: tuple[FileRoot, ...]
    skipped: tuple[Skipped, ...]
    gathered: Gathered
    binding: Binding | None
    records: Mapping[str, Mapping[bytes, FolderRecord]]
    """The records of folders, by root."""
    base: str | None = None
    """The checkpoint whose files were not looked up in the store, because that one has them."""

    def joined(self, other: CapturedFiles) -> CapturedFiles:
        """Return both, for one checkpoint."""
        mine, its = self.gathered, other.gathered
        gathered = Gathered(
            [*mine.blobs, *its.blobs], [*mine.packs, *its.packs], sorted({*mine.relies_on, *its.relies_on})
        )
        return self._replace(roots=self.roots + other.roots, gathered=gathered)


class Batch:
    """New content on its way into one checkpoint. `finish` it or `discard` it; not safe for threads.

    Without `relies` it takes everything along, also what is stored already: others may be about to remove that.
    """

    def __init__(self, blobs: FileBlobs, objects: ObjectStore | None, *, relies: bool = True) -> None:
        self.blob_id = blobs.blob_id
        self._blobs = blobs
        self._objects = objects
        self._relies = relies
        self._waiting: dict[bytes, bytes] = {}
        self._waiting_bytes = 0
        self._inline: dict[bytes, Blob] = {}
        self._inline_bytes = 0
        self._pack: PackDraft | None = None
        self._packs: list[NewPack] = []
        self._packed: set[bytes] = set()
        self._relied: set[bytes] = set()
        self.new_bytes = 0

    def has(self, ids: Sequence[bytes]) -> set[bytes]:
        """Return which of these are stored; the checkpoint will rely on them."""
        mine = {key for key in ids if self._is_mine(key)}
        found = self._blobs.has([key for key in ids if key not in mine]) if self._relies else set()
        self._relied |= found
        return mine | found

    def put(self, data: bytes) -> bytes:
        key = self.blob_id.of(data)
        if not self._is_mine(key) and key not in self._relied:
            self._waiting[key] = data
            self._waiting_bytes += len(data)
            if len(self._waiting) >= GROUP_BLOBS or self._waiting_bytes >= GROUP_BYTES:
                self._settle()
        return key

    def catalog_address(self) -> bytes | None:
        """Return where another process can read which content is stored; None: it brings everything."""
        return self._blobs.catalog_address() if self._relies else None

    def rely_on(self, ids: Iterable[bytes]) -> None:
        """Rely on these, too: another process found them stored."""
        self._relied.update(ids)

    @property
    def takes_packs(self) -> bool:
        return self._objects is not None

    def draft(self) -> Path:
        """Return the path where another process may write a pack for `adopt`."""
        if self._objects is not None:
            return self._objects.draft()
        import tempfile

        return Path(tempfile.gettempdir()) / f"lastgood-{new_id()}.pack"

    def adopt(self, pack: NewPack, path: Path) -> None:
        """Take a pack that another process has written. The content of a small one goes where small blobs go."""
        if self._objects is None or pack.size <= INLINE_BYTES:
            data = path.read_bytes()
            for entry in pack.entries:
                stored = data[entry.position : entry.position + entry.length]
                self.put(decompress(entry.encoding, stored, entry.size))
            discard(path)
            return
        self._blobs.adopt(pack.name, path)
        self._packs.append(pack)
        self._packed.update(entry.digest for entry in pack.entries)
        self.new_bytes += pack.size

    def finish(self) -> Gathered:
        """Make everything durable but what the commit itself brings, and return it."""
        self._settle()
        self._finish_pack()
        return Gathered(list(self._inline.values()), self._packs, sorted(self._relied))

    def discard(self) -> None:
        if self._pack is not None:
            self._pack.discard()
            self._pack = None
        self._blobs.drop(Gathered(packs=self._packs))

    def _finish_pack(self) -> None:
        if self._pack is not None:
            done = self._pack.finish()
            self._blobs.adopt(done.name, self._pack.path)
            self._packs.append(done)
            self._pack = None

    def _is_mine(self, key: bytes) -> bool:
        return key in self._waiting or key in self._inline or key in self._packed

    def _settle(self) -> None:
        """Rely on those of the waiting that are stored, and keep the others."""
        found = self._blobs.has(self._waiting) if self._relies else set()
        self._relied |= found
        for key, data in self._waiting.items():
            if key not in found:
                self._keep(key, data)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _keep(self, key: bytes, data: bytes) -> None:
        self.new_bytes += len(data)
        if self._pack is None and self._packs and self._objects is not None:
            self._pack = PackDraft(self._objects.draft())
        if self._pack is None:
            encoding, stored = compress(data)
            fits = len(self._inline) < INLINE_BLOBS and self._inline_bytes + len(stored) <= INLINE_BYTES
            if fits or self._objects is None:
                self._inline[key] = Blob(key, len(data), encoding, stored)
                self._inline_bytes += len(stored)
                return
            self._pack = PackDraft(self._objects.draft())
            for blob in self._inline.values():
                self._pack.add(blob.digest, decompress(blob.encoding, blob.data, blob.size))
            self._packed.update(self._inline)
            self._inline.clear()
        self._pack.add(key, data)
        self._packed.add(key)
        if self._pack.size >= PACK_BYTES:
            self._finish_pack()


class PackDraft:
    """A pack file that takes blobs until it is finished or discarded.

    UnavailableError when the disk fails: then it is discarded.
    """

    def __init__(self, path: Path) -> None:
        from lastgood.codec.pack import PackWriter

        self.path = path
        try:
            descriptor = open_private(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
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
        from lastgood.codec.pack import pack_name

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
