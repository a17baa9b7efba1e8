"""`lastgood watch`"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from lastgood.cli.input import span
from lastgood.cli.invocation import Invocation, subcommand, workspace_options
from lastgood.cli.output import change_line, counted, json_text, printable, say, shortened
from lastgood.cli.status import spool_text
from lastgood.cli.summary import place_text
from lastgood.errors import BusyError, CheckpointError, InvalidError, UnavailableError
from lastgood.local.paths import open_private
from lastgood.views.checkpoint import view_checkpoint
from lastgood.views.workspace import save_changed, watcher_file

if TYPE_CHECKING:
    from pathlib import Path

    from lastgood import Store, Task
    from lastgood.types import FileChange

LONGEST, MOST_NAMED = 40, 3
"""The characters of a path, and how many paths, that the message of a checkpoint names."""


@subcommand
@click.option("--save", is_flag=True, expose_value=False, help="Save when files have changed: the default.")
@click.option("--every", default="30s", show_default=True, callback=span, metavar="SPAN", help="How often at most.")
@workspace_options
def watch(call: Invocation, every: float) -> None:
    """Watch the workspace, and save what has changed, until Ctrl-C or SIGTERM. Checkpoints have the type `automatic`.

    It saves once more before it ends. While the store cannot take them, checkpoints are spooled.
    """
    if every <= 0:
        raise click.UsageError("--every takes a span of time above 0")
    folders = call.folders()
    if folders is None:
        raise InvalidError("there is no workspace to watch", hint="give --workspace DIR, or `lastgood init` the folder")
    with call.open_to_work() as store, _alone(watcher_file(store, folders)), _until_stopped() as stopped:
        task = store.task(call.task_id(), workspace=folders, watch=True, owner=call.owner)
        say(call, f"watching {task.task_id}; Ctrl-C ends it")
        failed = _save(call, store, task, "")
        while not stopped.wait(every):
            failed = _save(call, store, task, failed)
        if sys.stderr.isatty():
            say(call, "")  # the terminal has shown ^C
        _save(call, store, task, failed)


def _save(call: Invocation, store: Store, task: Task, failed: str) -> str:
    """Save if something has changed. What goes wrong is said once, and returned: it may be better next time."""
    try:
        saved = save_changed(task, _describe)
    except CheckpointError as error:
        if str(error) != failed:
            say(call, f"not saved: {error}")
        return str(error)
    if saved is not None and call.json:
        click.echo(json_text({"checkpoint": view_checkpoint(saved)}))
    elif saved is not None:
        how, waiting = f"saved {place_text(saved)}", spool_text(store, saved)
        how, more = ("spooled", f": {waiting}") if waiting else (how, "")
        click.echo(f"{how} of {printable(saved.task_id)} with {counted(saved.file_count, 'file')}{more}")
    return ""


def _describe(changes: Sequence[FileChange]) -> str:
    """Return what has changed, short enough for a line of `log`."""
    shown = ", ".join(shortened(change_line(one), LONGEST) for one in changes[:MOST_NAMED])
    return shown + (f" and {len(changes) - MOST_NAMED:,} more" if len(changes) > MOST_NAMED else "")


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Hold the lock of who watches a folder; BusyError, with the process, when another has it."""
    try:
        descriptor = open_private(file, os.O_CREAT | os.O_RDWR)
    except OSError as error:
        told = f"the store in {file.parent.parent} cannot be written: {(error.strerror or '').lower()}"
        raise UnavailableError(told, hint="watch saves into it: look at its disk and permissions") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            raise BusyError(
                f"process {pid or 'unknown'} watches this folder already", hint="let it, or end it first"
            ) from error
        os.ftruncate(descriptor, 0)
        with suppress(OSError):  # on a full disk it is watched all the same: what is saved is spooled
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _until_stopped() -> Iterator[threading.Event]:
    """Yield what is set by Ctrl-C, SIGTERM and SIGHUP, so that no save is interrupted."""
    stopped = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in numbers}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
