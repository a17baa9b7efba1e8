"""Blobs and packs as a whole, page by page, and what garbage collection does to them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lastgood.catalog.relational import connection as shapes
from lastgood.catalog.relational.connection import Connection, Queries, Values, decoded, key, shaped
from lastgood.catalog.relational.records import SQL as RECORDS
from lastgood.catalog.relational.records import bounded, read_checkpoints_after
from lastgood.catalog.relational.sessions import require_lease
from lastgood.catalog.values import (
    FILES,
    MAX_PAGE,
    AnnouncedPack,
    Blob,
    CheckpointRoot,
    IndexedBlob,
    KnownPack,
    NewPack,
    SlicedBlob,
    StoredCheckpoint,
)
from lastgood.model.task import Process

SQL = Queries("collection")
_process = msgspec.msgpack.Decoder(Process)


# --- pages --------------------------------------------------------------------------------------------------------


def read_held(
    connection: Connection, after: StoredCheckpoint | None = None, limit: int = MAX_PAGE
) -> list[CheckpointRoot]:
    number = 0 if after is None else _number(after)
    found = read_checkpoints_after(connection, number, limit)
    if not found:
        return []
    rows = connection.all(RECORDS.roots_between, low=number + 1, high=_number(found[-1]))
    roots = {row[0]: Blob(b"", *row[1:]) for row in shaped(rows, shapes.NUMBERED_ROOT)}
    return [CheckpointRoot(stored, roots.get(_number(stored))) for stored in found]


def read_indexed(
    connection: Connection, after: int = 0, limit: int = MAX_PAGE, *, pack: str | None = None
) -> list[IndexedBlob]:
    if pack is not None:
        return shaped(connection.all(SQL.blobs_in_pack, name=pack), list[IndexedBlob])
    return shaped(connection.all(SQL.blobs_page, after=after, limit=bounded(limit)), list[IndexedBlob])


def read_sliced(connection: Connection, after: SlicedBlob | None = None, limit: int = MAX_PAGE) -> list[SlicedBlob]:
    partition, digest = (-1, b"") if after is None else after[:2]
    found = connection.all(SQL.slices_page, partition=partition, digest=digest, limit=bounded(limit))
    return shaped(found, list[SlicedBlob])


def read_packs(connection: Connection) -> list[KnownPack]:
    return shaped(connection.all(SQL.packs), list[KnownPack])


def _number(stored: StoredCheckpoint) -> int:
    return key(stored.task_number, stored.placement.sequence)


# --- blobs --------------------------------------------------------------------------------------------------------


def condemn(connection: Connection, partition: int, digests: Sequence[bytes], at: int | None) -> None:
    if at is None:
        connection.run_many(SQL.acquit, _each(partition, digests))
    else:
        connection.run_many(SQL.condemn, _each(partition, digests, at=at))


def remove_blobs(
    connection: Connection,
    partition: int,
    digests: Sequence[bytes],
    condemned_before: int | None,
    *,
    lease: int | None = None,
) -> int:
    if lease is not None:
        require_lease(connection, lease)
    if condemned_before is None:
        return connection.run_many(SQL.remove_slice, _each(partition, digests))
    return connection.run_many(SQL.remove_blob, _each(partition, digests, before=condemned_before))


def _each(partition: int, digests: Sequence[bytes], **more: int) -> list[Values]:
    return [{"partition": partition, "digest": digest, **more} for digest in digests]


# --- packs --------------------------------------------------------------------------------------------------------


def move_blobs(connection: Connection, pack: NewPack, origin: str) -> None:
    connection.run(SQL.insert_pack, name=pack.name, size=pack.size, now=connection.now())
    entries = [{"partition": FILES, "pack": pack.name, "origin": origin, **each._asdict()} for each in pack.entries]
    connection.run_many(SQL.move_blob, entries)
    announce(connection, [pack.name], None)


def remove_packs(connection: Connection, names: Sequence[str]) -> list[str]:
    return [name for (name,) in connection.all_many(SQL.remove_pack, ({"name": name} for name in names))]


def announce(connection: Connection, names: Sequence[str], process: Process | None) -> None:
    if process is None:
        connection.run_many(SQL.withdraw, [{"name": name} for name in names])
        return
    encoded, now = msgspec.msgpack.encode(process), connection.now()
    connection.run_many(SQL.announce, ({"name": name, "now": now, "process": encoded} for name in names))


def read_announced(connection: Connection) -> list[AnnouncedPack]:
    return [
        AnnouncedPack(name, at, decoded(_process.decode, process, f"the pack {name!r} on its way"))
        for name, at, process in connection.all(SQL.announced)
    ]
