"""`lastgood answer`"""

from __future__ import annotations

from typing import Any

import click

from lastgood.cli import output
from lastgood.cli.asking import name_task, settle, subcommand_that_asks, task_argument
from lastgood.cli.completing import complete_answers
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import printable, printable_lines, say
from lastgood.cli.question import can_ask


@subcommand_that_asks
@task_argument()
@click.argument("answer", required=False, shell_complete=complete_answers)
def command(call: Invocation, work: str | None, answer: str | None, wait: float | None, request_id: str | None) -> None:
    """Answer what work has asked. Without ANSWER: show the question and its choices; on a terminal, ask for it."""
    name = name_task(call, work)
    with call.open_to_work() as store:
        control = store.task(name, owner=call.owner).control
        question: dict[str, Any] | None = None
        if answer is None:
            question, state = control.question, control.state
            output.answer(call, {"task": name, "control_state": state, "question": question}, question_lines(question))
            if question is None:
                say(call, "it asks nothing")
            if question is None or call.json or not can_ask():
                return
            answer = _prompt(call, question.get("choices") or [])
        asked = control.answer(answer, question=question["id"] if question else None, id=request_id)
        settle(call, name, control, asked, wait)


def question_lines(question: dict[str, Any] | None) -> list[str]:
    """For people: what is asked, and the choices with their numbers."""
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
