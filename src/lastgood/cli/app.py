"""The group of all commands. A command's module is imported when that command runs, and not before."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from lastgood import __version__
from lastgood.cli.failure import BROKEN_PIPE, USAGE, report
from lastgood.cli.invocation import COMPLETE, Invocation, shared_options

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

GROUPS = {  # of each command the module that has it, and what it does
    "Start": {
        "init": ("setup", "Set up a store for a folder."),
        "trust": ("setup", "Trust a lastgood.toml that you did not write."),
        "completion": ("completion", "Print the completion script of a shell."),
    },
    "Save": {
        "save": ("save", "Save a checkpoint of a task's state and files."),
        "run-step": ("run", "Run a command as a step; its exit code is evidence."),
        "run": ("run", "Run a pipeline, resuming where it stopped."),
        "watch": ("watch", "Save by itself whenever files have changed."),
        "tag": ("tag", "Name a checkpoint; list or delete names."),
    },
    "Look": {
        "status": ("status", "Show the store, the task and what has changed."),
        "log": ("log", "List checkpoints, newest first."),
        "history": ("history", "List everything that happened to a task."),
        "show": ("show", "Show a checkpoint, or its state."),
        "diff": ("diff", "Compare two checkpoints, or one with the disk."),
        "ls": ("show", "List the files of a checkpoint."),
        "cat": ("show", "Print a file as it was at a checkpoint."),
        "tasks": ("status", "List tasks."),
        "steps": ("status", "List unfinished steps, or abandon one."),
    },
    "Go back": {
        "last-good": ("check", "Find the newest checkpoint whose evidence holds."),
        "restore": ("restore", "Restore a checkpoint."),
        "undo": ("restore", "Undo the last restore or switch."),
        "redo": ("restore", "Reapply the last undone restore."),
        "fork": ("branch", "Start a branch from a checkpoint."),
        "branch": ("branch", "Show the branches; switch to one, or delete it."),
    },
    "Steer": {
        "pause": ("steering", "Pause a running task at its next boundary."),
        "resume": ("steering", "Resume a paused, stopped or failed task."),
        "stop": ("steering", "Stop a running task at its next boundary."),
        "cancel": ("steering", "Stop a task, and mark its end as not good."),
        "retry": ("steering", "Retry a stopped or failed task."),
        "guide": ("steering", "Send guidance to a running task."),
        "answer": ("steering", "Answer a running task's question."),
        "edit": ("steering", "Replace the content of an artifact."),
        "rounds": ("steering", "Give a task more rounds."),
        "requests": ("steering", "List or withdraw pending requests."),
    },
    "Upkeep": {
        "verify": ("check", "Verify a checkpoint's bytes and its evidence."),
        "check": ("check", "Check the whole store for damage."),
        "repair": ("check", "Repair damaged data from intact copies."),
        "backup": ("backup", "Copy the whole store, and verify the copy."),
        "rm": ("tag", "Delete checkpoints, or bring them back."),
        "du": ("usage", "Show disk usage by task or checkpoint."),
        "collect": ("usage", "Remove data that no checkpoint needs (gc)."),
        "limit": ("usage", "Keep the store below a size."),
        "metrics": ("metrics", "Print figures of the store for Prometheus."),
        "spool": ("status", "List or replay what waits for the store."),
    },
}
COMMANDS = {name: what for group in GROUPS.values() for name, what in group.items()}

SYNONYMS = {
    "checkout": "restore",
    "commit": "save",
    "continue": "resume",
    "delete": "rm",
    "fsck": "check",
    "gc": "collect",
    "list": "log",
    "prune": "limit",
    "quota": "limit",
    "revert": "restore",
    "rewind": "restore",
    "rollback": "restore",
    "snapshot": "save",
    "switch": "branch --switch",
}
"""What other tools call it."""


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
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<10}", text) for name, (_, text) in group.items()])
        formatter.write_paragraph()
        formatter.write_text("Run `lastgood COMMAND --help` for a command's options, with examples.")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *rest = args
        if ctx.resilient_parsing:  # a shell asks what could be typed next
            return super().resolve_command(ctx, args)
        if name == "version":
            _print_version(ctx, True)
        if name == "help":
            if not rest:
                click.echo(self.get_help(ctx))
                ctx.exit()
            name, rest = rest[0], ["--help"]
        if name not in COMMANDS:
            raise click.UsageError(_unknown(name), ctx)
        return super().resolve_command(ctx, [name, *rest])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        named = [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]
        return named + click.Command.shell_complete(self, ctx, incomplete)

    def _main_shell_completion(self, ctx_args: Any, prog_name: str, complete_var: str | None = None) -> None:
        if (instruction := os.environ.get(COMPLETE)) is not None:
            from lastgood.cli.shells import answer

            sys.exit(answer(self, ctx_args, instruction))

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
        call.arguments = arguments
        for stream in (sys.stdout, sys.stderr):
            if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
                reconfigure(errors="backslashreplace")
        extra = {**extra, "standalone_mode": False, "obj": call}
        try:
            with call.alerts.listening():
                code = super().main(arguments, "lastgood", **extra)
        except Exception as error:
            own = arguments[: arguments.index("--")] if "--" in arguments else arguments
            call.json = call.json or "--json" in own
            code = report(error, call, call.interrupted)
        sys.exit(code if isinstance(code, int) else 0)


def _unknown(name: str) -> str:
    """Return that there is no such command, and which may have been meant."""
    from difflib import get_close_matches

    close = [SYNONYMS[name]] if name in SYNONYMS else get_close_matches(name, COMMANDS, 1)
    meant = f"; did you mean `lastgood {close[0]}`?" if close else ""
    return f"there is no command {name[:80]!r}{meant}"


app = App(
    name="lastgood",
    context_settings={"help_option_names": ["-h", "--help"]},
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
    if wanted and not ctx.resilient_parsing:
        click.echo(f"lastgood {__version__}")
        ctx.exit()
