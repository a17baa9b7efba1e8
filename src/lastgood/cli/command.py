"""What all commands have in common: the options that may stand before or after a command's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from lastgood.cli.invocation import Invocation


def shared_options() -> list[click.Parameter]:
    return [
        click.Option(["--store"], metavar="PATH", help="The store to use.", expose_value=False, callback=_remember),
        click.Option(["--task"], metavar="ID", help="The task, or a branch.", expose_value=False, callback=_remember),
        click.Option(["--user"], metavar="NAME", help="Who acts.", expose_value=False, callback=_remember),
        click.Option(["--owner"], metavar="NAME", help="Whose task it is.", expose_value=False, callback=_remember),
        click.Option(
            ["--json"], is_flag=True, help="Print JSON.", expose_value=False, is_eager=True, callback=_remember
        ),
    ]


class Command(click.Command):
    def __init__(self, name: str | None, **more: Any) -> None:
        super().__init__(name, **more)
        self.params += shared_options()


def subcommand(function: Callable[..., Any]) -> Command:
    """A command named after its module; its function takes the `Invocation` first."""
    name = function.__module__.rpartition(".")[2].replace("_", "-")
    return click.command(name, cls=Command)(click.pass_obj(function))


def _remember(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    if value is not None and value is not False:
        setattr(ctx.ensure_object(Invocation), option.name or "", value)
