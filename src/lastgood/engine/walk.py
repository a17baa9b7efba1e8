"""From checkpoints to the blobs that they need. Each blob that refers to others is read once, however many share it.

A reference is a flag byte and a blob's id, in the partition of a task (codec/join.py) or in that of files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from lastgood.catalog.values import FILES, Blob
from lastgood.codec.join import ELEMENTS, Reference, is_plain, references_below, references_in
from lastgood.engine.blobs import unpack_blob
from lastgood.errors import IntegrityError
from lastgood.model.checkpoint import VALUES, Record
from lastgood.model.identity import BlobId
from lastgood.model.tree import (
    Entry,
    File,
    Folder,
    TreeSummary,
    Versions,
    decode_chunks,
    decode_tree,
    parts_of,
)

READ_AT_ONCE = 256

CONTENT, TREE, CHUNKS = b"\0", b"\1", b"\2"
"""The flags of references to files: the bytes of a file or a chunk, a directory, a list of chunks."""

Read = Callable[[int, Sequence[bytes]], Iterable[tuple[bytes, bytes]]]
"""Yields ids and bytes of blobs; those that cannot be had it leaves out, and has reported, or it raises."""


def tree_references(record: Record) -> list[Reference]:
    """List the directories that a checkpoint's files begin with."""
    return [TREE + root.tree for root in record.files or ()]


def companion_references(record: Record) -> list[tuple[str, Reference]]:
    """List the values beside the state, by name: their roots are blobs like any other."""
    refs = ((name, getattr(record, name)) for name in VALUES if name != "state")
    return [(name, ELEMENTS + ref.digest) for name, ref in refs if ref is not None]


def state_references(blob_id: BlobId, record: Record, root: Blob | None) -> list[Reference]:
    """List what the root of a state refers to, which lies with its checkpoint. IntegrityError, in words."""
    if record.state is None:
        return []
    if root is None or type(root.data) is not bytes:
        raise IntegrityError("its state is missing")
    try:
        data = unpack_blob(blob_id, record.state.digest, root, {})
    except IntegrityError as error:
        raise IntegrityError("its state is not what was stored") from error
    return references_in(data)


class Visit(NamedTuple):
    """A blob that refers to others, and to which; of a directory also entries, and a summary with `changes_only`."""

    reference: Reference
    below: list[Reference]
    entries: Sequence[Entry] = ()
    summary: TreeSummary | None = None


class Walk:
    """Follows references to their ends; what it has read once it does not read again.

    `malformed` is called with the partition and the reference of what was stored and cannot be decoded, and raises or
    takes note of it. With `changes_only` of versions of a directory only the entries are told that differ from those
    of one that was read before.
    """

    def __init__(
        self, read: Read, malformed: Callable[[int, Reference, IntegrityError], None], *, changes_only: bool = False
    ) -> None:
        self._read = read
        self._malformed = malformed
        self._versions = Versions() if changes_only else None
        self._seen: defaultdict[int, set[Reference]] = defaultdict(set)
        self._chunked: dict[bytes, File] = {}

    def follow(self, partition: int, references: Iterable[Reference]) -> Iterator[Visit]:
        """Visit what references lead to, and all below, in that order: versions of a directory follow each other."""
        waiting, at = self._unseen(partition, references), 0
        while some := waiting[at : at + READ_AT_ONCE]:
            at += len(some)
            found = dict(self._read(partition, [reference[1:] for reference in some]))
            for reference in some:
                if (data := found.get(reference[1:])) is None:
                    continue
                try:
                    visit = self._decode(partition, reference, data)
                except IntegrityError as error:
                    self._malformed(partition, reference, error)
                else:
                    waiting += self._unseen(partition, visit.below)
                    yield visit

    def _unseen(self, partition: int, references: Iterable[Reference]) -> list[Reference]:
        """Return those that lead to others and were not seen before, and note them as seen."""
        seen = self._seen[partition]
        new = [one for one in dict.fromkeys(references) if not is_plain(one) and one not in seen]
        seen.update(new)
        return new

    def _decode(self, partition: int, reference: Reference, data: bytes) -> Visit:
        if partition != FILES:
            return Visit(reference, references_below(reference, data))
        key = reference[1:]
        if reference[:1] == CHUNKS:
            return Visit(reference, [CONTENT + chunk.digest for chunk in decode_chunks(data, self._chunked.pop(key))])
        entries: Sequence[Entry] = ()
        summary: TreeSummary | None = None
        if parts := parts_of(data):  # which are directories, too
            summary = TreeSummary(data[1], 0, parts)
        elif self._versions is not None:
            entries, summary = self._versions.decode_new(data)
        else:
            entries = decode_tree(data)
        below = [TREE + part for part in parts]
        for entry in entries:
            if isinstance(entry, Folder):
                below.append(TREE + entry.tree)
            elif isinstance(entry, File) and entry.chunks is None:
                below.append(CONTENT + entry.blob)
            elif isinstance(entry, File) and entry.chunks is not None:
                below.append(CHUNKS + entry.chunks)
                if below[-1] not in self._seen[partition]:
                    self._chunked[entry.chunks] = entry
        return Visit(reference, below, entries, summary)
