"""The directories of all checkpoints: each is read once, however many checkpoints share it."""

from __future__ import annotations

from collections.abc import Iterable

from lastgood.catalog.upkeep import Audit
from lastgood.catalog.values import FILES
from lastgood.errors import IntegrityError
from lastgood.model.tree import File, Folder, Versions, decode_chunks
from lastgood.upkeep.checking.report import LookedAt
from lastgood.upkeep.checking.shelf import Reader, Shelf


def walk_trees(roots: Iterable[bytes], shelf: Shelf, audit: Audit, reader: Reader, looked_at: LookedAt) -> None:
    """Read every directory that is reachable, and see that the content of all files is there."""
    versions = Versions()
    new = dict.fromkeys(roots)  # in order, so that versions follow each other
    seen = set(new)
    chunked: dict[bytes, File] = {}
    while new:
        wanted: set[bytes] = set()
        below: dict[bytes, None] = {}
        for key, data in reader.read(FILES, new):
            looked_at.trees += 1
            try:
                entries = versions.decode_new(data)
            except IntegrityError as error:
                shelf.lose((FILES, key), "tree", f"is no directory: {error}")
                continue
            for entry in entries:
                if isinstance(entry, Folder):
                    if entry.tree not in seen:
                        below[entry.tree] = None
                elif isinstance(entry, File):
                    if entry.chunks is None:
                        wanted.add(entry.digest)
                    else:
                        chunked[entry.chunks] = entry
        shelf.require(FILES, wanted, audit)
        seen.update(below)
        new = below
    chunks: set[bytes] = set()
    for key, data in reader.read(FILES, chunked):
        try:
            chunks.update(chunk.digest for chunk in decode_chunks(data, chunked[key]))
        except IntegrityError as error:
            shelf.lose((FILES, key), "tree", f"is no list of chunks: {error}")
    shelf.require(FILES, chunks, audit)
