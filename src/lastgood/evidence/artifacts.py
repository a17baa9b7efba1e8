"""Evidence about what work left behind (D1, D7): files and folders, rows of SQLite databases, recorded exit codes of
commands. Nothing is ever run."""

from __future__ import annotations

import math
import stat
from collections.abc import Mapping
from typing import Any

from lastgood.errors import InvalidError
from lastgood.evidence.check import Surroundings, get_entry, require_digest, require_fields
from lastgood.local.paths import is_unicode, kind_of, show
from lastgood.model.evidence import Evidence


def check_artifact(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """artifact_exists: {"path", "type": "file" | "directory" | "any"}; a link counts as what it leads to."""
    expected = require_fields(evidence)
    path, wanted = expected.get("path"), expected.get("type", "any")
    if wanted not in ("any", "file", "directory"):
        raise InvalidError('the type of an artifact is "file", "directory" or "any"')
    if (found := surroundings.stat(path)) is None:
        return f"{show(path)} does not exist"
    holds = wanted == "any" or (stat.S_ISREG if wanted == "file" else stat.S_ISDIR)(found.st_mode)
    return None if holds else f"{show(path)} is {kind_of(found)}, not a {wanted}"


def check_digest(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """file_sha256: {"path", "sha256": hex digits, with or without "sha256:" before them}."""
    expected = require_fields(evidence)
    path, wanted = expected.get("path"), require_digest(expected.get("sha256"), "sha256")
    try:
        digest = surroundings.hash_file(path)
    except InvalidError:
        if (mismatch := _why_no_file(path, surroundings)) is None:
            raise
        return mismatch
    except LookupError:
        return f"{show(path)} does not exist"
    return None if digest == wanted else f"{show(path)} has the SHA-256 {digest}"


def _why_no_file(path: object, surroundings: Surroundings) -> str | None:
    found = surroundings.stat(path)
    if found is None or stat.S_ISREG(found.st_mode):
        return None
    return f"{show(path)} is {kind_of(found)}, not a file"


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
    if not is_unicode(value):
        raise InvalidError("the claim holds text that is not Unicode")
    return str(value)


def check_exit(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """command_exit: {"exit_code"}, compared with what was recorded when the command ran. Nothing is ever run."""
    wanted = require_fields(evidence).get("exit_code")
    if not _is_integer(wanted):
        raise InvalidError("the claim names no exit code", hint='give expected={"exit_code": 0}')
    recorded = _recorded_exit(evidence.metadata, surroundings)
    if recorded is None:
        raise InvalidError("no exit code was recorded for this command")
    if not _is_integer(recorded):
        raise InvalidError("the exit code that was recorded for this command is not an integer")
    return None if recorded == wanted else f"the command ended with {recorded}, not {wanted}"


def _recorded_exit(metadata: object, surroundings: Surroundings) -> object:
    recorded = get_entry(metadata, "actual_exit_code")
    if recorded is not None:
        return recorded
    snapshot = surroundings.snapshot
    command = get_entry(metadata, "command")
    if isinstance(command, str):
        recorded = get_entry(get_entry(get_entry(snapshot, "commands"), command), "exit_code")
    return recorded if recorded is not None else get_entry(snapshot, "exit_code")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
