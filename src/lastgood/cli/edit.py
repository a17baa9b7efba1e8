"""`lastgood edit`"""

from __future__ import annotations

from typing import Any

import click

from lastgood.cli.asking import (
    name_task,
    require_not_refused,
    settle,
    subcommand_that_asks,
    task_argument,
    tell,
    wait_for,
)
from lastgood.cli.completing import complete_artifacts
from lastgood.cli.document import STDIN, parse, read_text
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, printable
from lastgood.cli.question import can_ask
from lastgood.errors import InvalidError


@subcommand_that_asks
@task_argument(required=True)
@click.argument("artifact", shell_complete=complete_artifacts)
@click.argument("dash", required=False, type=click.Choice([STDIN]), metavar="[-]")
@click.option("--file", "file", type=click.Path(), metavar="FILE", help="Take the content from this file.")
def command(
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
            settle(call, name, control, asked, wait)
            return
        from lastgood.cli.editor import edited

        text = _text(content)
        with edited(call, text, "artifact.txt" if text is content else "artifact.json") as written:
            if written == text:
                data = {"task": name, "control_state": state, "met": True, "alive": control.lease is not None}
                note = f"{printable(artifact)} stays as it is"
                answer(call, {**data, "note": note, "request": None}, [note])
                return
            over = content_digest(present)
            asked = control.edit(artifact, _content(content, written), over=over, id=request_id)
            asked = wait_for(call, control, asked, wait)
            require_not_refused(name, asked)
        tell(call, name, control, asked, waited=wait is not None)


def _text(content: Any) -> str:
    """What an artifact holds, to be edited."""
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
    """`text`, as an artifact that holds `present` can hold it."""
    return text if present is None or isinstance(present, str) else parse("the content", text)
