"""The named statements of the catalog: each is used, each that is used is there, and SQLite understands all of them."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

from lastgood.catalog import relational
from lastgood.catalog.relational.connection import Queries
from lastgood.catalog.sqlite.migration import migrations

FOLDER = Path(relational.__file__).parent
FILES = sorted(path.stem for path in FOLDER.joinpath("sql").glob("*.sql"))
# Reserved by PostgreSQL and no keyword of SQLite where a name may stand: such a column would have to be quoted there.
RESERVED = {"left", "right", "user", "end", "offset", "window", "both", "analyse", "placing", "symmetric", "variadic"}


def _statements(file: str) -> dict[str, str]:
    return {name: sql for name, sql in vars(Queries(file)).items() if isinstance(sql, str)}


@pytest.mark.parametrize("file", FILES)
def test_every_statement_is_used(file: str) -> None:
    text = FOLDER.joinpath("sql", f"{file}.sql").read_text()
    code = "".join(path.read_text() for path in FOLDER.parent.rglob("*.py"))
    unused = [name for name in _statements(file) if f".{name}" not in code and f"{{{name}}}" not in text]
    assert unused == []


def test_every_statement_that_is_used_is_there() -> None:
    for path in FOLDER.parent.rglob("*.py"):
        text = path.read_text()
        own = re.search(r'^SQL = Queries\("(\w+)"\)', text, re.MULTILINE)
        files = {} if own is None else {"SQL": own[1]}
        for found in re.finditer(r"from lastgood\.catalog\.relational\.(\w+) import SQL as (\w+)", text):
            files[found[2]] = found[1]
        for alias, file in files.items():
            named = set(re.findall(rf"\b{alias}\.(\w+)", text))
            assert named <= _statements(file).keys(), path


@pytest.mark.parametrize("file", FILES)
def test_sqlite_understands_every_statement(file: str) -> None:
    connection = apsw.Connection(":memory:")
    for migration in migrations():
        connection.execute(migration.sql)
    for name, sql in _statements(file).items():
        if " FROM " in f" {' '.join(sql.split())} " or not sql.startswith("SELECT"):  # else a part of others
            values = dict.fromkeys(re.findall(r":(\w+)", sql))
            assert connection.execute(f"EXPLAIN {sql}", values).fetchall(), name


def test_no_column_has_a_name_that_postgresql_reserves() -> None:
    connection = apsw.Connection(":memory:")
    for migration in migrations():
        connection.execute(migration.sql)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    columns = {row[1] for table in tables for row in connection.execute(f"PRAGMA table_info({table})")}
    assert not RESERVED & {*tables, *columns}
