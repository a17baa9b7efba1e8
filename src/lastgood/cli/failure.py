"""Errors as messages on stderr and exit codes; the question before something that cannot be undone."""

from __future__ import annotations

import re
import sys
from shlex import quote

import click

from lastgood.cli.output import Format, json_text, printable, say, styled
from lastgood.errors import (
    CheckpointError,
    DiskFullError,
    EvidenceError,
    FolderTakenError,
    IntegrityError,
    InvalidError,
    UnavailableError,
)

FAILED, USAGE, PARTLY, NOT_YET, STOPPED, INTERRUPTED, BROKEN_PIPE = 1, 2, 10, 11, 12, 130, 141

_COMMANDS = (
    (r"store\.tasks\(\)", "`lastgood tasks`"),
    (r"store\.list_checkpoints\(task_id\)", "`lastgood log`"),
    (r"store\.list_files\(checkpoint_id\)", "`lastgood ls`"),
    (r"store\.check_checkpoint\(id\)", "`lastgood verify --all`"),
    (r"store\.check\(\)", "`lastgood check`"),
    (r"store\.check\(read_data=True\)", "`lastgood check --read-data`"),
    (r"store\.repair\(\)", "`lastgood repair`"),
    (r"store\.repair\(accept_loss=True\)", "`lastgood repair --accept-loss`"),
    (r"store\.replay\(\)", "`lastgood spool --replay`"),
    (r"store\.replay\(discard=True\)", "`lastgood spool --discard`"),
    (r"store\.spool_figures\(\)", "`lastgood spool`"),
    (r"store\.abandon_step\('([^']+)'\)", r"`lastgood steps --abandon \1`"),
    (r"store\.task\('([^']+)'\)", r"--task \1"),
    (r"\bowner='([^']+)'", r"--owner \1"),
    (r"\baccept_loss=True", "--accept-loss"),
    (r"\bmove=True", "--move"),
    (r"task\.branches\(\)", "`lastgood branch`"),
    (r"look at error\.head, then task\.refresh\(\) and try again on top of it", "run the command again"),
    (r"task\.refresh\(\) goes on", "the next command goes on"),
    (r"ask `if task\.head` first", "`lastgood save` makes the first"),
    (r"store\.task\(…, workspace=folder\)", "--workspace DIR"),
    (r"store\.undelete_checkpoint\('([^']+)'\)", r"`lastgood rm --undo \1`"),
    (r", or lastgood\.register\(\) the class with to_plain and from_plain", ""),
    (r'\bwhat="(\w+)"', r"--what \1"),
    (r"begin (the|a) session with restart=True", "give the same `lastgood run` --restart"),
    (r"open the task with that workspace", "run `lastgood restore HEAD --dry-run` there"),
    (r"\brestart=True", "--restart"),
    (r"task\.last_good\(any=True\)", "`lastgood last-good --any`"),
    (r"task\.recovery\(\)", "`lastgood status`"),
    (r"task\.head\.artifacts", "`lastgood show`"),
    (r"task\.restore\('([^']+)'\)", r"`lastgood restore \1`"),
    (r"task\.control\.question", "`lastgood status`"),
    (r"task\.control\.(stop|retry)\(\)", r"`lastgood \1`"),
    (r"task\.control\.add_rounds\(1\)", "`lastgood rounds`"),
)
"""Calls that the library's hints name, and the commands that do the same."""


def report(error: Exception, call: Format, interrupted: str = "") -> int:
    """Print what went wrong, and return the exit code. What is not meant for people is raised again.

    `interrupted`: what is true after Ctrl-C.
    """
    if isinstance(error, click.Abort):
        said = call.complete(f"interrupted; {interrupted}" if interrupted else "interrupted")
        if call.json:
            return _print("interrupted", said, None, INTERRUPTED, call)
        click.echo(printable(said), err=True)
        return INTERRUPTED
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "lastgood"
        return _print("usage", error.format_message(), f"Run `{command} --help` for usage.", USAGE, call)
    if isinstance(error, CheckpointError):
        return _print(error.code, str(error), _hint(error, call), error.exit_code, call)
    if isinstance(error, OSError):
        detail = f"{error.filename}: {error.strerror}"
        hint = "look at the path and its permissions"
        if not error.filename:  # errors of the store are CheckpointErrors
            detail = f"the output could not be written: {(error.strerror or str(error)).lower()}"
            hint = "the command may have done its work: `lastgood status` shows that"
        return _print(UnavailableError.code, detail, hint, UnavailableError.exit_code, call)
    raise error


def _hint(error: CheckpointError, call: Format) -> str | None:
    """Return what to do about it in the words of the command line, where those of the library are others."""
    if isinstance(error, DiskFullError) and (room := call.room()):
        return f"free some space: {room}"
    if isinstance(error, FolderTakenError):
        if call.switch:
            return f"{call.switch} makes the files those of this branch; --no-files saves without files"
        branch = quote(error.details["branch_id"])
        return f"`lastgood branch --switch {branch} --no-files` goes to that branch and leaves the files as they are"
    if "folders" in error.details:
        return "give --workspace DIR, or go into the folder; --no-files leaves files alone"
    if isinstance(error, EvidenceError):
        return "`lastgood restore last-good` restores the last good one; --override-evidence restores this one anyway"
    if isinstance(error, IntegrityError) and error.details.get("problems"):
        name = quote(error.details["checkpoint_id"])
        whole = f"`lastgood restore {name} --skip-damaged` restores what is whole"
        return f"{whole}; `lastgood restore last-good` another one"
    return None if error.hint is None else in_commands(error.hint)


def in_commands(text: str) -> str:
    """Return what the library advises with its calls as commands."""
    for call, command in _COMMANDS:
        for found in re.finditer(call, text):
            text = text.replace(found[0], command.replace(r"\1", quote("".join(found.groups()))))
    return text


def confirm(call: Format, what: str, named: str, yes: bool) -> None:
    """Ask whether to do `what`, which cannot be undone; `named` was typed to get here. A no ends the command."""
    if yes:
        return
    if not can_ask():
        raise InvalidError(f"{named} cannot be undone, and there is no terminal to ask on", hint="add --yes")
    if not click.confirm(f"{what}?", err=True):
        say(call, "nothing was changed")
        click.get_current_context().exit(FAILED)


def can_ask() -> bool:
    """Whether there is a terminal to ask on."""
    return sys.stdin.isatty()


def _print(code: str, detail: str, hint: str | None, exit_code: int, call: Format) -> int:
    hint = None if hint is None else call.complete(hint)
    if call.json:
        click.echo(json_text({"error": {"code": code, "detail": detail, "hint": hint}}), err=True)
    else:
        click.echo(f"{styled('error:', err=True, fg='red')} {printable(detail)}", err=True)
        if hint:
            click.echo(f"hint: {printable(hint)}", err=True)
    return exit_code
