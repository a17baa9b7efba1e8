"""JSON from outside, read strictly: nothing is dropped, guessed or rounded without a word."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from lastgood.errors import InvalidError

STDIN = "-"


def read_state(field: str, source: str) -> Any:
    """Return the state in the file `source`, or on stdin for `-`."""
    return parse_state(field, read_text(field, source))


def read_text(field: str, source: str) -> str:
    """Return the text in the file `source`, or on stdin for `-`: UTF-8, with or without a byte order mark."""
    from lastgood import Options

    limit = Options().max_state_bytes
    try:
        if source == STDIN:
            data = sys.stdin.buffer.read(limit + 1)
        else:
            with Path(source).open("rb") as file:
                data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidError(f"{field}: {source} cannot be read: {reason}", hint="give a file, or - for stdin") from error
    if len(data) > limit:
        raise InvalidError(f"{field} is longer than {limit:,} bytes", hint="keep large content in files", field=field)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidError(
            f"{field} is not UTF-8: byte {error.start} is wrong", hint="JSON is UTF-8 text", field=field
        ) from error


def parse_state(field: str, text: str) -> Any:
    """Parse as `parse`; append lists and redacted values are read back as what they were shown as."""
    return parse(field, text, read_back=_read_back)


def parse(field: str, text: str, *, read_back: Callable[[dict[str, Any]], Any] = dict) -> Any:
    """Return the value in `text`, each object of it after `read_back`.

    Refuses NaN, infinities, numbers that no float holds, and repeated keys.
    """
    import json

    if not text.strip():
        raise InvalidError(f"{field} is empty", hint="give JSON, {} for nothing", field=field)

    def constant(name: str) -> NoReturn:
        raise InvalidError(f"{field}: {name} is not JSON", hint="write null, or save it from Python", field=field)

    def number(digits: str) -> float:
        value = float(digits)
        if value - value != 0:
            raise InvalidError(f"{field}: {digits[:40]} is too large for a float", hint="write it as text", field=field)
        return value

    def members(pairs: list[tuple[str, Any]]) -> Any:
        built = dict(pairs)
        if len(built) != len(pairs):
            times = Counter(key for key, _ in pairs)
            repeated = next(key for key in times if times[key] > 1)
            raise InvalidError(f"{field}: the key {repeated[:80]!r} stands there twice", hint="keep one", field=field)
        return read_back(built)

    try:
        return json.loads(text, parse_constant=constant, parse_float=number, object_pairs_hook=members)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidError(
            f"{field} is not JSON: {error.msg} ({where})", hint='text needs quotes: "like this"', field=field
        ) from error
    except RecursionError:
        raise InvalidError(f"{field} is nested too deeply", hint="at most 255 levels are kept", field=field) from None
    except ValueError as error:
        if isinstance(error, InvalidError):
            raise
        raise InvalidError(f"{field}: a number has too many digits", hint="write it as text", field=field) from error


def _read_back(built: dict[str, Any]) -> Any:
    if len(built) == 1:
        from lastgood.views.document import APPEND_LIST, REDACTED

        if isinstance(elements := built.get(APPEND_LIST), list):
            from lastgood import AppendList

            return AppendList(elements)
        if built.get(REDACTED) is True:
            from lastgood import Redacted

            return Redacted()
    return built
