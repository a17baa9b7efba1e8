"""Printing: data on stdout, messages on stderr, and nothing stored that could steer a terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import click

if TYPE_CHECKING:
    from lastgood import FileChange, Skipped


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


def field_lines(fields: Iterable[tuple[str, str]]) -> list[str]:
    """Return names and values, the values below each other."""
    return [f"{name:<12} {printable(value)}" for name, value in fields]


def fitted(line: str) -> str:
    """Return `line`, cut to the width of the terminal if stdout is one."""
    width, text = width_of_output(), click.unstyle(line)
    if not width or len(text) <= width:
        return line
    return styled(shortened(text, width), bold=True) if text != line else shortened(line, width)


def width_of_output() -> int | None:
    """Return how wide the terminal on stdout is; None where there is none."""
    return terminal_width(sys.stdout)


def paged(lines: Sequence[str]) -> None:
    """Print lines; on a terminal that is not as high, through the pager."""
    import shutil

    if sys.stdout.isatty() and len(lines) >= shutil.get_terminal_size().lines:
        click.echo_via_pager("\n".join(lines) + "\n")
        return
    for line in lines:
        click.echo(line)


def terminal_width(stream: TextIO) -> int | None:
    """Return how wide the terminal is; None where `stream` is none, or the width is not known."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream.isatty() else None
    except (OSError, ValueError):
        return None


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


MOST = 20
"""Paths that are printed for people, of each sort; programs get all."""

MARKS = {"added": "+", "deleted": "-"}
"""Before the path of a change; everything else is `~`."""


def path_text(path: str) -> str:
    """Return a path on one line, in C's quotes where it holds what cannot be printed."""
    from lastgood.compare.text import path_text as quoted

    return quoted(os.fsencode(path)) if path else ""


def few(lines: Sequence[str], most: int = MOST) -> list[str]:
    """Return the first lines, and how many more there are."""
    rest = len(lines) - most
    return list(lines) if rest <= 0 else [*lines[:most], f"  … and {rest:,} more"]


def change_line(change: FileChange) -> str:
    """Return a change with its mark before the path."""
    old = f"{path_text(change.old_path)} => " if change.old_path is not None else ""
    said = "" if change.change in ("added", "modified", "deleted", "renamed") else f" ({change.change})"
    return f"{MARKS.get(change.change, '~')} {old}{path_text(change.path)}{said}"


def say_skipped(call: Format, skipped: Sequence[Skipped]) -> None:
    """Print what was not captured."""
    for line in few([left_out(one) for one in skipped]):
        say(call, line)


def left_out(skipped: Skipped) -> str:
    """Return what was not captured, and why."""
    if rules := rules_text(skipped):
        return f"ignore rules: {rules}"
    return f"left out: {path_text(skipped.path)} ({printable(skipped.reason)})"


def rules_text(skipped: Skipped) -> str:
    """Return what is wrong with an ignore file, which is captured itself; empty when it is about something else."""
    before, _, said = skipped.reason.partition("rules: ")
    return f"{path_text(skipped.path)}: {printable(said)}" if not before and said else ""


def say_failed(call: Format, failed: Sequence[tuple[str, str]]) -> None:
    """Print what could not be put back."""
    for line in few([f"failed: {path_text(path)}: {printable(reason)}" for path, reason in failed]):
        say(call, line)


class CountedStage:
    """What is being done, and how much of it; called by the code that does it."""

    def __init__(self) -> None:
        self.text = ""

    def __call__(self, doing: str, done: int, of: int) -> None:
        if of:
            self.text = f", {doing} {done:,} of {of:,} ({100 * done // of}%)"
        else:
            self.text = f", {doing} {done:,}" if done else f", {doing}"


@contextmanager
def counting(call: Format, doing: str) -> Iterator[CountedStage]:
    """Count seconds on stderr, unless with --json or where that is no terminal; the first second prints nothing."""
    stage = CountedStage()
    if call.json or not sys.stderr.isatty():
        yield stage
        return
    import threading

    from lastgood.observe.log import reporting

    over = threading.Event()
    counter = threading.Thread(target=count, args=(over.wait, doing, sys.stderr, stage), daemon=True)
    counter.start()
    try:
        with reporting(stage):
            yield stage
    finally:
        over.set()
        counter.join()


def count(wait: Callable[[float], bool], doing: str, stream: TextIO, stage: CountedStage) -> None:
    """Print how many seconds it has been, and the stage, each second until `wait` says that it is over; then
    wipe it away."""
    seconds, widest = 0, 0
    while not wait(1):
        seconds += 1
        shown = f"{doing}: {seconds} s{stage.text}"
        stream.write(f"\r{shown:{widest}}")
        stream.flush()
        widest = max(widest, len(shown))
    if widest:
        stream.write(f"\r{' ' * widest}\r")
        stream.flush()
