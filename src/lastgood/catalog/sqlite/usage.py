"""All that lies in a catalog, page by page. Each function runs inside a transaction."""

from __future__ import annotations

import apsw

from lastgood.catalog.sqlite.reading import key, read_checkpoints_after, rows
from lastgood.catalog.values import MAX_PAGE, Blob, CheckpointRoot, IndexedBlob, KnownPack, SlicedBlob, StoredCheckpoint

_ROOTS = """
  SELECT number, root_size, encoding, root FROM checkpoints
  WHERE number BETWEEN ? AND ? AND record IS NOT NULL AND root IS NOT NULL"""
# length() of a blob is told by its header: the bytes themselves are not read.
_BLOB = """
  SELECT b.blob, b.partition, b.digest, b.size, coalesce(b.length, length(b.data), 0), p.name, b.position, b.encoding,
         b.condemned"""
_INDEXED = f"{_BLOB} FROM blobs b LEFT JOIN packs p USING (pack) WHERE b.blob > ? ORDER BY b.blob LIMIT ?"
_LYING_IN = f"{_BLOB} FROM packs p JOIN blobs b USING (pack) WHERE p.name = ? ORDER BY b.position"
_SLICED = """
  SELECT s.partition, s.digest, w.digest FROM slices s JOIN blobs w ON w.blob = s.whole
  WHERE (s.partition, s.digest) > (?, ?) ORDER BY s.partition, s.digest LIMIT ?"""


_ROOT = list[tuple[int, int, int, bytes]]


def read_held(connection: apsw.Connection, after: StoredCheckpoint | None, limit: int) -> list[CheckpointRoot]:
    number = 0 if after is None else key(after.task_number, after.placement.sequence)
    found = read_checkpoints_after(connection, number, limit)
    if not found:
        return []
    last = key(found[-1].task_number, found[-1].placement.sequence)
    roots = {row[0]: Blob(b"", *row[1:]) for row in rows(connection, _ROOTS, (number + 1, last), _ROOT)}
    return [CheckpointRoot(stored, roots.get(key(stored.task_number, stored.placement.sequence))) for stored in found]


def read_indexed(connection: apsw.Connection, after: int, limit: int) -> list[IndexedBlob]:
    return rows(connection, _INDEXED, (after, _bounded(limit)), list[IndexedBlob])  # type: ignore[return-value]


def read_lying_in(connection: apsw.Connection, pack: str) -> list[IndexedBlob]:
    return rows(connection, _LYING_IN, (pack,), list[IndexedBlob])  # type: ignore[return-value]


def read_sliced(connection: apsw.Connection, after: SlicedBlob | None, limit: int) -> list[SlicedBlob]:
    partition, digest = (-1, b"") if after is None else after[:2]
    after_that = (partition, digest, _bounded(limit))
    return rows(connection, _SLICED, after_that, list[SlicedBlob])  # type: ignore[return-value]


def read_packs(connection: apsw.Connection) -> list[KnownPack]:
    sql = "SELECT name, size FROM packs ORDER BY name"
    return rows(connection, sql, (), list[KnownPack])  # type: ignore[return-value]


def read_used_bytes(connection: apsw.Connection) -> int:
    return int(connection.pragma("page_count") * connection.pragma("page_size")) - read_free_bytes(connection)


def read_free_bytes(connection: apsw.Connection) -> int:
    return int(connection.pragma("freelist_count") * connection.pragma("page_size"))


def _bounded(limit: int) -> int:
    return max(1, min(limit, MAX_PAGE))
