"""A damaged database written anew from the rows that can be read; indexes follow from them.

The new content comes into the same file, as one transaction: whoever has it open goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import apsw

from lastgood.catalog.sqlite.audit import SQLiteAudit
from lastgood.catalog.sqlite.connection import APPLICATION_ID
from lastgood.catalog.sqlite.migration import migrations
from lastgood.catalog.sqlite.reading import Row, rows
from lastgood.model.digest import ALGORITHM
from lastgood.model.identity import new_id, now


def rebuild(connection: apsw.Connection, fresh: apsw.Connection, witness: int | None) -> list[str]:
    """Which tables could not all be read. `fresh` is an empty database; the caller keeps writers away."""
    audit = SQLiteAudit(connection)
    connection.execute("BEGIN")
    try:
        version = connection.pragma("user_version")
        with fresh:
            _copy(audit, rows(connection, _SCHEMA), fresh)
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
        count = len(rows(fresh, f"PRAGMA table_info({name})"))
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
    for key, make in facts.items():
        fresh.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (key, make()))
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
