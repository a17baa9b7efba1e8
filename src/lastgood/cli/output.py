"""Printing: data on stdout, messages on stderr, and nothing stored that could steer a terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from shlex import quote
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import click

from lastgood.observe.log import UNPRINTABLE, escape
from lastgood.observe.log import printable as printable

if TYPE_CHECKING:
    from lastgood import Checkpoint
    from lastgood.types import FileChange, Skipped


_SHORT_ID = 18  # of a UUID version 7: its millisecond and the first random digits


class Format(Protocol):
    """Whether a command was asked for JSON, or to leave remarks out."""

    json: bool
    quiet: bool
    switch: str

    def complete(self, text: str) -> str: ...
    def room(self) -> str: ...


def printable_lines(text: str) -> str:
    """As `printable`, for text of several lines: line breaks and tabs stay."""
    return re.sub(UNPRINTABLE, lambda match: match[0] if match[0] in "\n\t" else escape(match), text)


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
    return re.sub(UNPRINTABLE, lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)


def print_result(call: Format, view: Any, lines: Iterable[str]) -> None:
    """Print the result of a command: the view for programs, or `lines` for people."""
    if call.json:
        click.echo(json_text(view))
        return
    for line in lines:
        click.echo(line)


def say(call: Format, message: str) -> None:
    """Print a remark for people, beside the data; commands in it take the options that this one was given."""
    if not call.json and not call.quiet:
        click.echo(printable(call.complete(message)), err=True)


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
    """Return names and values, the values below each other; on a terminal long ones take several lines."""
    return [text for name, value in fields for text in _wrapped(f"{name:<12} ", printable(value))]


def _wrapped(name: str, value: str) -> list[str]:
    width = width_of_output()
    if not width or len(name) + len(value) <= width:
        return [name + value]
    from textwrap import wrap

    how: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return wrap(value, width, initial_indent=name, subsequent_indent=" " * len(name), **how)


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
    if width_of_output() and len(lines) >= os.get_terminal_size(sys.stdout.fileno()).lines:
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


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def size_text(count: int) -> str:
    """Return bytes in the unit that suits them."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return counted(count, "byte") if unit == "bytes" else f"{size:.1f} {unit}"
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


def folded(paths: Sequence[str]) -> list[str]:
    """Return paths that come or go as lines; a folder that does so with all that is in it is one of them."""
    folders = {path.rpartition("/")[0] for path in paths} & set(paths)
    held: dict[str, list[str]] = {}
    for path in paths:
        above = [path[:end] for end, character in enumerate(path) if character == "/"]
        top = next((folder for folder in above if folder in folders), path)
        held.setdefault(top, []).extend([] if path in folders else [path])
    return [
        path_text(files[0]) if len(files) == 1 else f"{path_text(top + '/')} ({counted(len(files), 'file')})"
        for top, files in held.items()
    ]


def change_line(change: FileChange) -> str:
    """Return a change with its mark before the path."""
    old = f"{path_text(change.old_path)} => " if change.old_path is not None else ""
    said = "" if change.change in ("added", "modified", "deleted", "renamed") else f" ({change.change})"
    return f"{MARKS.get(change.change, '~')} {old}{path_text(change.path)}{said}"


def say_skipped(call: Format, saved: Checkpoint, skipped: Sequence[Skipped]) -> None:
    """Print what was not captured when `saved` was."""
    for line in few([left_out(one) for one in skipped]):
        say(call, line)
    path = next((one.path for one in skipped if one.reason.endswith("secret")), None)
    if path is not None:
        named = any(root.name for root in saved.record.files or ())  # a path begins with the name of its folder
        secret = path_text(path.partition(":")[2] if named else path)
        say(call, f"to keep {secret}: echo {quote(f'!/{secret}')} >> .lastgoodignore")


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
        if not call.json:
            click.echo(line, err=True)


SIZES = ("bytes read", "verify")
"""Stages that count bytes; others count files or packs."""


class CountedStage:
    """What is being done, and how much of it; called by the code that does it."""

    def __init__(self) -> None:
        self._doing, self._done, self._of, self._since = "", 0, 0, 0

    def __call__(self, doing: str, done: int, of: int) -> None:
        if doing != self._doing:
            self._since = 0
        self._doing, self._done, self._of = doing, done, of

    def text(self) -> str:
        """Return it in words, with its share and its rate; to be called once a second."""
        if not self._doing:
            return ""
        self._since += 1
        shown = size_text if self._doing in SIZES else "{:,}".format
        said = f", {self._doing} {shown(self._done)}" if self._done else f", {self._doing}"
        said += f" of {shown(self._of)} ({100 * self._done // self._of}%)" if self._of and self._done else ""
        return said + (f", {shown(self._done // self._since)}/s" if self._done else "")


@contextmanager
def counting(call: Format, doing: str) -> Iterator[CountedStage]:
    """Count seconds on stderr, unless with --json or where that is no terminal; the first second prints nothing."""
    stage = CountedStage()
    if call.json or call.quiet or not sys.stderr.isatty():
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
        shown = f"{doing}: {seconds} s{stage.text()}"
        shown = shortened(shown, (terminal_width(stream) or len(shown) + 1) - 1)
        stream.write(f"\r{shown:{widest}}")
        stream.flush()
        widest = max(widest, len(shown))
    if widest:
        stream.write(f"\r{' ' * widest}\r")
        stream.flush()
