"""`lastgood run`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lastgood.cli.bar import showing
from lastgood.cli.command import subcommand, workspace_options
from lastgood.cli.failure import STOPPED
from lastgood.cli.files import naming_the_switch
from lastgood.cli.invocation import Invocation
from lastgood.cli.loading import Outcome, OwnCodeError, load_pipeline
from lastgood.cli.output import answer, printable, printable_lines, say
from lastgood.cli.run_step import Stopped, output_beside_json, stopping
from lastgood.cli.spool import waits
from lastgood.cli.summary import place_text, summary
from lastgood.errors import CheckpointError, StageError

if TYPE_CHECKING:
    from lastgood.cli.loading import Runnable
    from lastgood.store import Store
    from lastgood.task import Task


@subcommand
@click.argument("target", metavar="MODULE:NAME")
@click.option("--restart", is_flag=True, help="Begin anew, also what is completed or was stopped.")
@workspace_options
def command(call: Invocation, target: str, restart: bool) -> None:
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
                outcome = _run(call, store, task, pipeline, restart=restart)
                waiting = waits(store, outcome.checkpoint)
    except (OwnCodeError, StageError) as error:
        _show_cause(call, error)
        raise
    except (Stopped, KeyboardInterrupt) as stop:
        say(call, "interrupted; run it again, and it goes on from its newest checkpoint")
        if isinstance(stop, Stopped):
            click.get_current_context().exit(stop.code)
        raise
    _tell(call, task.id, pipeline, outcome)
    if waiting is not None:
        say(call, f"it is not in the store yet: {waiting}")
    if outcome.stopped is not None:
        click.get_current_context().exit(STOPPED)


def _run(call: Invocation, store: Store, task: Task, pipeline: Runnable, *, restart: bool) -> Outcome:
    def state() -> str | None:
        position = store.catalog.position(task.owner, task.id)
        return position.branch.control_state if position else None

    with stopping(), showing(call, state) as show:
        return pipeline.run(task, restart=restart, on_progress=show)


def _tell(call: Invocation, task_id: str, pipeline: Runnable, outcome: Outcome) -> None:
    head = outcome.checkpoint
    data = {
        "task": task_id,
        "pipeline": pipeline.name,
        "stopped": outcome.stopped,
        "control_state": head.control_state,
        "checkpoint": summary(head),
    }
    how = "completed" if outcome.stopped is None else outcome.stopped
    answer(call, data, [f"{printable(task_id)}: {printable(how)}, {place_text(head)}"])
    if outcome.stopped is not None:
        say(call, f"`lastgood retry {task_id}`, and run it again: it goes on from there")


def _show_cause(call: Invocation, error: CheckpointError) -> None:
    """Where the user's own code failed: they need the trace, and it is theirs. Secrets in it are masked as in whatever
    is stored: output is kept by many a system that runs such work."""
    if call.json or error.__cause__ is None:
        return
    import traceback

    trace = "".join(traceback.format_exception(error.__cause__))
    click.echo(printable_lines(call.redaction().text(trace)), err=True, nl=False)
