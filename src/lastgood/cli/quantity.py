"""Spans of time, moments, sizes and shares as people type them: callbacks of parameters, and texts."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

from lastgood.errors import InvalidError

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


def is_span(text: str) -> bool:
    """Whether `text` is a span of time."""
    return _SPAN.fullmatch(text) is not None


def size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Return bytes, given as a number of them or as `500M`, `2G`, `1.5GiB`; units are powers of 1,024."""
    match = _SIZE.fullmatch(value)
    count = int(float(match[1]) * _BYTES[(match[2] or "").lower()]) if match else _LARGEST + 1
    if count > _LARGEST:
        raise click.BadParameter(f"{value[:80]!r} is no size; give one as 500M, 2G or 1.5GiB", ctx, param)
    return count


def span_text(seconds: float) -> str:
    """Return the largest unit that fits without a rest: `1 h`, `90 min`."""
    for length, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:,.15g} s"


def share(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return a share between 0 and 1, given as `5%` or `0.05`."""
    if value is None:
        return None
    try:
        found = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
    except ValueError:
        found = 0.0
    if not 0 < found <= 1:
        raise click.BadParameter(f"{value!r} is no share of the blobs; give one as 5%", ctx, param)
    return found


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
