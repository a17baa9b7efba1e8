"""The built-in types of evidence: what each claims, and how that is checked (D1, D7)."""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Mapping
from typing import Any

from lastgood.errors import InvalidError
from lastgood.evidence.surroundings import Surroundings
from lastgood.local.paths import kind_of, show
from lastgood.model.evidence import Evidence

_MAX_COLUMNS = 100
_DIGEST = re.compile("(?:sha256:)?([0-9a-fA-F]{64})")


def check_artifact(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """artifact_exists: {"path", "type": "file" | "directory" | "any"}; a link counts as what it leads to."""
    expected = _expected(evidence)
    path, wanted = expected.get("path"), expected.get("type", "any")
    if wanted not in ("any", "file", "directory"):
        raise InvalidError('the type of an artifact is "file", "directory" or "any"')
    if (found := surroundings.look(path)) is None:
        return f"{show(path)} does not exist"
    is_wanted = {"any": _is_anything, "file": stat.S_ISREG, "directory": stat.S_ISDIR}[wanted]
    return None if is_wanted(found.st_mode) else f"{show(path)} is {kind_of(found)}, not a {wanted}"


def check_digest(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """file_sha256: {"path", "sha256": hex digits, with or without "sha256:" before them}."""
    expected = _expected(evidence)
    path, wanted = expected.get("path"), _digits(expected.get("sha256"))
    try:
        digest = surroundings.hash_file(path)
    except InvalidError:
        if (mismatch := _why_no_file(path, surroundings)) is None:
            raise
        return mismatch
    except LookupError:
        return f"{show(path)} does not exist"
    return None if digest == wanted else f"{show(path)} has the SHA-256 {digest}"


def check_exit(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """command_exit: {"exit_code"}, compared with what was recorded when the command ran. Nothing is ever run."""
    wanted = _expected(evidence).get("exit_code")
    if not _is_integer(wanted):
        raise InvalidError("the claim names no exit code", hint='give expected={"exit_code": 0}')
    recorded = _recorded_exit(evidence.metadata, surroundings)
    if recorded is None:
        raise InvalidError("no exit code was recorded for this command")
    if not _is_integer(recorded):
        raise InvalidError("the exit code that was recorded for this command is not an integer")
    return None if recorded == wanted else f"the command ended with {recorded}, not {wanted}"


def check_row(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """db_row: {"table", "where": {column: value}, "values": {column: value}, "db_path"}.

    It holds when at least one row has all of both. Values are compared as SQLite's IS does with the column: the
    column's own type and collation decide whether 1 is "1", and None is NULL. `where` may not be empty, because a
    claim about just any row is almost always a mistake; `values` may be.
    """
    expected = _expected(evidence)
    table = expected.get("table")
    if not isinstance(table, str):
        raise InvalidError("the claim names no table")
    where, values = _columns(expected.get("where"), "where"), _columns(expected.get("values", {}), "values")
    if not where:
        raise InvalidError('the claim does not say which row: "where" is empty')
    path = expected.get("db_path")
    if path is None:
        path = _get(evidence.metadata, "db_path")
    try:
        return surroundings.find_row(path, _text(table), where, values)
    except LookupError as error:
        return str(error)


def _expected(evidence: Evidence) -> dict[str, Any]:
    if not isinstance(evidence.expected, dict):
        raise InvalidError("what the evidence expects is not a dictionary")
    return evidence.expected


def _is_anything(mode: int) -> bool:
    return True


def _why_no_file(path: object, surroundings: Surroundings) -> str | None:
    found = surroundings.look(path)
    if found is None or stat.S_ISREG(found.st_mode):
        return None
    return f"{show(path)} is {kind_of(found)}, not a file"


def _digits(value: object) -> str:
    found = _DIGEST.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidError("the claim's sha256 is missing or is not 64 hex digits")
    return found[1].lower()


def _recorded_exit(metadata: object, surroundings: Surroundings) -> object:
    recorded = _get(metadata, "actual_exit_code")
    if recorded is not None:
        return recorded
    snapshot = surroundings.snapshot
    command = _get(metadata, "command")
    if isinstance(command, str):
        recorded = _get(_get(_get(snapshot, "commands"), command), "exit_code")
    return recorded if recorded is not None else _get(snapshot, "exit_code")


def _get(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, Mapping) else None


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


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
