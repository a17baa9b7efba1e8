"""Spans of time and sizes, as people type them; `span` and `size` are callbacks of parameters."""

from __future__ import annotations

import re

import click

_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?) ?"
_SPAN = re.compile(_NUMBER + "([smhdw]?)")
_SIZE = re.compile(_NUMBER + "(?:([kmgt])i?)?b?", re.IGNORECASE)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_LONGEST = 100 * 366 * 86_400
_LARGEST = 1 << 60


def span(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Seconds, given as a number of them or as `90s`, `30m`, `1h`, `2d`, `1w`."""
    match = _SPAN.fullmatch(value)
    seconds = float(match[1]) * _SECONDS[match[2]] if match else _LONGEST + 1
    if seconds > _LONGEST:
        raise click.BadParameter(f"{value[:80]!r} is no span of time; give one as 90s, 30m, 1h or 2d", ctx, param)
    return seconds


def is_span(text: str) -> bool:
    return _SPAN.fullmatch(text) is not None


def size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Bytes, given as a number of them or as `500M`, `2G`, `1.5GiB`; units are powers of 1,024."""
    match = _SIZE.fullmatch(value)
    count = int(float(match[1]) * _BYTES[(match[2] or "").lower()]) if match else _LARGEST + 1
    if count > _LARGEST:
        raise click.BadParameter(f"{value[:80]!r} is no size; give one as 500M, 2G or 1.5GiB", ctx, param)
    return count


def span_text(seconds: float) -> str:
    """The largest unit that fits without a rest: `1 h`, `90 min`."""
    for length, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:,.15g} s"
