"""`lastgood run` and `lastgood run-step`.

Imports the one thing that is ever imported by its name: the pipeline on a person's command line.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from lastgood.cli import GC_THRESHOLD
from lastgood.cli.failure import STOPPED, report
from lastgood.cli.invocation import ANY_PATH, Invocation, subcommand, workspace_options
from lastgood.cli.output import json_text, print_result, printable, printable_lines, say, say_skipped, short_id
from lastgood.cli.progress import showing
from lastgood.cli.status import spool_text
from lastgood.cli.summary import evidence_text, place_text
from lastgood.errors import CheckpointError, InvalidError, NotFoundError, StageError
from lastgood.views.checkpoint import CheckpointView, view_checkpoint
from lastgood.views.document import compose

if TYPE_CHECKING:
    from lastgood import Checkpoint, Pipeline, Step, Store, Task
    from lastgood.types import Outcome, Redaction


class OwnCodeError(InvalidError):
    """The user's own code failed before there was a pipeline; `__cause__` is how."""


@subcommand
@click.argument("target", metavar="MODULE:NAME")
@click.option("--restart", is_flag=True, help="Start over, even if it is completed or was stopped.")
@workspace_options
def run(call: Invocation, target: str, restart: bool) -> None:
    """Run a pipeline on the task, resuming where it stopped.

    MODULE is imported from the current folder, or from where Python finds it; NAME in it is a lastgood.Pipeline, or a
    function that makes one. Completed stages are not run again. Other terminals can pause, guide and stop it. Ctrl-C
    and SIGTERM stop it at its next boundary; run it again to resume.
    """
    try:
        with output_beside_json(call):
            pipeline = load_pipeline(target, call.options().redaction)
            with call.open_to_work(create=True) as store:
                task = call.work_on(store)
                before = task.head
                outcome = _run(call, task, pipeline, restart=restart)
                waiting, head = spool_text(store, outcome.checkpoint), view_checkpoint(outcome.checkpoint)
    except (OwnCodeError, StageError) as error:
        _show_cause(call, error)
        raise
    except (StopSignal, KeyboardInterrupt) as stop:
        call.interrupted = "run it again, and it resumes from its newest checkpoint"
        if isinstance(stop, StopSignal):
            say(call, f"interrupted; {call.interrupted}")
            click.get_current_context().exit(stop.code)
        raise
    _print_outcome(call, task.id, pipeline, outcome, head)
    if outcome.stopped is None and before is not None and before.id == outcome.checkpoint.id:
        say(call, "already completed; --restart runs it again")
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


def _print_outcome(
    call: Invocation, task_id: str, pipeline: Pipeline, outcome: Outcome, checkpoint: CheckpointView
) -> None:
    head = outcome.checkpoint
    view = compose(
        task_id=task_id,
        pipeline=pipeline.name,
        stopped=outcome.stopped,
        run_control_state=head.control_state,
        checkpoint=checkpoint,
    )
    how = "completed" if outcome.stopped is None else outcome.stopped
    print_result(call, view, [f"{printable(task_id)}: {printable(how)}, {place_text(head)}"])
    if outcome.stopped is not None:
        say(call, f"`lastgood retry {quote(task_id)}`, and run it again: it resumes from there")


def _show_cause(call: Invocation, error: CheckpointError) -> None:
    """Print where the user's own code failed: they need the trace, and it is theirs. Secrets in it are masked: output
    is kept by many a system that runs such work."""
    if call.json or error.__cause__ is None:
        return
    import traceback

    trace = "".join(traceback.format_exception(error.__cause__))
    click.echo(printable_lines(call.options().redaction.text(trace)), err=True, nl=False)


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
                f"there is no module {missing!r}", hint="it is looked for in the current folder, and on PYTHONPATH"
            ) from None
        raise


def _own(failed: str, work: Callable[[], Any], redaction: Redaction) -> Any:
    """Run the user's own code."""
    try:
        return work()
    except (Exception, SystemExit) as error:
        told = redaction.text(f"{failed}: {type(error).__name__}: {error}")
        raise OwnCodeError(told, hint="it is your code; see above") from error


CANNOT_START, NO_SUCH_COMMAND, BY_SIGNAL = 126, 127, 128
"""As shells say it: the command cannot be run, there is none, it ended by a signal (whose number is added)."""


class NotStartedError(Exception):
    """The command could not be run; `code` is the exit code that says so."""

    def __init__(self, code: int, error: CheckpointError) -> None:
        super().__init__(str(error))
        self.code = code
        self.error = error


class StopSignal(BaseException):
    """A signal to end this process. Not an Exception, as KeyboardInterrupt is not."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.code = BY_SIGNAL + number


@subcommand
@click.argument("name")
@click.argument("words", nargs=-1, metavar="-- COMMAND...", type=click.UNPROCESSED)
@click.option("--expect", type=int, default=0, show_default=True, metavar="N", help="The exit code to expect.")
@click.option("--expect-file", "files", type=ANY_PATH, multiple=True, help="A file that must exist; repeatable.")
@click.option("--type", "type_", default="step", show_default=True, metavar="TYPE", help="Category label.")
@click.option("--message", "-m", metavar="TEXT", help="What this step is.  [default: NAME]")
@workspace_options
def run_step(
    call: Invocation,
    name: str,
    words: tuple[str, ...],
    expect: int,
    files: tuple[str, ...],
    type_: str,
    message: str | None,
) -> None:
    """Run COMMAND as the step NAME, and save a checkpoint. Its evidence is the exit code, and each --expect-file.

    Exits with the exit code of COMMAND.
    """
    if not words:
        raise click.UsageError("there is no command; give it after --")
    context = click.get_current_context()
    with call.open_to_work(create=True) as store:
        task = call.work_on(store)
        try:
            with stopping(), task.step(name, type=type_, message=name if message is None else message) as step:
                if (found := step.before) is not None:
                    say(call, f"Unsaved changes were saved first, as {place_text(found)}")
                code = _run_command(call, step, list(words), expect)
                for file in files:
                    step.expect_file(_from_base(call, file))
                saved = step.commit()
        except NotStartedError as failure:
            report(failure.error, call)
            context.exit(failure.code)
        except (StopSignal, KeyboardInterrupt) as stop:
            call.interrupted = f"the command was ended, and the step {name} is recorded as failed"
            if isinstance(stop, StopSignal):
                say(call, f"interrupted; {call.interrupted}")
                context.exit(stop.code)
            raise
        _print_result(call, store, saved, step.before, code)
    context.exit(code)


def _run_command(call: Invocation, step: Step, words: list[str], expect: int) -> int:
    """Return its exit code as a shell would give it. What keeps it from ending by itself is recorded in words."""
    try:
        with output_beside_json(call):
            code = step.run(words, expect=expect, preexec_fn=_ends_with_us()).returncode
    except KeyboardInterrupt:
        step.fail("stopped with Ctrl-C")
        raise
    except StopSignal as stop:
        step.fail(str(stop))
        raise
    except OSError as error:
        sentence = f"the command {words[0][:200]!r} cannot be started: {error.strerror}"
        step.fail(sentence)
        if error.errno == errno.ENOENT:
            hint = "is it installed, and on the PATH? There is no shell: aliases and builtins are not found"
            raise NotStartedError(NO_SUCH_COMMAND, NotFoundError(sentence, hint=hint)) from error
        raise NotStartedError(CANNOT_START, InvalidError(sentence, hint="may it be executed?")) from error
    return code if code >= 0 else BY_SIGNAL - code


def _ends_with_us() -> Callable[[], None] | None:
    """Return what a child calls before it becomes the command, so that the kernel kills the command when this process
    ends, also by SIGKILL; None where the kernel cannot. The thread that starts it counts as its parent, and waits for
    it. The library is loaded here: a child of a process with threads can only call it."""
    if sys.platform != "linux":
        return None
    import ctypes

    control, parent = ctypes.PyDLL(None).prctl, os.getpid()

    def bind() -> None:
        control(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # it ended before that
            os._exit(BY_SIGNAL + signal.SIGKILL)

    return bind


def _print_result(call: Invocation, store: Store, saved: Checkpoint, before: Checkpoint | None, code: int) -> None:
    """Print on stderr: stdout is the command's own. With --json it is the other way round."""
    evidence = saved.evidence_pack.evidence_list
    skipped = list(dict.fromkeys((*saved.skipped, *(before.skipped if before else ()))))
    if call.json:
        about = {"checkpoint": view_checkpoint(saved), "exitCode": code, "evidence": evidence, "skipped": skipped}
        click.echo(json_text(about))
        return
    word = "verified" if saved.verified else "NOT verified"
    waiting = spool_text(store, saved)
    place = f"spooled {short_id(saved.id)}" if waiting else f"saved @{saved.sequence}"
    say(call, f"{place} of {saved.task_id}: {word}" + (f"; {waiting}" if waiting else ""))
    for one in evidence:
        say(call, f"  {evidence_text(one)}")
    say_skipped(call, saved, skipped)


def _from_base(call: Invocation, file: str) -> str:
    """Convert a path as one types it here to that of evidence: from the base path if it lies below that."""
    base, path = call.base_path(), Path(os.path.normpath(Path.cwd() / file))
    return str(path.relative_to(base) if path.is_relative_to(base) else path)


@contextmanager
def stopping() -> Iterator[None]:
    """Raise StopSignal for SIGTERM and SIGHUP, so that the step is recorded and its command does not go on alone."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise StopSignal(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def output_beside_json(call: Invocation) -> Iterator[None]:
    """Send what the command prints to stderr with --json: stdout is one document then."""
    if not call.json:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
