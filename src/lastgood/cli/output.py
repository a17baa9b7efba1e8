"""Printing: data on stdout, messages on stderr, and nothing stored that could steer a terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol

import click

# Control characters (C0, C1), what reorders text (bidirectional marks), line separators, lone surrogates. Compiled when
# text is not printable, which is seldom: compiling takes longer than most of what is printed.
_UNPRINTABLE = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
_SHORT_ID = 18  # of a UUID version 7: its millisecond and the first random digits


class Format(Protocol):
    """Whether a command was asked for JSON."""

    json: bool


def printable(text: str) -> str:
    """Return `text` on one line, with everything that a terminal could obey replaced by its escape."""
    return text if text.isprintable() else re.sub(_UNPRINTABLE, _escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return {9: " ", 10: " "}.get(code) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def printable_lines(text: str) -> str:
    """As `printable`, for text of several lines: line breaks and tabs stay."""
    return re.sub(_UNPRINTABLE, lambda match: match[0] if match[0] in "\n\t" else _escape(match), text)


def json_text(view: Any) -> str:
    """Return a view as JSON on one line; characters that a terminal could obey are escaped."""
    import msgspec

    from lastgood.views.document import document

    return _escaped(msgspec.json.encode(document(view)))


def value_text(value: Any, *, indent: int = 0) -> str:
    """Return a stored value as JSON, tagged as in docs/reference/command-line.md, escaped as by `json_text`."""
    import msgspec

    from lastgood.views.document import tagged

    data = msgspec.json.encode(tagged(value))
    return _escaped(msgspec.json.format(data, indent=indent) if indent else data)


def _escaped(data: bytes) -> str:
    text = data.decode()
    if text.isprintable():
        return text
    return re.sub(_UNPRINTABLE, lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)


def print_result(call: Format, view: Any, lines: Iterable[str]) -> None:
    """Print the result of a command: the view for programs, or `lines` for people."""
    if call.json:
        click.echo(json_text(view))
        return
    for line in lines:
        click.echo(line)


def say(call: Format, message: str) -> None:
    """Print a message for people, beside the data."""
    if not call.json:
        click.echo(printable(message), err=True)


def styled(text: str, *, err: bool = False, **style: Any) -> str:
    """Color `text` where the stream takes colors."""
    return click.style(text, **style) if _takes_color(err) else text


def _takes_color(err: bool) -> bool:
    stream = sys.stderr if err else sys.stdout
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def table(rows: Sequence[Sequence[str]], head: Sequence[str]) -> list[str]:
    """Return rows in columns, the last one as wide as it is."""
    every = [head, *rows]
    widths = [max(len(row[column]) for row in every) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in every]
    return [styled(lines[0], bold=True), *lines[1:]]


def fitted(line: str) -> str:
    """Return `line`, cut to the width of the terminal if stdout is one."""
    if not sys.stdout.isatty():
        return line
    try:
        width = os.get_terminal_size(sys.stdout.fileno()).columns
    except OSError:
        return line
    return shortened(line, width) if width else line


def shortened(text: str, limit: int) -> str:
    """Cut `text` to `limit` characters."""
    return text if len(text) <= limit else text[: max(0, limit - 1)] + "…"


def short_id(id: str) -> str:
    """Return enough of a generated id to name it; an id that someone gave is shown whole."""
    return id[:_SHORT_ID] if len(id) == 36 and id.count("-") == 4 else printable(id)


def local_time(at: datetime) -> str:
    """Return a time in the zone here."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size_text(count: int) -> str:
    """Return bytes in the unit that suits them."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
