"""Commands that steer the work on a task: pause to retry, rounds, guide, answer, edit, requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from lastgood.cli.asking import ask, report_result, subcommand_that_asks
from lastgood.cli.completion import complete_answers, complete_artifacts, complete_requests
from lastgood.cli.failure import can_ask
from lastgood.cli.input import STDIN, choose, parse, read_text
from lastgood.cli.invocation import ANY_PATH, Invocation, Number, SharedCommand, subcommand, task_argument
from lastgood.cli.output import (
    fitted,
    local_time,
    print_result,
    printable,
    printable_lines,
    say,
    short_id,
    shortened,
    table,
    value_text,
)
from lastgood.views.document import compose

if TYPE_CHECKING:
    from lastgood.types import Request

PREVIEW = 200


def _request_command(kind: Literal["pause", "resume", "stop", "cancel", "retry"], text: str) -> SharedCommand:
    """Make a command that makes a request without arguments; `text` is its help."""

    def request(call: Invocation, wait: float | None, request_id: str | None) -> None:
        ask(call, lambda control: getattr(control, kind)(id=request_id), wait)

    request.__name__, request.__doc__ = kind, text
    return subcommand_that_asks(task_argument()(request))


pause = _request_command("pause", "Pause a running task at its next boundary: it is saved there, and waits.")
resume = _request_command("resume", "Resume a paused, stopped or failed task.")
stop = _request_command("stop", "Stop a running task at its next boundary: it is saved there, and can be retried.")
cancel = _request_command("cancel", "Stop a task, and mark its end as not good: `lastgood last-good` passes over it.")
retry = _request_command("retry", "Retry a stopped or failed task, from its last checkpoint.")


@subcommand_that_asks
@task_argument(before="number")
@click.argument("number", metavar="N", type=Number(1), required=False)
def rounds(call: Invocation, number: int, wait: float | None, request_id: str | None) -> None:
    """Give a task N rounds more than were planned. A completed one goes on when it is run again."""
    ask(call, lambda control: control.add_rounds(number, id=request_id), wait)


@subcommand_that_asks
@task_argument(before="text")
@click.argument("text", metavar="TEXT", required=False)
def guide(call: Invocation, text: str, wait: float | None, request_id: str | None) -> None:
    """Send guidance to a running task. TEXT is the guidance; - reads it from stdin.

    It becomes part of the next checkpoint, and the work sees it from its next boundary on.
    """
    guidance = read_text("TEXT", STDIN).rstrip("\n") if text == STDIN else text
    ask(call, lambda control: control.guide(guidance, id=request_id), wait)


@subcommand_that_asks
@task_argument()
@click.argument("answer", required=False, shell_complete=complete_answers)
def answer(call: Invocation, answer: str | None, wait: float | None, request_id: str | None) -> None:
    """Answer a running task's question. Without ANSWER, show it and its choices; on a terminal, ask for the answer."""
    with call.open_to_work() as store:
        name = call.task_id()
        control = store.task(name, owner=call.owner).control
        question: dict[str, Any] | None = None
        if answer is None:
            question, state = control.question, control.state
            view = compose(task_id=name, run_control_state=state, question=question)
            print_result(call, view, _question_lines(question))
            if question is None:
                say(call, "it asks no question")
            if question is None or call.json or not can_ask():
                return
            answer = _prompt(call, question.get("choices") or [])
        asked = control.answer(answer, question=question["id"] if question else None, id=request_id)
        report_result(call, name, control, asked, wait)


def _question_lines(question: dict[str, Any] | None) -> list[str]:
    """Return what is asked, and the choices with their numbers."""
    if question is None:
        return []
    choices = question.get("choices") or []
    return [
        printable_lines(question["text"]),
        *(f"{number:>3}  {printable(choice)}" for number, choice in enumerate(choices, 1)),
    ]


def _prompt(call: Invocation, choices: list[str]) -> str:
    while True:
        typed = str(click.prompt("answer", err=True))
        if not choices or typed in choices:
            return typed
        if typed.isdecimal() and 1 <= int(typed) <= len(choices):
            return choices[int(typed) - 1]
        say(call, "that is not one of the choices; type one, or its number")


@subcommand_that_asks
@task_argument(before="artifact")
@click.argument("artifact", metavar="ARTIFACT", required=False, shell_complete=complete_artifacts)
@click.option("--file", required=True, type=ANY_PATH, metavar="FILE", help="Its new content; - reads stdin.")
def edit(call: Invocation, artifact: str, file: str, wait: float | None, request_id: str | None) -> None:
    """Replace the content of ARTIFACT, by its name or id. Text stays text; other content is read as JSON."""
    from lastgood.work.requests import find_artifact

    text = read_text("the content", file)
    with call.open_to_work() as store:
        name = call.task_id()
        task = store.task(name, owner=call.owner)
        present = find_artifact(task.head.artifacts if task.head else (), artifact).get("content")
        content = text if present is None or isinstance(present, str) else parse("the content", text)
        control = task.control
        report_result(call, name, control, control.edit(artifact, content, id=request_id), wait)


@subcommand
@task_argument()
@click.option(
    "--withdraw", metavar="ID", shell_complete=complete_requests, help="Withdraw one; an id, or its beginning."
)
def requests(call: Invocation, withdraw: str | None) -> None:
    """List pending requests, oldest first, or withdraw one."""
    with call.open_to_work() as store:
        control = store.task(call.task_id(), owner=call.owner).control
        found = control.requests()
        if withdraw is None:
            rows = [_request_row(request) for request in found]
            head = ("id", "request", "time", "by", "about")
            view = {"requests": found}
            print_result(call, view, map(fitted, table(rows, head) if rows else []))
            if not rows:
                say(call, "no pending requests")
            elif control.lease is None:
                say(call, "the task is not running: requests are fulfilled when it runs")
            return
        chosen = choose(found, withdraw, "request")
        control.withdraw(chosen.id)
        ended = control.follow(chosen.id) or chosen
    print_result(call, {"withdrawn": ended}, [f"withdrew the request to {chosen.kind} ({chosen.id})"])


def _request_row(request: Request) -> list[str]:
    about = ", ".join(f"{name}={value_text(value)}" for name, value in request.data.items() if value not in (None, ""))
    when = local_time(request.at)
    return [short_id(request.id), request.kind, when, printable(request.actor), shortened(about, PREVIEW)]
