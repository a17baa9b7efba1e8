"""`lastgood run`. Imports the one thing that is ever imported by its name: the pipeline on a person's command line."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from lastgood.cli import GC_THRESHOLD
from lastgood.cli.command import subcommand, workspace_options
from lastgood.cli.failure import STOPPED
from lastgood.cli.files import naming_the_switch
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import print_result, printable, printable_lines, say
from lastgood.cli.progress import showing
from lastgood.cli.run_step import StopSignal, output_beside_json, stopping
from lastgood.cli.status import spool_text
from lastgood.cli.summary import place_text
from lastgood.errors import CheckpointError, InvalidError, NotFoundError, StageError
from lastgood.views.checkpoint import view_checkpoint
from lastgood.views.document import compose

if TYPE_CHECKING:
    from lastgood import Outcome, Pipeline, Redaction, Task


class OwnCodeError(InvalidError):
    """The user's own code failed before there was a pipeline; `__cause__` is how."""


@subcommand
@click.argument("target", metavar="MODULE:NAME")
@click.option("--restart", is_flag=True, help="Begin anew, also what is completed or was stopped.")
@workspace_options
def run(call: Invocation, target: str, restart: bool) -> None:
    """Run a pipeline on the task, from where it stands to its end.

    MODULE is imported from the folder one stands in, or from where Python finds it; NAME in it is a
    lastgood.Pipeline, or a function that makes one. Stages that are done are not run again. From elsewhere it can be
    paused, guided, stopped; Ctrl-C and SIGTERM let it come to its next boundary and end, to be run again.
    """
    try:
        with output_beside_json(call):
            pipeline = load_pipeline(target, call.redaction())
            with call.open_to_work(create=True) as store, naming_the_switch():
                task = call.work_on(store)
                outcome = _run(call, task, pipeline, restart=restart)
                waiting = spool_text(store, outcome.checkpoint)
    except (OwnCodeError, StageError) as error:
        _show_cause(call, error)
        raise
    except (StopSignal, KeyboardInterrupt) as stop:
        say(call, "interrupted; run it again, and it goes on from its newest checkpoint")
        if isinstance(stop, StopSignal):
            click.get_current_context().exit(stop.code)
        raise
    _print_outcome(call, task.id, pipeline, outcome)
    if waiting is not None:
        say(call, f"it is not in the store yet: {waiting}")
    if outcome.stopped is not None:
        click.get_current_context().exit(STOPPED)


def _run(call: Invocation, task: Task, pipeline: Pipeline, *, restart: bool) -> Outcome:
    def state() -> str | None:
        try:
            return task.control.state
        except NotFoundError:
            return None

    gc.set_threshold(*GC_THRESHOLD)  # the program is not ours, and may run for long
    with stopping(), showing(call, state) as show:
        return pipeline.run(task, restart=restart, on_progress=show)


def _print_outcome(call: Invocation, task_id: str, pipeline: Pipeline, outcome: Outcome) -> None:
    head = outcome.checkpoint
    view = compose(
        task_id=task_id,
        pipeline=pipeline.name,
        stopped=outcome.stopped,
        run_control_state=head.control_state,
        checkpoint=view_checkpoint(head),
    )
    how = "completed" if outcome.stopped is None else outcome.stopped
    print_result(call, view, [f"{printable(task_id)}: {printable(how)}, {place_text(head)}"])
    if outcome.stopped is not None:
        say(call, f"`lastgood retry {task_id}`, and run it again: it goes on from there")


def _show_cause(call: Invocation, error: CheckpointError) -> None:
    """Print where the user's own code failed: they need the trace, and it is theirs. Secrets in it are masked: output
    is kept by many a system that runs such work."""
    if call.json or error.__cause__ is None:
        return
    import traceback

    trace = "".join(traceback.format_exception(error.__cause__))
    click.echo(printable_lines(call.redaction().text(trace)), err=True, nl=False)


def load_pipeline(target: str, redaction: Redaction) -> Pipeline:
    """Return the pipeline MODULE:NAME, or what the factory of that name makes; modules here come first.

    How the user's own code failed is reported without what `redaction` takes for secrets.
    """
    module_name, _, name = target.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), *name.split("."))):
        raise click.UsageError(f"{target[:200]!r} is not MODULE:NAME, as in jobs.nightly:pipeline")
    found: Any = _import(module_name, redaction)
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise NotFoundError(
                f"there is no {part!r} in {target!r}", hint="name a lastgood.Pipeline, or a function that makes one"
            ) from error
    if callable(found) and (isinstance(found, type) or not hasattr(found, "run")):
        found = _own(f"{target} cannot make its pipeline", found, redaction)
    if not callable(getattr(found, "run", None)):
        raise InvalidError(
            f"{target} is {type(found).__name__}, not a pipeline", hint="name a lastgood.Pipeline, or what makes one"
        )
    pipeline: Pipeline = found
    return pipeline


def _import(name: str, redaction: Redaction) -> Any:
    from importlib import import_module

    here = os.getcwd()  # noqa: PTH109
    if sys.path[:1] != [here]:
        sys.path.insert(0, here)
    try:
        return _own(f"the module {name} cannot be imported", lambda: import_module(name), redaction)
    except OwnCodeError as error:
        missing = error.__cause__.name if isinstance(error.__cause__, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise NotFoundError(
                f"there is no module {missing!r}", hint="it is looked for in the folder you stand in, and on PYTHONPATH"
            ) from None
        raise


def _own(failed: str, work: Callable[[], Any], redaction: Redaction) -> Any:
    """Run the user's own code."""
    try:
        return work()
    except (Exception, SystemExit) as error:
        told = redaction.text(f"{failed}: {type(error).__name__}: {error}")
        raise OwnCodeError(told, hint="it is your code; see above") from error
