"""Evidence about rows of SQLite databases (D1, D7)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lastgood.errors import InvalidError
from lastgood.evidence.check import Surroundings, get_entry, require_fields
from lastgood.local.paths import show
from lastgood.model.evidence import Evidence

_MAX_COLUMNS = 100


def check_row(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """db_row: {"table", "where": {column: value}, "values": {column: value}, "db_path"}.

    It holds when at least one row has all of both. Values are compared as SQLite's IS does with the column: the
    column's own type and collation decide whether 1 is "1", and None is NULL. `where` may not be empty, because a
    claim about just any row is almost always a mistake; `values` may be.
    """
    expected = require_fields(evidence)
    table = expected.get("table")
    if not isinstance(table, str):
        raise InvalidError("the claim names no table")
    where, values = _columns(expected.get("where"), "where"), _columns(expected.get("values", {}), "values")
    if not where:
        raise InvalidError('the claim does not say which row: "where" is empty')
    path = expected.get("db_path")
    if path is None:
        path = get_entry(evidence.metadata, "db_path")
    try:
        return surroundings.find_row(path, _text(table), where, values)
    except LookupError as error:
        return str(error)


def _columns(columns: object, what: str) -> dict[str, Any]:
    if not isinstance(columns, Mapping) or not all(isinstance(name, str) for name in columns):
        raise InvalidError(f'"{what}" of the claim is not a dictionary of columns')
    if len(columns) > _MAX_COLUMNS:
        raise InvalidError(f'"{what}" of the claim names more than {_MAX_COLUMNS} columns')
    return {_text(name): _scalar(value, name) for name, value in columns.items()}


def _scalar(value: object, name: str) -> object:
    if isinstance(value, str):
        return _text(value)
    is_comparable = (
        value is None
        or isinstance(value, bytes)
        or (isinstance(value, int) and -(1 << 63) <= value < 1 << 63)
        or (isinstance(value, float) and not math.isnan(value))  # which SQLite would take for NULL
    )
    if not is_comparable:
        raise InvalidError(f"the claim's value for {show(name)} cannot stand in a database")
    return value


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidError("the claim holds text that is not Unicode") from error
    return str(value)
