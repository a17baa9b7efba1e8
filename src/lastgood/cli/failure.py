"""The one place where an error becomes a message on stderr and an exit code."""

from __future__ import annotations

import click

from lastgood.cli.output import json_text, printable, styled
from lastgood.errors import CheckpointError, UnavailableError

FAILED, USAGE, PARTLY, NOT_YET, STOPPED, INTERRUPTED, BROKEN_PIPE = 1, 2, 10, 11, 12, 130, 141


def report(error: Exception, *, as_json: bool) -> int:
    """Say what went wrong; the exit code. What is not meant for people is raised again."""
    if isinstance(error, click.Abort):
        return INTERRUPTED
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "lastgood"
        return _say("usage", error.format_message(), f"`{command} --help` says more", USAGE, as_json)
    if isinstance(error, CheckpointError):
        return _say(error.code, str(error), error.hint, error.exit_code, as_json)
    if isinstance(error, OSError):
        detail = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return _say(
            UnavailableError.code, detail, "look at the path and its permissions", UnavailableError.exit_code, as_json
        )
    raise error


def _say(code: str, detail: str, hint: str | None, exit_code: int, as_json: bool) -> int:
    if as_json:
        click.echo(json_text({"error": {"code": code, "detail": detail, "hint": hint}}), err=True)
    else:
        click.echo(f"{styled('error:', err=True, fg='red')} {printable(detail)}", err=True)
        if hint:
            click.echo(f"hint: {printable(hint)}", err=True)
    return exit_code
