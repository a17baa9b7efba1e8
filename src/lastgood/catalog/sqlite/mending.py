"""Setting rows right. Runs inside a writing transaction."""

from __future__ import annotations

import apsw

from lastgood.catalog.sqlite.attestations import INSERT_EVENT, PURGED, STORE, append, log
from lastgood.catalog.sqlite.files import insert_pack_row
from lastgood.catalog.sqlite.reading import key
from lastgood.catalog.upkeep import Corrections, NameFix
from lastgood.catalog.values import FILES, Actor
from lastgood.model.checkpoint import encode_plain

_SET_BLOB = """
  INSERT INTO blobs (partition, digest, size, encoding, pack, position, length, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT (partition, digest) DO UPDATE
  SET size = excluded.size, encoding = excluded.encoding, pack = excluded.pack, position = excluded.position,
      length = excluded.length, data = excluded.data, condemned = NULL"""


def mend(connection: apsw.Connection, mending: Corrections, actor: Actor) -> None:
    _mend_checkpoints(connection, mending, actor)
    connection.executemany(
        "UPDATE branches SET head = ?2, version = ?3, own = ?4, inherited = ?5 WHERE branch = ?1", mending.branches
    )
    connection.executemany(
        "UPDATE tasks SET last_sequence = ?2, last_event = ?3, checkpoints = ?4 WHERE task = ?1", mending.tasks
    )
    connection.executemany("UPDATE tasks SET active_branch = ?2 WHERE task = ?1", mending.active)
    for fix in mending.keys:
        _mend_name(connection, "keys", "key", fix)
    for fix in mending.tags:
        _mend_name(connection, "tags", "name", fix)
    connection.executemany("DELETE FROM moves WHERE task = ? AND number = ?", mending.moves)
    connection.executemany("DELETE FROM workspaces WHERE task = ? AND host = ? AND path = ?", mending.workspaces)
    connection.executemany("DELETE FROM steps WHERE owner = ? AND id = ?", mending.steps)
    connection.executemany("DELETE FROM journals WHERE id = ?", ((id_,) for id_ in mending.journals))
    _mend_blobs(connection, mending)
    counts = {name: len(getattr(mending, name)) for name in mending.__struct_fields__ if getattr(mending, name)}
    log(connection, STORE, None, None, "repaired", actor, counts)


def _mend_checkpoints(connection: apsw.Connection, mending: Corrections, actor: Actor) -> None:
    for stone in mending.tombstones:
        number = key(stone.task, stone.sequence)
        connection.execute(
            """INSERT INTO checkpoints
                 (number, branch, owner, id, type, version, last_event, deleted, checksum, placement)
               VALUES (?, ?, ?, ?, 'lost', ?, ?, ?, ?, ?)""",
            (number, *stone[2:7], PURGED, stone.checksum, stone.placement),
        )
        connection.execute("DELETE FROM attestations WHERE checkpoint = ?", (number,))
        append(connection, number, stone.checksum, "purged", {"by": "repair"}, actor)
        about = encode_plain({"damaged": True})
        made = (key(stone.task, stone.last_event), stone.branch, number, "created", 0, "", None, about)
        connection.execute(INSERT_EVENT, made)
    connection.executemany(
        "UPDATE checkpoints SET checksum = ?2 WHERE number = ?1",
        ((key(task, sequence), checksum) for task, sequence, checksum in mending.checksums),
    )
    connection.executemany(
        "UPDATE checkpoints SET type = ?2, deleted = ?3, verified = ?4, verified_at = ?5 WHERE number = ?1",
        ((key(task, sequence), *marks) for task, sequence, *marks in mending.marks),
    )


def _mend_name(connection: apsw.Connection, table: str, column: str, fix: NameFix) -> None:
    if fix.sequence is None:
        connection.execute(f"DELETE FROM {table} WHERE task = ? AND {column} = ?", (fix.task, fix.name))
    else:
        number = key(fix.task, fix.sequence)
        connection.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", (fix.task, fix.name, number))


def _mend_blobs(connection: apsw.Connection, mending: Corrections) -> None:
    connection.executemany(
        _SET_BLOB,
        (
            (partition, blob.digest, blob.size, blob.encoding, None, None, None, blob.data)
            for partition, blob in mending.blobs
        ),
    )
    for pack in mending.packs:
        number = insert_pack_row(connection, pack)
        connection.execute("DELETE FROM announced_packs WHERE name = ?", (pack.name,))
        connection.executemany(
            _SET_BLOB,
            (
                (FILES, entry.digest, entry.size, entry.encoding, number, entry.position, entry.length, None)
                for entry in pack.entries
            ),
        )
    for partition, digest in mending.lost:
        connection.execute(
            "DELETE FROM slices WHERE whole IN (SELECT blob FROM blobs WHERE partition = ? AND digest = ?)",
            (partition, digest),
        )
        for table in ("blobs", "slices"):
            connection.execute(f"DELETE FROM {table} WHERE partition = ? AND digest = ?", (partition, digest))
    for name in mending.retired:
        connection.execute(
            "DELETE FROM packs WHERE name = ? AND NOT EXISTS (SELECT 1 FROM blobs WHERE blobs.pack = packs.pack)",
            (name,),
        )
