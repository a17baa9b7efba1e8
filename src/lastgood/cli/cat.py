"""`lastgood cat`"""

from __future__ import annotations

import sys

import click

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import json_text, printable_lines
from lastgood.errors import InvalidError


@subcommand
@click.argument("file", metavar="CHECKPOINT:PATH")
def command(call: Invocation, file: str) -> None:
    """Print the file PATH as it was at CHECKPOINT (empty: HEAD), byte by byte; of a link, where it points.

    On a terminal control characters are escaped.
    """
    name, path = split_name(file)
    if not path:
        raise InvalidError("cat takes CHECKPOINT:PATH", hint="as in `lastgood cat HEAD~1:src/app.py`")
    with call.open() as store:
        checkpoint = store.find_checkpoint(name, call.task_id(), owner=call.owner)
        if call.json:
            content = store.read_file(checkpoint.id, path, owner=call.owner)
            click.echo(json_text({"checkpoint_id": checkpoint.id, "path": path, "content": content}))
        elif sys.stdout.isatty():
            content = store.read_file(checkpoint.id, path, owner=call.owner)
            click.echo(printable_lines(content.decode("utf-8", "backslashreplace")), nl=False)
        else:
            for piece in store.stream_file(checkpoint.id, path, owner=call.owner):
                click.echo(piece, nl=False)


def split_name(text: str) -> tuple[str, str]:
    """`HEAD~1:src/app.py` as the name of a checkpoint and a path; without a colon there is no path."""
    name, _, path = text.partition(":")
    return name or "HEAD", path
