"""Asking before something is done that cannot be undone."""

from __future__ import annotations

import sys

import click

from lastgood.cli.failure import FAILED
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import say
from lastgood.errors import InvalidError


def confirm(call: Invocation, what: str, named: str, yes: bool) -> None:
    """Ask whether to do `what`; `named` is what was typed to get here. A no ends the command."""
    if yes:
        return
    if not can_ask():
        raise InvalidError(f"{named} cannot be undone, and there is no terminal to ask on", hint="add --yes")
    if not click.confirm(f"{what}?", err=True):
        say(call, "nothing was removed")
        click.get_current_context().exit(FAILED)


def can_ask() -> bool:
    return sys.stdin.isatty()
