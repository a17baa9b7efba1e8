"""`lastgood run-step`"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from lastgood.cli.command import subcommand, workspace_options
from lastgood.cli.failure import report
from lastgood.cli.files import naming_the_switch, say_skipped
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import json_text, say, short_id
from lastgood.cli.save import changed, read_settings, save_changed
from lastgood.cli.summary import evidence_text
from lastgood.errors import CheckpointError, InvalidError, NotFoundError
from lastgood.views.checkpoint import view_checkpoint

if TYPE_CHECKING:
    from lastgood import Checkpoint, Step, Task

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
@click.option("--expect", type=int, default=0, show_default=True, metavar="N", help="The exit code it should have.")
@click.option("--expect-file", "files", multiple=True, metavar="PATH", help="A file that must be there; repeatable.")
@click.option("--type", "type_", default="step", show_default=True, metavar="TYPE", help="Why it is done.")
@click.option("--message", "-m", metavar="TEXT", help="What this step is.  [default: NAME]")
@click.option("--set", "settings", multiple=True, metavar="KEY=JSON", help="Change one key of the state; repeatable.")
@workspace_options
def run_step(
    call: Invocation,
    name: str,
    words: tuple[str, ...],
    expect: int,
    files: tuple[str, ...],
    type_: str,
    message: str | None,
    settings: tuple[str, ...],
) -> None:
    """Run COMMAND as the step NAME, and save a checkpoint whose evidence is how it ended and what it left.

    Ends with the command's own exit code.
    """
    if not words:
        raise click.UsageError("there is no command; give it after --")
    changes = read_settings(settings)
    context = click.get_current_context()
    with call.open_to_work(create=True) as store, naming_the_switch():
        task = call.work_on(store)
        changed(task.state if task.head else {}, changes)  # refused before anything is run
        try:
            with stopping(), task.step(name, type=type_, message=name if message is None else message) as step:
                code = _run(call, step, list(words), expect)
                for file in files:
                    step.expect_file(_from_base(call, file))
                saved = _commit(task, step, changes)
        except NotStartedError as failure:
            report(failure.error, as_json=call.json)
            context.exit(failure.code)
        except (StopSignal, KeyboardInterrupt) as stop:
            say(call, f"the step {name} was stopped; it is recorded as failed")
            if isinstance(stop, StopSignal):
                context.exit(stop.code)
            raise
        _print_result(call, saved, code)
    context.exit(code)


def _run(call: Invocation, step: Step, words: list[str], expect: int) -> int:
    """Return its exit code as a shell would give it. What keeps it from ending by itself is recorded in words."""
    try:
        with output_beside_json(call):
            code = step.run(words, expect=expect).returncode
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


def _commit(task: Task, step: Step, changes: dict[str, object]) -> Checkpoint:
    """Commit on top of whatever the head is now; keys that are set are set in the state that it has."""
    if not changes:
        return step.commit()
    from lastgood.engine.commit import KEPT

    def commit(state: object) -> Checkpoint:
        step.state = KEPT  # what is set next begins from the head that was read last
        step.state = state
        return step.commit()

    return save_changed(task, changes, commit)


def _print_result(call: Invocation, saved: Checkpoint, code: int) -> None:
    """Print on stderr: stdout is the command's own. With --json it is the other way round."""
    evidence = saved.evidence_pack.evidence_list
    if call.json:
        about = {"checkpoint": view_checkpoint(saved), "exitCode": code, "evidence": evidence, "skipped": saved.skipped}
        click.echo(json_text(about))
        return
    word = "verified" if saved.verified else "NOT verified"
    place = "(spooled: the store is away)" if saved.sequence is None else f"@{saved.sequence}"
    say(call, f"saved {short_id(saved.id)} {place} of {saved.task_id}: {word}")
    for one in evidence:
        say(call, f"  {evidence_text(one)}")
    say_skipped(call, saved.skipped)


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
