"""Content of files on its way into the spool: nothing is asked of the store but what a checkpoint there has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import cast

from lastgood.engine.blobs import Batch, FileBlobs, Gathered
from lastgood.engine.browse import walk_files
from lastgood.errors import CheckpointError, DiskFullError
from lastgood.model.checkpoint import FileRoot
from lastgood.model.tree import File, Folder, decode_chunks


class SpoolBatch(Batch):
    """Takes everything that the checkpoint `since`, which the new one continues, does not have: only that is sure to be
    there when this comes into the store. At most `limit` bytes."""

    def __init__(self, blobs: FileBlobs, since: Sequence[FileRoot], limit: int) -> None:
        self._limit = limit
        super().__init__(cast(FileBlobs, _Known(blobs, since)), None)

    def put(self, data: bytes) -> bytes:
        key = super().put(data)
        if self._inline_bytes + self._waiting_bytes > self._limit:
            raise DiskFullError(
                f"the files that changed take more than the spool may have: {self._limit:,} bytes",
                hint="bring the store back, or raise spool_bytes",
            )
        return key

    def finish(self) -> Gathered:
        return super().finish()._replace(relies_on=())


class _Known:
    """In the place of a store's content: what a checkpoint has of it, as far as that can be read."""

    def __init__(self, blobs: FileBlobs, since: Sequence[FileRoot]) -> None:
        self._blobs = blobs
        self._since = since

    def has(self, keys: Iterable[bytes]) -> set[bytes]:
        wanted = set(keys)
        return wanted & self._reached if wanted else wanted

    def catalog_address(self) -> None:
        """Nobody else looks anything up there."""

    def drop(self, gathered: Gathered) -> None:
        """There are no packs."""

    @cached_property
    def _reached(self) -> set[bytes]:
        found: set[bytes] = set()
        try:
            for root in self._since:
                self._walk(root, found)
        except CheckpointError:
            pass  # the rest is taken along
        return found

    def _walk(self, root: FileRoot, found: set[bytes]) -> None:
        found.add(root.tree)
        for _, entry in walk_files(self._blobs, root):
            if isinstance(entry, Folder):
                found.add(entry.tree)
            elif isinstance(entry, File):
                found.add(entry.digest)
                if entry.chunks is not None:
                    chunks = decode_chunks(self._blobs.read(entry.chunks), entry)
                    found.update((entry.chunks, *(chunk.digest for chunk in chunks)))
