"""`lastgood redo`"""

from __future__ import annotations

from lastgood.cli.command import subcommand, workspace_options
from lastgood.cli.invocation import Invocation
from lastgood.cli.undo import move
from lastgood.task import Task


@subcommand
@workspace_options
def command(call: Invocation) -> None:
    """Do again what `lastgood undo` took back. A save, a restore or a switch in between ends that."""
    move(call, "redone", Task.redo)
