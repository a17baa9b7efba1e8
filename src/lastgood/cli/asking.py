"""Asking something of work, whichever process runs it: what the commands for that have in common."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from lastgood.cli.command import Command, named
from lastgood.cli.completing import complete_tasks
from lastgood.cli.failure import NOT_YET
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, printable, say
from lastgood.cli.quantity import is_span, span
from lastgood.errors import ControlError

if TYPE_CHECKING:
    from lastgood.model.request import Request
    from lastgood.work.control import Control, RequestResult

POLL_SECONDS = 0.2
"""So often it is looked whether a request is met: as often as work that waits looks for requests."""
WITHOUT_END = "100w"
DONE = {
    "pause": "paused",
    "resume": "resumed",
    "stop": "stopped",
    "cancel": "cancelled",
    "retry": "set going again",
    "rounds": "given more rounds",
    "guide": "guided",
    "edit": "edited",
    "answer": "answered",
    "restore": "restored",
}


class CommandThatAsks(Command):
    """With --wait and --id. What stands after --wait belongs to it only if it is a span of time."""

    def __init__(self, name: str | None, **more: Any) -> None:
        super().__init__(name, **more)
        self.params[-5:-5] = [wait_option(), click.Option(["--id", "request_id"], metavar="ID", help=_ID_HELP)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, complete_wait(args))


_ID_HELP = "The id of the request: asking again with it changes nothing."


def subcommand_that_asks(function: Callable[..., Any]) -> Command:
    """As `subcommand`; its function also takes `wait` and `request_id`."""
    return named(function, CommandThatAsks)


def wait_option() -> click.Option:
    return click.Option(
        ["--wait"],
        metavar="[SPAN]",
        callback=lambda ctx, param, value: None if value is None else span(ctx, param, value),
        help="Wait until it is done, at most for SPAN: 90s, 5m.",
    )


def complete_wait(args: list[str]) -> list[str]:
    """The arguments of a command, with a span after each --wait that has none."""
    own = args.index("--") if "--" in args else len(args)
    told: list[str] = []
    for index, word in enumerate(args):
        alone = word == "--wait" and not (index + 1 < own and is_span(args[index + 1]))
        told += ["--wait", WITHOUT_END] if alone and index < own else [word]
    return told


def task_argument(*, required: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """TASK, which stands for --task; comes as `work`, for `name_task`."""
    return click.argument(
        "work", required=required, metavar="TASK" if required else "[TASK]", shell_complete=complete_tasks
    )


def name_task(call: Invocation, task: str | None) -> str:
    """The task that was named in either way, else that of the folder one stands in."""
    if task is not None and call.task not in (None, task):
        raise click.UsageError(f"TASK is {task!r}, and --task {call.task!r}: name one")
    call.task = task if task is not None else call.task
    return call.task_id()


def ask(call: Invocation, task: str | None, wish: Callable[[Control], RequestResult], wait: float | None) -> None:
    """Ask it, wait if that is wanted, and say what came of it. ControlError when it was refused."""
    name = name_task(call, task)
    with call.open_to_work() as store:
        control = store.task(name, owner=call.owner).control
        settle(call, name, control, wish(control), wait)


def settle(call: Invocation, task: str, control: Control, asked: RequestResult, wait: float | None) -> None:
    """What a command does with what it asked."""
    tell(call, task, control, wait_for(call, control, asked, wait), waited=wait is not None)


def wait_for(call: Invocation, control: Control, asked: RequestResult, seconds: float | None) -> RequestResult:
    """What came of it after so long at most; None: by now."""
    if seconds is None or not _is_open(asked):
        return asked
    request = asked.request
    assert request is not None, "it is open"
    if not asked.alive:
        say(call, asked.note)
    end = time.monotonic() + seconds
    try:
        while _is_open(asked) and (left := end - time.monotonic()) > 0:
            time.sleep(min(POLL_SECONDS, left))
            asked = control.again(request)
    except KeyboardInterrupt:
        say(
            call,
            f"not waited for any longer; it is still asked for (`lastgood requests --withdraw {request.id}`)",
        )
        raise
    return asked


def tell(call: Invocation, task: str, control: Control, asked: RequestResult, *, waited: bool) -> None:
    """The answer of a command that asked; ends the command when it was waited for in vain."""
    require_not_refused(task, asked)
    request = asked.request
    state = control.state
    data = {
        "task": task,
        "control_state": state,
        "met": asked.fulfilled,
        "alive": asked.alive,
        "note": asked.note,
        "request": request and described(request),
    }
    answer(call, data, [_sentence(task, state, asked)])
    if request is not None and _is_open(asked):
        say(call, f"request {request.id}; `lastgood requests` lists it, --wait waits for it")
        if waited:
            click.get_current_context().exit(NOT_YET)


def require_not_refused(task: str, asked: RequestResult) -> None:
    """ControlError, with the reason."""
    if asked.request is not None and asked.request.status == "refused":
        raise ControlError(asked.note, hint=f"`lastgood status --task {task}` says where the work stands")


def described(request: Request) -> dict[str, Any]:
    """For programs."""
    from lastgood.cli.summary import moment_text
    from lastgood.model.identity import moment

    return {
        "id": request.id,
        "branch_id": request.branch_id,
        "kind": request.kind,
        "data": request.data,
        "at": moment_text(moment(request.at)),
        "actor": request.actor,
        "correlation_id": request.correlation_id,
        "status": request.status,
        "ended_at": None if request.ended_at is None else moment_text(moment(request.ended_at)),
        "outcome": request.outcome,
    }


def _is_open(asked: RequestResult) -> bool:
    return asked.request is not None and asked.request.status == "open"


def _sentence(task: str, state: str, asked: RequestResult) -> str:
    from lastgood.model.control import describe

    if asked.request is None:
        return asked.note
    if asked.fulfilled:
        return f"{printable(task)}: {DONE[asked.request.kind]}; it is {describe(state)} now"
    return f"{printable(task)}: asked to {asked.request.kind}; {asked.note}"
