"""Commands that steer the work on a task: pause to retry, rounds, guide, answer, edit, requests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from lastgood.cli.asking import (
    ask,
    name_task,
    print_outcome,
    report_result,
    require_not_refused,
    subcommand_that_asks,
    task_argument,
    wait_for,
)
from lastgood.cli.completion import complete_answers, complete_artifacts, complete_requests
from lastgood.cli.failure import can_ask
from lastgood.cli.input import STDIN, choose, parse, read_text
from lastgood.cli.invocation import Invocation, SharedCommand, subcommand
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
from lastgood.errors import InvalidError, UnavailableError
from lastgood.model.identity import moment
from lastgood.views.document import compose

if TYPE_CHECKING:
    from lastgood import Request

PREVIEW = 200


def _request_command(kind: Literal["pause", "resume", "stop", "cancel", "retry"], text: str) -> SharedCommand:
    """Make a command that makes a request without arguments; `text` is its help."""

    def request(call: Invocation, work: str | None, wait: float | None, request_id: str | None) -> None:
        ask(call, work, lambda control: getattr(control, kind)(id=request_id), wait)

    request.__name__, request.__doc__ = kind, text
    return subcommand_that_asks(task_argument()(request))


pause = _request_command("pause", "Pause work at its next boundary: it is saved there, and waits.")
resume = _request_command("resume", "Let work go on that is paused, or was stopped, or has failed.")
stop = _request_command("stop", "End work at its next boundary: it is saved there, and can be retried.")
cancel = _request_command(
    "cancel", "End work as stop does, and mark what there is as not good: `lastgood last-good` passes it over."
)
retry = _request_command("retry", "Try work again that was stopped or has failed, from its last checkpoint.")


@subcommand_that_asks
@task_argument(required=True)
@click.argument("number", metavar="N", type=click.IntRange(min=1))
def rounds(call: Invocation, work: str, number: int, wait: float | None, request_id: str | None) -> None:
    """Give work N rounds more than were planned; also work that is completed: then run it again."""
    ask(call, work, lambda control: control.add_rounds(number, id=request_id), wait)


@subcommand_that_asks
@task_argument(required=True)
@click.argument("text")
def guide(call: Invocation, work: str, text: str, wait: float | None, request_id: str | None) -> None:
    """Send guidance to a running task. TEXT is the guidance; - reads it from stdin.

    It becomes part of the next checkpoint, and the work sees it from its next boundary on.
    """
    guidance = read_text("TEXT", STDIN).rstrip("\n") if text == STDIN else text
    ask(call, work, lambda control: control.guide(guidance, id=request_id), wait)


@subcommand_that_asks
@task_argument()
@click.argument("answer", required=False, shell_complete=complete_answers)
def answer(call: Invocation, work: str | None, answer: str | None, wait: float | None, request_id: str | None) -> None:
    """Answer what work has asked. Without ANSWER: show the question and its choices; on a terminal, ask for it."""
    name = name_task(call, work)
    with call.open_to_work() as store:
        control = store.task(name, owner=call.owner).control
        question: dict[str, Any] | None = None
        if answer is None:
            question, state = control.question, control.state
            view = compose(task_id=name, run_control_state=state, question=question)
            print_result(call, view, _question_lines(question))
            if question is None:
                say(call, "it asks nothing")
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
@task_argument(required=True)
@click.argument("artifact", shell_complete=complete_artifacts)
@click.argument("dash", required=False, type=click.Choice([STDIN]), metavar="[-]")
@click.option("--file", "file", type=click.Path(), metavar="FILE", help="Take the content from this file.")
def edit(
    call: Invocation,
    work: str,
    artifact: str,
    dash: str | None,
    file: str | None,
    wait: float | None,
    request_id: str | None,
) -> None:
    """Replace what ARTIFACT, by its name or its id, holds: from --file, from stdin with -, else in your $EDITOR.

    What is text stays text; anything else is edited as JSON. What somebody else changed while you edited it is not
    overwritten.
    """
    from lastgood.work.requests import content_digest, find_artifact

    if dash is not None and file is not None:
        raise click.UsageError("edit takes --file or -, not both")
    name, source = name_task(call, work), dash or file
    given = None if source is None else read_text("the content", source)
    if given is None and not can_ask():
        raise InvalidError("there is no terminal to edit on", hint="give --file FILE, or - to read stdin")
    with call.open_to_work() as store:
        handle = store.task(name, owner=call.owner)
        control = handle.control
        state = control.state
        present = find_artifact(handle.head.artifacts if handle.head else (), artifact)
        content = present.get("content")
        if given is not None:
            asked = control.edit(artifact, _content(content, given), id=request_id)
            report_result(call, name, control, asked, wait)
            return
        from lastgood import RequestResult

        text = _text(content)
        with _edited(call, text, "artifact.txt" if text is content else "artifact.json") as written:
            if written == text:
                note = f"{printable(artifact)} stays as it is"
                unchanged = RequestResult(note, fulfilled=True, alive=control.lease is not None)
                print_result(call, compose(unchanged, task_id=name, run_control_state=state), [note])
                return
            over = content_digest(present)
            asked = control.edit(artifact, _content(content, written), over=over, id=request_id)
            asked = wait_for(call, control, asked, wait)
            require_not_refused(name, asked)
        print_outcome(call, name, control, asked, waited=wait is not None)


def _text(content: Any) -> str:
    """Return what an artifact holds, to be edited."""
    import json

    if content is None or isinstance(content, str):
        return content or ""
    try:
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise InvalidError(
            "what it holds is neither text nor JSON", hint="replace it: --file FILE, or edit it from Python"
        ) from error


def _content(present: Any, text: str) -> Any:
    """Return `text` as an artifact that holds `present` can hold it."""
    return text if present is None or isinstance(present, str) else parse("the content", text)


@contextmanager
def _edited(call: Invocation, text: str, name: str) -> Iterator[str]:
    """Yield what a person made of `text` in an editor. When the block fails, it is kept in a file, and said where."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="lastgood-"))  # private, as mkdtemp makes it
    file = folder / name
    file.write_text(text, encoding="utf-8", newline="")
    try:
        _run_editor(file)
        yield _read(file)
    except BaseException:
        say(call, f"what you wrote is in {file}")
        raise
    shutil.rmtree(folder)


def _run_editor(file: Path) -> None:
    import shlex
    import signal
    import subprocess

    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        command = [*shlex.split(named), str(file)]
    except ValueError as error:
        raise InvalidError(f"the editor {named[:80]!r} cannot be understood: {error}", hint="set EDITOR") from error
    # Ctrl-C is the editor's. A handler, since what is ignored stays ignored in the program that is started.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        shown_on = None if sys.stdout.isatty() else sys.stderr
        code = subprocess.run(command, check=False, stdout=shown_on).returncode  # noqa: S603
    except OSError as error:
        raise UnavailableError(
            f"the editor {command[0][:80]!r} cannot be started: {error.strerror}", hint="set EDITOR, or give --file"
        ) from error
    finally:
        signal.signal(signal.SIGINT, before)
    if code != 0:
        raise UnavailableError(f"the editor ended with {code}: nothing was changed", hint="edit it again")


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InvalidError("what the editor wrote is not UTF-8", hint="save it as UTF-8") from error


@subcommand
@task_argument()
@click.option(
    "--withdraw", metavar="ID", shell_complete=complete_requests, help="Take one back; an id, or its beginning."
)
def requests(call: Invocation, work: str | None, withdraw: str | None) -> None:
    """List what was asked of work and is not done yet, oldest first; or take it back."""
    name = name_task(call, work)
    with call.open_to_work() as store:
        control = store.task(name, owner=call.owner).control
        found = control.requests()
        if withdraw is None:
            rows = [_request_row(request) for request in found]
            head = ("id", "request", "time", "by", "about")
            view = {"requests": found}
            print_result(call, view, map(fitted, table(rows, head) if rows else []))
            if not rows:
                say(call, "nothing is asked of it")
            elif control.lease is None:
                say(call, "nobody is running the work: it is done when someone does")
            return
        chosen = choose(found, withdraw, "request")
        control.withdraw(chosen.id)
        ended = control.follow(chosen.id) or chosen
    print_result(call, {"withdrawn": ended}, [f"{chosen.kind} is not asked for any more ({chosen.id})"])


def _request_row(request: Request) -> list[str]:
    about = ", ".join(f"{name}={value_text(value)}" for name, value in request.data.items() if value not in (None, ""))
    when = local_time(moment(request.at))
    return [short_id(request.id), request.kind, when, printable(request.actor), shortened(about, PREVIEW)]
