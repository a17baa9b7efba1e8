"""The group of all commands. A command's module is imported when that command runs, and not before."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from lastgood import __version__
from lastgood.cli.failure import BROKEN_PIPE, USAGE, report
from lastgood.cli.invocation import Invocation, shared_options

COMMANDS = {  # the module that has it, and what it does
    "init": ("setup", "Set up a store in a folder."),
    "save": ("save", "Save a checkpoint of a task's state and files."),
    "run-step": ("run", "Run a command as a step: its exit code becomes evidence."),
    "run": ("run", "Run a pipeline on a task, from where it stands."),
    "log": ("log", "List a task's checkpoints, newest first."),
    "history": ("history", "List all that happened to a task, newest first."),
    "show": ("show", "Show one checkpoint, or its state."),
    "diff": ("diff", "Compare two checkpoints, or one with the files on disk."),
    "ls": ("show", "List the files of a checkpoint."),
    "cat": ("show", "Print a file as it was at a checkpoint."),
    "tag": ("tag", "Name a checkpoint, list or delete names."),
    "verify": ("check", "Check stored bytes, and evidence."),
    "check": ("check", "Check the whole store, and say what is damaged."),
    "last-good": ("check", "Find the newest checkpoint that is good."),
    "restore": ("restore", "Go back to a checkpoint."),
    "undo": ("restore", "Take back the last restore or switch."),
    "redo": ("restore", "Do again what undo took back."),
    "fork": ("branch", "Begin a branch; everything else stays as it is."),
    "branch": ("branch", "Draw the tree of branches; switch, delete."),
    "pause": ("steering", "Pause work at its next boundary."),
    "resume": ("steering", "Let paused, stopped or failed work go on."),
    "stop": ("steering", "End work at its next boundary."),
    "cancel": ("steering", "End work, and mark what there is as not good."),
    "retry": ("steering", "Try stopped or failed work again."),
    "guide": ("steering", "Send guidance to a running task."),
    "answer": ("steering", "Answer what work has asked; or show what it asks."),
    "edit": ("steering", "Replace what an artifact holds."),
    "rounds": ("steering", "Give work more rounds."),
    "requests": ("steering", "List what was asked of work; take it back."),
    "steps": ("status", "List steps that are open; give one up."),
    "rm": ("tag", "Delete checkpoints, or bring them back."),
    "tasks": ("status", "List tasks."),
    "du": ("usage", "Show disk usage by task or checkpoint."),
    "collect": ("usage", "Remove what no checkpoint needs any more (gc)."),
    "limit": ("usage", "Keep the store small: the oldest checkpoints go."),
    "spool": ("status", "List what waits for a store that was away; bring it there."),
    "status": ("status", "Say where the store is and where the task stands."),
    "repair": ("check", "Repair damaged data from intact copies."),
    "completion": ("completion", "Print the completion script of a shell."),
}


class App(click.Group):
    """The group. It imports a command when it is named, and turns every error into an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"lastgood.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(self.get_help(ctx), err=True)
            ctx.exit(USAGE)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(BROKEN_PIPE)

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        """Run, and end the process with the exit code that docs/reference/command-line.md names."""
        arguments = list(sys.argv[1:] if args is None else args)
        call = Invocation()
        for stream in (sys.stdout, sys.stderr):
            if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
                reconfigure(errors="backslashreplace")
        extra = {**extra, "standalone_mode": False, "obj": call}
        try:
            with call.alerts.listening():
                code = super().main(arguments, "lastgood", **extra)
        except Exception as error:
            own = arguments[: arguments.index("--")] if "--" in arguments else arguments
            code = report(error, as_json=call.json or "--json" in own)
        sys.exit(code if isinstance(code, int) else 0)


app = App(
    name="lastgood",
    help="Checkpoints for AI agents and long-running work.",
    params=[
        *shared_options(),
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=lambda ctx, param, value: _print_version(ctx, value),
            help="Show the version.",
        ),
    ],
    no_args_is_help=False,
)


def _print_version(ctx: click.Context, wanted: bool) -> None:
    if wanted:
        click.echo(f"lastgood {__version__}")
        ctx.exit()
