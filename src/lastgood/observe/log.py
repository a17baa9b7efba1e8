"""The correlation of operations, and the log line that each leaves behind (A7).

`logging` is imported when there is something to say: a program that has not imported it does not listen.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from lastgood.model.identity import check_name, new_id, now

LOGGER, INFO = "lastgood", 20

# Control characters (C0, C1), what reorders text (bidirectional marks), line separators, lone surrogates. Compiled when
# text is not printable, which is seldom: compiling takes longer than most of what is printed.
UNPRINTABLE = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"

_correlation: ContextVar[str | None] = ContextVar("lastgood_correlation", default=None)

Report = Callable[[str, int, int], None]
_report: ContextVar[Report | None] = ContextVar("lastgood_report", default=None)


@contextmanager
def correlation(id: str | None = None) -> Iterator[str]:
    """Mark all that is done inside: events, records and log lines carry this id (default: a new one)."""
    value = new_id() if id is None else check_name("correlation id", id)
    token = _correlation.set(value)
    try:
        yield value
    finally:
        _correlation.reset(token)


@contextmanager
def reporting(report: Report) -> Iterator[None]:
    """Have `report` called by long work inside, now and then: what is done, how much of it, and of how much (0: not
    known). In this thread alone; what it raises ends the work."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


def report(doing: str, done: int, of: int) -> None:
    """Report progress to the function that `reporting` has set, if any."""
    if (call := _report.get()) is not None:
        call(doing, done, of)


def current_correlation() -> str | None:
    return _correlation.get()


def operating_system_user() -> str:
    import pwd

    name = os.environ.get("LOGNAME") or os.environ.get("USER")
    try:
        return name or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


@functools.cache
def _logger() -> Any:
    """Return the logger, asked for once: `getLogger` takes a lock that an interrupt may leave held."""
    import logging  # waits for a thread that is importing it just now

    return logging.getLogger(LOGGER)


Hear = Callable[[str, str, dict[str, Any]], None]
_hear: Hear | None = None


@contextmanager
def listening(hear: Hear) -> Iterator[None]:
    """Have `hear` called with each warning and error: its level, its words, its fields. `logging` is told only where
    the program has set that up."""
    global _hear
    before, _hear = _hear, hear
    try:
        yield
    finally:
        _hear = before


def is_logging() -> bool:
    return "logging" in sys.modules and bool(_logger().isEnabledFor(INFO))


def log_error(message: str, **fields: object) -> None:
    _tell("error", message, fields)


def log_warning(message: str, **fields: object) -> None:
    _tell("warning", message, fields)


def printable(text: str) -> str:
    """Return `text` on one line, with everything that a terminal could obey replaced by its escape."""
    return text if text.isprintable() else re.sub(UNPRINTABLE, escape, text)


def escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return {9: " ", 10: " "}.get(code) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def _tell(level: str, message: str, fields: dict[str, Any]) -> None:
    message = printable(message)
    if _hear is not None:
        _hear(level, message, fields)
    if _hear is None or ("logging" in sys.modules and _logger().hasHandlers()):
        getattr(_logger(), level)("%s", message, extra={"lastgood": fields})


def log_action(user: str, action: str, task_id: str, **more: object) -> None:
    """Log an operation, with fields for programs. Its states are control states, the previous one as stored. Outside of
    a correlation it is one of its own."""
    if not is_logging():
        return
    fields = {
        "correlation_id": current_correlation() or new_id(),
        "user_id": user,
        "task_id": task_id,
        "action": action,
        "prev_state": None,
        "new_state": None,
        "iteration_state": None,
        "timestamp": now(),
        **more,
    }
    _logger().info("%s %s", action, printable(task_id), extra={"lastgood": fields})
