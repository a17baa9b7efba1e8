"""`lastgood backup`"""

from __future__ import annotations

import click

from lastgood.cli.invocation import ANY_PATH, Invocation, subcommand
from lastgood.cli.output import counted, counting, path_text, print_result, size_text


@subcommand
@click.argument("to", metavar="DIR", type=ANY_PATH)
def backup(call: Invocation, to: str) -> None:
    """Copy the whole store to the new folder DIR, and verify the copy.

    Others may save meanwhile. `lastgood --store DIR log` works with the copy as with any store.
    """
    with call.open() as store, counting(call, "backing up") as stage:
        made = store.backup(to, progress=stage)
    view = {"path": str(made.path), "checkpoints": made.checkpoints, "size": made.size}
    what = f"{counted(made.checkpoints, 'checkpoint')} ({size_text(made.size)})"
    print_result(call, view, [f"backed up {what} to {path_text(to)}", "every byte of the copy was verified"])
