"""Commands and the options that they share, which may stand before or after a command's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from lastgood.cli.invocation import Invocation


def shared_options() -> list[click.Parameter]:
    """Return the options of every command."""
    return [
        click.Option(["--store"], metavar="PATH", help="The store to use.", expose_value=False, callback=_remember),
        click.Option(["--task"], metavar="ID", help="The task, or a branch.", expose_value=False, callback=_remember),
        click.Option(["--user"], metavar="NAME", help="Who acts.", expose_value=False, callback=_remember),
        click.Option(["--owner"], metavar="NAME", help="Whose task it is.", expose_value=False, callback=_remember),
        click.Option(
            ["--json"], is_flag=True, help="Print JSON.", expose_value=False, is_eager=True, callback=_remember
        ),
    ]


class SharedCommand(click.Command):
    """A command that takes the shared options."""

    def __init__(self, name: str | None, **more: Any) -> None:
        super().__init__(name, **more)
        self.params += shared_options()


class CommandWithPaths(SharedCommand):
    """A command that takes paths after `--`, and nothing else there: they come as `paths`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, paths = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
        rest = super().parse_args(ctx, own)
        ctx.params["paths"] = tuple(paths)
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PATH...]"]


def subcommand(function: Callable[..., Any]) -> SharedCommand:
    """Make a command of a function, named after it; the function takes the `Invocation` first."""
    return named(function, SharedCommand)


def subcommand_with_paths(function: Callable[..., Any]) -> SharedCommand:
    """As `subcommand`, with paths after `--`."""
    return named(function, CommandWithPaths)


def workspace_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that works with the files of a task."""
    options = (
        click.Option(
            ["--workspace"],
            multiple=True,
            metavar="[NAME=]DIR",
            help="The folder of the task's files; several have names.",
            expose_value=False,
            callback=_remember,
        ),
        click.Option(["--no-files"], is_flag=True, help="Leave files alone.", expose_value=False, callback=_remember),
    )
    declared = function.__dict__.setdefault("__click_params__", [])
    declared.extend(reversed(options))
    return function


def named(function: Callable[..., Any], kind: type[SharedCommand]) -> SharedCommand:
    """Make a command of that kind, named after the function."""
    return click.command(function.__name__.replace("_", "-"), cls=kind)(click.pass_obj(function))


def _remember(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    if value is not None and value is not False:
        setattr(ctx.ensure_object(Invocation), option.name or "", value)
