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


class CommandWithPaths(Command):
    """What stands after `--` are paths, and nothing else: they come as `paths`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, paths = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
        rest = super().parse_args(ctx, own)
        ctx.params["paths"] = tuple(paths)
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PATH...]"]


def subcommand(function: Callable[..., Any]) -> Command:
    """A command named after its module; its function takes the `Invocation` first."""
    return named(function, Command)


def subcommand_with_paths(function: Callable[..., Any]) -> Command:
    """As `subcommand`, with paths after `--`."""
    return named(function, CommandWithPaths)


def workspace_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a command that works with the files of a task."""
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


def named(function: Callable[..., Any], kind: type[Command]) -> Command:
    """A command of that kind, named after its module."""
    name = function.__module__.rpartition(".")[2].replace("_", "-")
    return click.command(name, cls=kind)(click.pass_obj(function))


def _remember(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    if value is not None and value is not False:
        setattr(ctx.ensure_object(Invocation), option.name or "", value)
