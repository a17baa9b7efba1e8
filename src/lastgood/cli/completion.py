"""`lastgood completion`"""

from __future__ import annotations

import click

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer


@subcommand
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(call: Invocation, shell: str) -> None:
    """Print the completion script of SHELL; `eval "$(lastgood completion bash)"` turns it on."""
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None, "click knows all three"
    root = click.get_current_context().find_root().command
    script = complete(root, {}, "lastgood", "_LASTGOOD_COMPLETE").source()
    answer(call, {"shell": shell, "script": script}, [script])
