"""Requests to the work on a task, whichever process runs it: what the commands that make them have in common."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from lastgood.cli.completion import complete_tasks
from lastgood.cli.failure import NOT_YET
from lastgood.cli.input import span
from lastgood.cli.invocation import Invocation, SharedCommand, named
from lastgood.cli.output import print_result, printable, say
from lastgood.errors import ControlError
from lastgood.views.document import compose

if TYPE_CHECKING:
    from lastgood import Control, RequestResult

POLL_SECONDS = 0.2
"""How often a request is polled: as often as work that waits polls for requests."""
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


class RequestCommand(SharedCommand):
    """A command with --wait, whose span of time may be left out, and --id."""

    def __init__(self, name: str | None, **more: Any) -> None:
        super().__init__(name, **more)
        wait = click.Option(
            ["--wait"],
            metavar="[SPAN]",
            is_flag=False,
            flag_value=WITHOUT_END,
            callback=lambda ctx, param, value: None if value is None else span(ctx, param, value),
            help="Wait until it is done, at most for SPAN: 90s, 5m.",
        )
        help_ = "The id of the request: asking again with it changes nothing."
        self.params[-5:-5] = [wait, click.Option(["--id", "request_id"], metavar="ID", help=help_)]


def subcommand_that_asks(function: Callable[..., Any]) -> SharedCommand:
    """As `subcommand`; its function also takes `wait` and `request_id`."""
    return named(function, RequestCommand)


def task_argument(*, required: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add TASK, which stands for --task; comes as `work`, for `name_task`."""
    return click.argument(
        "work", required=required, metavar="TASK" if required else "[TASK]", shell_complete=complete_tasks
    )


def name_task(call: Invocation, task: str | None) -> str:
    """Return the task that was named in either way, else that of the current folder."""
    if task is not None and call.task not in (None, task):
        raise click.UsageError(f"TASK is {task!r}, and --task {call.task!r}: name one")
    call.task = task if task is not None else call.task
    return call.task_id()


def ask(call: Invocation, task: str | None, request: Callable[[Control], RequestResult], wait: float | None) -> None:
    """Make a request, wait if that is wanted, and print what came of it. ControlError when it was refused."""
    name = name_task(call, task)
    with call.open_to_work() as store:
        control = store.task(name, owner=call.owner).control
        report_result(call, name, control, request(control), wait)


def report_result(call: Invocation, task: str, control: Control, asked: RequestResult, wait: float | None) -> None:
    """Wait for a request if that is wanted, and print what came of it; end the command when it was waited in vain."""
    asked = asked if wait is None else _wait_for(call, control, asked, wait)
    request, state = asked.request, control.state
    if request is not None and request.status == "refused":
        raise ControlError(asked.note, hint=f"`lastgood status --task {task}` says where the work stands")
    print_result(call, compose(asked, task_id=task, run_control_state=state), [_sentence(task, state, asked)])
    if request is not None and request.status == "open":
        say(call, f"request {request.id}; `lastgood requests` lists it, --wait waits for it")
        if wait is not None:
            click.get_current_context().exit(NOT_YET)


def _wait_for(call: Invocation, control: Control, asked: RequestResult, seconds: float) -> RequestResult:
    """Return what came of a request after so long at most."""
    request = asked.request
    if request is None or request.status != "open":
        return asked
    if not asked.alive:
        say(call, asked.note)
    end = time.monotonic() + seconds
    try:
        while _is_open(asked) and (left := end - time.monotonic()) > 0:
            time.sleep(min(POLL_SECONDS, left))
            asked = control.again(request)
    except KeyboardInterrupt:
        say(call, f"not waited for any longer; it is still asked for (`lastgood requests --withdraw {request.id}`)")
        raise
    return asked


def _is_open(asked: RequestResult) -> bool:
    return asked.request is not None and asked.request.status == "open"


def _sentence(task: str, state: str, asked: RequestResult) -> str:
    from lastgood.model.checkpoint import describe

    if asked.request is None:
        return asked.note
    if not asked.fulfilled:
        return f"{printable(task)}: asked to {asked.request.kind}; {asked.note}"
    done, now = DONE[asked.request.kind], describe(state)
    return f"{printable(task)} is {now}" if done == now else f"{printable(task)}: {done}; it is {now} now"
