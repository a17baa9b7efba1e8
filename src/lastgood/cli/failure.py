"""Errors as messages on stderr and exit codes; the question before something that cannot be undone."""

from __future__ import annotations

import sys

import click

from lastgood.cli.output import Format, json_text, printable, say, styled
from lastgood.errors import CheckpointError, EvidenceError, FolderTakenError, InvalidError, UnavailableError

FAILED, USAGE, PARTLY, NOT_YET, STOPPED, INTERRUPTED, BROKEN_PIPE = 1, 2, 10, 11, 12, 130, 141


def report(error: Exception, *, as_json: bool) -> int:
    """Print what went wrong, and return the exit code. What is not meant for people is raised again."""
    if isinstance(error, click.Abort):
        return INTERRUPTED
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "lastgood"
        return _print("usage", error.format_message(), f"Run `{command} --help` for usage.", USAGE, as_json)
    if isinstance(error, CheckpointError):
        return _print(error.code, str(error), _hint(error), error.exit_code, as_json)
    if isinstance(error, OSError):
        detail = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        hint = "look at the path and its permissions"
        return _print(UnavailableError.code, detail, hint, UnavailableError.exit_code, as_json)
    raise error


def _hint(error: CheckpointError) -> str | None:
    """Return what to do about it in the words of the command line, where those of the library are others."""
    if isinstance(error, FolderTakenError):
        return (
            f"`lastgood branch --switch` changes the files, too; `--task {error.details['branch_id']}` works on the "
            "branch they are of; --no-files saves without files"
        )
    if isinstance(error, EvidenceError):
        return "`lastgood last-good` finds one that is good; --override-evidence goes back to this one all the same"
    return error.hint


def confirm(call: Format, what: str, named: str, yes: bool) -> None:
    """Ask whether to do `what`; `named` is what was typed to get here. A no ends the command."""
    if yes:
        return
    if not can_ask():
        raise InvalidError(f"{named} cannot be undone, and there is no terminal to ask on", hint="add --yes")
    if not click.confirm(f"{what}?", err=True):
        say(call, "nothing was removed")
        click.get_current_context().exit(FAILED)


def can_ask() -> bool:
    """Whether there is a terminal to ask on."""
    return sys.stdin.isatty()


def _print(code: str, detail: str, hint: str | None, exit_code: int, as_json: bool) -> int:
    if as_json:
        click.echo(json_text({"error": {"code": code, "detail": detail, "hint": hint}}), err=True)
    else:
        click.echo(f"{styled('error:', err=True, fg='red')} {printable(detail)}", err=True)
        if hint:
            click.echo(f"hint: {printable(hint)}", err=True)
    return exit_code
