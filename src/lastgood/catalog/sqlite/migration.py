"""Numbered migrations, each in a transaction of its own, and which formats this version reads."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import apsw

from lastgood.catalog.sqlite.shapes import misplaced
from lastgood.errors import FormatError
from lastgood.model.identity import now

MAJOR = 2


class Migration(NamedTuple):
    number: int
    name: str
    format: str
    sql: str


_FOLDER = Path(__file__).with_name("migrations")


@functools.cache
def migrations(folder: Path = _FOLDER) -> tuple[Migration, ...]:
    found = []
    for file in sorted(folder.glob("[0-9]*.sql")):
        sql = file.read_text()
        declared = re.match(r"-- format: (\d+\.\d+)\n", sql)
        assert declared, f"{file.name} does not begin with its format"
        found.append(Migration(int(file.name[:4]), file.stem, declared[1], sql))
    return tuple(found)


def pending(connection: apsw.Connection, known: Sequence[Migration]) -> Sequence[Migration]:
    """The migrations still to be applied. Raises FormatError for a store that this version must not touch."""
    applied = connection.pragma("user_version")
    if applied == 0:
        return known
    newest = connection.execute("SELECT format FROM migrations ORDER BY number DESC LIMIT 1").get
    if type(newest) is not str or re.fullmatch(r"\d+\.\d+", newest) is None:
        raise misplaced()
    major = int(newest.partition(".")[0])
    if major != MAJOR:
        raise FormatError(
            f"this store has format {newest}, and this version of lastgood reads {MAJOR}.x",
            hint=f"{'upgrade lastgood' if major > MAJOR else 'open it with the version that wrote it'}; "
            "nothing was changed",
            format=newest,
        )
    return [migration for migration in known if migration.number > applied]


def migrate(connection: apsw.Connection, known: Sequence[Migration]) -> Sequence[Migration]:
    """Apply what is pending, one transaction each; what was applied. The caller holds the writers' queue."""
    todo = pending(connection, known)
    for migration in todo:
        with connection:
            connection.execute(migration.sql)
            connection.execute(
                "INSERT INTO migrations VALUES (?, ?, ?, ?)",
                (migration.number, migration.name, migration.format, now()),
            )
            connection.pragma("user_version", migration.number)
    return todo
