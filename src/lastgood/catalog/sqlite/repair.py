"""Repairing a catalog file: rows set right, or a damaged file written anew from the rows that can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import apsw

from lastgood.catalog.relational.collection import SQL as COLLECTION
from lastgood.catalog.relational.collection import remove_packs
from lastgood.catalog.relational.connection import Connection, Queries, Row, key
from lastgood.catalog.relational.deletion import PURGED, append
from lastgood.catalog.relational.records import STORE, log
from lastgood.catalog.sqlite.audit import SQLiteAudit
from lastgood.catalog.sqlite.migration import migrations
from lastgood.catalog.upkeep import Corrections, NameFix
from lastgood.catalog.values import FILES, Actor
from lastgood.local.paths import APPLICATION_ID
from lastgood.model.identity import ALGORITHM, new_id, now

SQL = Queries("repair")


# --- rows set right -----------------------------------------------------------------------------------------------


def correct(connection: Connection, corrections: Corrections, actor: Actor) -> None:
    for stone in corrections.tombstones:
        number = key(stone.task, stone.sequence)
        connection.run(SQL.insert_tombstone, **{**stone._asdict(), "number": number, "deleted": PURGED})
        connection.run(SQL.remove_attestations, number=number)
        append(connection, number, stone.checksum, "purged", {"by": "repair"}, actor)
        about, made = {"damaged": True}, (stone.last_event, 0)
        log(connection, stone.task, stone.branch, number, "created", Actor(""), about, made)
    _correct_rows(connection, corrections)
    _correct_blobs(connection, corrections)
    counts = {name: len(getattr(corrections, name)) for name in corrections.__struct_fields__}
    log(connection, STORE, None, None, "repaired", actor, {name: count for name, count in counts.items() if count})


def _correct_rows(connection: Connection, corrections: Corrections) -> None:
    run = partial(_run_each, connection)
    run(SQL.set_checksum, "number checksum", ((key(*row[:2]), row[2]) for row in corrections.checksums))
    marks = ((key(*row[:2]), *row[2:]) for row in corrections.marks)
    run(SQL.set_marks, "number type deleted verified verified_at", marks)
    run(SQL.set_branch, "branch head version own inherited", corrections.branches)
    run(SQL.set_task, "task last_sequence last_event checkpoints", corrections.tasks)
    run(SQL.set_active, "task branch", corrections.active)
    _correct_names(connection, SQL.put_key, SQL.remove_key, corrections.keys)
    _correct_names(connection, SQL.put_tag, SQL.remove_tag, corrections.tags)
    run(SQL.remove_move, "task number", corrections.moves)
    run(SQL.remove_workspace, "task inode device path", corrections.workspaces)
    run(SQL.remove_step, "owner id", corrections.steps)
    run(SQL.remove_journal, "id", ((id_,) for id_ in corrections.journals))


def _correct_names(connection: Connection, put: str, remove: str, fixes: Sequence[NameFix]) -> None:
    for fix in fixes:
        about: dict[str, Any] = {"task": fix.task, "name": fix.name}
        if fix.sequence is None:
            connection.run(remove, **about)
        else:
            connection.run(put, **about, number=key(fix.task, fix.sequence))


def _correct_blobs(connection: Connection, corrections: Corrections) -> None:
    run = partial(_run_each, connection)
    inline = ((partition, *blob[:4]) for partition, blob in corrections.blobs)
    run(SQL.put_blob, "partition digest size encoding data", inline)
    for pack in corrections.packs:
        connection.run(COLLECTION.insert_pack, name=pack.name, size=pack.size, now=connection.now())
        connection.run(COLLECTION.withdraw, name=pack.name)
        entries = [{"partition": FILES, "pack": pack.name, **entry._asdict()} for entry in pack.entries]
        connection.run_many(SQL.put_packed_blob, entries)
    for sql in (SQL.remove_slices_of_blob, SQL.remove_blob, COLLECTION.remove_slice):
        run(sql, "partition digest", corrections.lost)
    remove_packs(connection, corrections.retired)


def _run_each(connection: Connection, sql: str, names: str, rows: Iterable[Row]) -> None:
    """Run a statement for each of the rows, whose columns have these names."""
    connection.run_many(sql, [dict(zip(names.split(), row, strict=True)) for row in rows])


# --- a file written anew ------------------------------------------------------------------------------------------


def rebuild(connection: apsw.Connection, fresh: apsw.Connection, witness: int | None) -> list[str]:
    """Write it anew by way of `fresh`, an empty database; return which tables could not all be read.

    Indexes follow from the rows. The new content comes into the same file, as one transaction: connections that have it
    open go on with it. The caller keeps writers away.
    """
    audit = SQLiteAudit(connection)
    connection.execute("BEGIN")
    try:
        version = connection.pragma("user_version")
        with fresh:
            _copy(audit, connection.execute(_SCHEMA).fetchall(), fresh)
            _complete(fresh, version, witness)
        fresh.pragma("user_version", version)
        fresh.pragma("application_id", APPLICATION_ID)
    finally:
        if connection.in_transaction:  # SQLite may have ended it at the first page that it could not read
            connection.execute("ROLLBACK")
    # The pages that are written over are read first, and some of them do not fit their checksums.
    connection.execute("PRAGMA checksum_verification = OFF")
    try:
        with connection.backup("main", fresh, "main") as backup:
            backup.step()
    finally:
        connection.execute("PRAGMA checksum_verification = ON")
    return audit.unreadable


_SCHEMA = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"


def _copy(audit: SQLiteAudit, schema: Iterable[Row], fresh: apsw.Connection) -> None:
    """Tables with their rows, then the indexes: a row that is there twice comes once."""
    indexes = []
    for kind, name, sql in schema:
        if kind != "table":
            indexes.append(sql)
            continue
        fresh.execute(sql)
        count = len(fresh.execute(f"PRAGMA table_info({name})").fetchall())
        marks = ", ".join("?" * count)
        has_rowid = "WITHOUT ROWID" not in sql
        for row in audit.raw(name, has_rowid=has_rowid):
            with suppress(apsw.ConstraintError):  # it is no row of this table: a page was in the wrong place
                fresh.execute(f"INSERT OR IGNORE INTO {name} VALUES ({marks})", row)
    for name, last, *_ in audit.raw("sqlite_sequence", has_rowid=True):  # a number that was given is never given again
        fresh.execute("DELETE FROM sqlite_sequence WHERE name = ? AND seq < ?", (name, last))
        sql = "INSERT INTO sqlite_sequence SELECT ?1, ?2 WHERE ?1 NOT IN (SELECT name FROM sqlite_sequence)"
        fresh.execute(sql, (name, last))
    for sql in indexes:
        fresh.execute(sql)


def _complete(fresh: apsw.Connection, version: int, witness: int | None) -> None:
    """What opening a store needs, and follows from the rest: the migrations, its description, its own row."""
    facts: dict[str, Callable[[], Any]] = {"store_id": new_id, "created_at": now, "blob_id": lambda: ALGORITHM}
    for name, make in facts.items():
        fresh.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (name, make()))
    for one in migrations():
        if one.number <= version:
            values = (one.number, one.name, one.format, now())
            fresh.execute("INSERT OR IGNORE INTO migrations VALUES (?, ?, ?, ?)", values)
    fresh.execute(
        """INSERT OR IGNORE INTO tasks
             (task, owner, id, created_at, active_branch, last_sequence, last_event, checkpoints)
           SELECT 0, '', '', ?, 0, ?, coalesce(max(number), 0), 0 FROM events WHERE number < 1 << 32""",
        (now(), witness or 0),
    )
