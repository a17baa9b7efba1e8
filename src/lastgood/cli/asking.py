"""Requests to the work on a task, whichever process runs it: what the commands that make them have in common."""

from __future__ import annotations

import time
from collections.abc import Callable
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from lastgood.cli.failure import NOT_YET
from lastgood.cli.input import span
from lastgood.cli.invocation import Invocation, SharedCommand, named, shared_options
from lastgood.cli.output import print_result, printable, say, short_id
from lastgood.errors import ControlError
from lastgood.views.document import compose

if TYPE_CHECKING:
    from lastgood import Control
    from lastgood.types import RequestResult

POLL_SECONDS = 0.2
"""How often a request is polled: as often as work that waits polls for requests."""
WITHOUT_END = "100w"
DONE = {
    "pause": "paused",
    "resume": "resumed",
    "stop": "stopped",
    "cancel": "cancelled",
    "retry": "retried",
    "rounds": "given more rounds",
    "guide": "guided",
    "edit": "edited",
    "answer": "answered",
    "restore": "restored",
}

SENT = {"guide": "Guidance sent", "answer": "Answer sent", "edit": "Edit sent", "rounds": "More rounds sent"}


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
        help_ = "Id of the request; the same id again changes nothing."
        own = len(self.params) - len(shared_options())
        self.params[own:own] = [wait, click.Option(["--id", "request_id"], metavar="ID", help=help_)]


def subcommand_that_asks(function: Callable[..., Any]) -> SharedCommand:
    """As `subcommand`; its function also takes `wait` and `request_id`."""
    return named(function, RequestCommand)


def ask(call: Invocation, request: Callable[[Control], RequestResult], wait: float | None) -> None:
    """Make a request, wait if that is wanted, and print what came of it. ControlError when it was refused."""
    with call.open_to_work() as store:
        name = call.task_id()
        control = store.task(name, owner=call.owner).control
        report_result(call, name, control, request(control), wait)


def report_result(call: Invocation, task: str, control: Control, asked: RequestResult, wait: float | None) -> None:
    """Wait for a request if that is wanted, and print what came of it; end the command when it was waited in vain."""
    asked = asked if wait is None else _wait_for(call, control, asked, wait)
    request, state = asked.request, control.state
    if request is not None and request.status == "refused":
        raise ControlError(asked.note, hint=f"`lastgood status --task {quote(task)}` shows the work")
    print_result(call, compose(asked, task_id=task, run_control_state=state), [_sentence(task, state, asked)])
    if request is not None and request.status == "open":
        say(call, f"request {short_id(request.id)}; `lastgood requests` lists it, --wait waits for it")
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
        call.interrupted = f"the request stays open; `lastgood requests --withdraw {quote(request.id)}` withdraws it"
        raise
    return asked


def _is_open(asked: RequestResult) -> bool:
    return asked.request is not None and asked.request.status == "open"


def _sentence(task: str, state: str, asked: RequestResult) -> str:
    from lastgood.model.checkpoint import describe

    if asked.request is None:
        return asked.note
    if not asked.fulfilled:
        sent = SENT.get(asked.request.kind, f"Request to {asked.request.kind} sent")
        if asked.request.status == "open" and asked.alive:
            verb = "see it" if asked.request.kind in SENT else asked.request.kind
            return f"{sent}; {printable(task)} will {verb} at its next boundary"
        return f"{sent}; {asked.note}"
    done, now = DONE[asked.request.kind], describe(state)
    return f"{printable(task)} is {now}" if done == now else f"{printable(task)} was {done}, and is {now} now"
