"""What garbage collection does to a catalog. Each function runs inside a writing transaction."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from lastgood.catalog.sqlite.attestations import purge
from lastgood.catalog.sqlite.files import insert_pack_row
from lastgood.catalog.sqlite.reading import Row, rows
from lastgood.catalog.values import FILES, Actor, AnnouncedPack, NewPack
from lastgood.errors import ConflictError, IntegrityError, NotFoundError
from lastgood.model.identity import now
from lastgood.model.step import Process

_REMOVE = """
  DELETE FROM blobs WHERE partition = ? AND digest = ? AND condemned <= ?
    AND NOT EXISTS (SELECT 1 FROM slices WHERE whole = blobs.blob)"""
_MOVE = """
  UPDATE blobs SET pack = ?, position = ?, length = ?, encoding = ?
  WHERE partition = ? AND digest = ? AND pack = (SELECT pack FROM packs WHERE name = ?)"""
_IS_TAGGED = "SELECT 1 FROM tags t JOIN checkpoints c USING (number) WHERE c.id = ? AND c.owner = ? LIMIT 1"
_IS_DELETED = """
  SELECT 1 FROM checkpoints c JOIN attestations a ON a.checkpoint = c.number
  WHERE c.id = ? AND c.owner = ? AND c.deleted = 1 AND a.kind = 'deleted'
  GROUP BY c.number HAVING max(a.at) <= ?"""
_DELETED = """
  SELECT c.owner, c.id FROM checkpoints c JOIN attestations a ON a.checkpoint = c.number
  WHERE c.deleted = 1 AND a.kind = 'deleted' GROUP BY c.number HAVING max(a.at) <= ?
  ORDER BY c.number"""


def condemn(connection: apsw.Connection, partition: int, digests: Sequence[bytes], at: int) -> None:
    sql = "UPDATE blobs SET condemned = ? WHERE partition = ? AND digest = ? AND condemned IS NULL"
    connection.executemany(sql, ((at, partition, digest) for digest in digests))


def acquit(connection: apsw.Connection, partition: int, digests: Sequence[bytes]) -> None:
    sql = "UPDATE blobs SET condemned = NULL WHERE partition = ? AND digest = ? AND condemned IS NOT NULL"
    connection.executemany(sql, ((partition, digest) for digest in digests))


def remove_blobs(connection: apsw.Connection, partition: int, digests: Sequence[bytes], condemned_before: int) -> int:
    before = connection.total_changes()
    connection.executemany(_REMOVE, ((partition, digest, condemned_before) for digest in digests))
    return connection.total_changes() - before


def remove_slices(connection: apsw.Connection, partition: int, digests: Sequence[bytes]) -> int:
    before = connection.total_changes()
    sql = "DELETE FROM slices WHERE partition = ? AND digest = ?"
    connection.executemany(sql, ((partition, digest) for digest in digests))
    return connection.total_changes() - before


def move_blobs(connection: apsw.Connection, pack: NewPack, origin: str) -> None:
    number = insert_pack_row(connection, pack)
    connection.executemany(
        _MOVE,
        ((number, each.position, each.length, each.encoding, FILES, each.digest, origin) for each in pack.entries),
    )
    withdraw(connection, [pack.name])


def remove_packs(connection: apsw.Connection, names: Sequence[str]) -> list[str]:
    sql = """DELETE FROM packs WHERE name = ? AND NOT EXISTS (SELECT 1 FROM blobs WHERE pack = packs.pack)
             RETURNING name"""
    return [name for (name,) in connection.executemany(sql, ((name,) for name in names))]


def announce(connection: apsw.Connection, names: Sequence[str], process: Process) -> None:
    who = msgspec.msgpack.encode(process)
    connection.executemany(
        "INSERT OR REPLACE INTO announced_packs VALUES (?, ?, ?)", ((name, now(), who) for name in names)
    )


def withdraw(connection: apsw.Connection, names: Sequence[str]) -> None:
    connection.executemany("DELETE FROM announced_packs WHERE name = ?", ((name,) for name in names))


def read_flights(connection: apsw.Connection) -> list[AnnouncedPack]:
    return [_flight(row) for row in rows(connection, "SELECT name, at, process FROM announced_packs ORDER BY at, name")]


def read_deleted(connection: apsw.Connection, before: int) -> list[tuple[str, str]]:
    return [(owner, checkpoint_id) for owner, checkpoint_id in rows(connection, _DELETED, (before,))]


def purge_all(
    connection: apsw.Connection,
    checkpoints: Sequence[tuple[str, str]],
    actor: Actor,
    *,
    spare_tagged: bool,
    deleted_before: int | None,
) -> list[str]:
    purged = []
    for owner, checkpoint_id in checkpoints:
        if spare_tagged and connection.execute(_IS_TAGGED, (checkpoint_id, owner)).get is not None:
            continue
        due = (checkpoint_id, owner, deleted_before)
        if deleted_before is not None and connection.execute(_IS_DELETED, due).get is None:
            continue
        try:
            purge(connection, owner, checkpoint_id, actor)
        except (ConflictError, NotFoundError):  # it became a head, a restore needs it, or it is gone already
            continue
        purged.append(checkpoint_id)
    return purged


def _flight(row: Row) -> AnnouncedPack:
    try:
        return AnnouncedPack(row[0], row[1], msgspec.msgpack.decode(row[2], type=Process))
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise IntegrityError(f"what is known of the pack {row[0]!r} on its way is damaged") from error
