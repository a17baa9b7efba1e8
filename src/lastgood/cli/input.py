"""What people type, read strictly: JSON, of which nothing is dropped or guessed; spans of time, moments, sizes."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import click

from lastgood.errors import InvalidError, NotFoundError

STDIN = "-"


def read_text(field: str, source: str) -> str:
    """Return the text in the file `source`, or on stdin for `-`: UTF-8, with or without a byte order mark."""
    from lastgood.types import Options

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
            from lastgood.types import Redacted

            return Redacted()
    return built


_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?) ?"
_SPAN = re.compile(_NUMBER + "([smhdw]?)")
_SIZE = re.compile(_NUMBER + "(?:([kmgt])i?)?b?", re.IGNORECASE)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_LONGEST = 100 * 366 * 86_400
_LARGEST = 1 << 60


def span(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Return seconds, given as a number of them or as `90s`, `30m`, `1h`, `2d`, `1w`."""
    match = _SPAN.fullmatch(value)
    seconds = float(match[1]) * _SECONDS[match[2]] if match else _LONGEST + 1
    if seconds > _LONGEST:
        raise click.BadParameter(f"{value[:80]!r} is no span of time; give one as 90s, 30m, 1h or 2d", ctx, param)
    return seconds


def size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Return bytes, given as a number of them or as `500M`, `2G`, `1.5GiB`; units are powers of 1,024."""
    match = _SIZE.fullmatch(value)
    count = int(float(match[1]) * _BYTES[(match[2] or "").lower()]) if match else _LARGEST + 1
    if count > _LARGEST:
        raise click.BadParameter(f"{value[:80]!r} is no size; give one as 500M, 2G or 1.5GiB", ctx, param)
    return count


def since_moment(text: str) -> datetime:
    """Return when that was: `2h` ago, or a date and time; without a zone, the one here."""
    try:
        if match := re.fullmatch(r"(\d{1,6})([smhdw])", text):
            return datetime.now(UTC) - timedelta(seconds=int(match[1]) * _SECONDS[match[2]])
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError) as error:
        raise InvalidError(
            f"--since {text[:80]!r} is not a moment", hint="as in 2h, 3d, 2026-11-15, 2026-11-15T09:30", field="since"
        ) from error


def choose(found: list[Any], name: str, noun: str) -> Any:
    """Return the one whose id is `name` or begins with it."""
    named = [one for one in found if one.id.startswith(name)] if name else []
    if not named:
        raise NotFoundError(f"there is no open {noun} {name!r}", hint=f"`lastgood {noun}s` lists them")
    exact = [one for one in named if one.id == name]
    if len(named) > 1 and not exact:
        raise InvalidError(f"several open {noun}s begin with {name!r}", hint="give more characters")
    return (exact or named)[0]
