"""`lastgood status`, `lastgood spool`, `lastgood tasks` and `lastgood steps`"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from lastgood.cli.completion import complete_steps
from lastgood.cli.failure import confirm, in_commands
from lastgood.cli.input import choose
from lastgood.cli.invocation import Invocation, Number, refuse_orphan, subcommand, task_argument, workspace_options
from lastgood.cli.output import (
    change_line,
    counted,
    counting,
    few,
    field_lines,
    fitted,
    left_out,
    local_time,
    print_result,
    printable,
    rules_text,
    say,
    short_id,
    size_text,
    table,
)
from lastgood.cli.summary import line, place_text
from lastgood.errors import InvalidError
from lastgood.local.process import is_alive
from lastgood.model.identity import moment
from lastgood.views.document import compose
from lastgood.views.restore import advise_partial
from lastgood.views.status import PROCESS, StatusView, add_recovery, add_work, list_spooled, view_step

if TYPE_CHECKING:
    from lastgood import Checkpoint, Store
    from lastgood.types import OpenStep, Recovery, SpoolFigures
    from lastgood.views.status import ProgressView, WorkerView
    from lastgood.views.workspace import WorkspaceFound


@subcommand
@task_argument()
@click.option("--verbose", "-v", is_flag=True, help="List also the files that a save leaves out.")
@workspace_options
def status(call: Invocation, verbose: bool) -> None:
    """Show the store, the task, what was interrupted, and what to do next.

    With a workspace: which branch its files belong to, and what has changed since that branch's newest checkpoint.
    """
    location = call.locate()
    refuse_orphan(location)
    view = StatusView(
        store=":memory:" if location.catalog is None else str(location.catalog),
        found_by=location.found_by,
        exists=location.catalog is not None and location.catalog.exists(),
        task_id=call.task_id(),
    )
    found: Recovery | None = None
    here: WorkspaceFound | None = None
    waiting: str | None = None
    if view.exists or (location.catalog is not None and call.keeps_spool(location.catalog)):
        with call.open_to_work() as store:
            task_id = call.task_id()
            view = msgspec.structs.replace(view, task_id=task_id)
            found = store.recovery(task_id, owner=call.owner)
            figures = store.spool_figures()
            waiting = figures_text(figures)
            view = add_recovery(view, store, call.owner, found)
            view = msgspec.structs.replace(view, spool=figures)
            if found.away is None:
                if found.head is not None:
                    view = add_work(view, store, call.owner, found.head)
                    partial = advise_partial(store, found.head, call.owner)
                    view = msgspec.structs.replace(view, advice=[*view.advice, *filter(None, [partial])])
                here = _compare_files(call, store, found, verbose)
            if here is not None:
                view = msgspec.structs.replace(view, workspace=here.view(), advice=[*view.advice, *here.advice()])
    view = msgspec.structs.replace(view, advice=[call.complete(in_commands(sentence)) for sentence in view.advice])
    print_result(call, view, _lines(call, view, found, here, waiting, verbose=verbose))


@subcommand
@click.option("--replay", is_flag=True, help="Replay them now, or say why that fails.")
@click.option("--discard", is_flag=True, help="Give them up, and those that cannot be replayed.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def spool(call: Invocation, replay: bool, discard: bool, yes: bool) -> None:
    """List checkpoints that were queued while the store was unavailable, or replay them into the store.

    Every command that opens the store replays them, if it takes them. Those that cannot be replayed are listed, too.
    Where the store is gone for good, --discard gives them up, so that `lastgood init` can make a new one.
    """
    if replay and discard:
        raise InvalidError("--replay and --discard contradict each other", hint="give one of them")
    with call.open_to_work() as store:
        if discard and (going := [one for one, _ in list_spooled(store)]):
            verb = "waits" if len(going) == 1 else "wait"
            tasks = ", ".join(printable(name) for name in sorted({one.task_id for one in going}))
            what = f"give up {counted(len(going), 'checkpoint')} of {tasks} that {verb} for the store"
            confirm(call, what, "spool --discard", yes)
        done = store.replay(discard=discard) if replay or discard else None
        figures = store.spool_figures()
        waiting = list_spooled(store)
    rows = [
        [printable(one.task_id), short_id(one.id), local_time(moment(one.at)), reason or "waits"]
        for one, reason in waiting
    ]
    view = compose(figures, checkpoints=[compose(one, reason=reason) for one, reason in waiting], replayed=done)
    print_result(call, view, map(fitted, table(rows, ("task", "id", "since", "")) if rows else []))
    if done is not None and done.discarded:
        kept = f"; what it was is kept in {printable(done.kept)}" if done.kept else ""
        say(call, f"gave up {counted(done.discarded, 'checkpoint')}{kept}")
        return
    if replay and done is not None and (done.stored or rows):
        say(call, f"{counted(done.stored, 'checkpoint')} replayed into the store")
    for left in figures.left:
        say(call, f"a spool was put out of the way: {printable(left)}")
    if figures.away is not None:
        say(call, figures.away)
    elif not rows:
        say(call, "nothing waits for the store")


def figures_text(figures: SpoolFigures) -> str | None:
    """Return what waits for the store in words; None when nothing does."""
    parts = [] if figures.away is None else [figures.away]
    if figures.depth:
        since = "" if figures.oldest is None else f" since {local_time(figures.oldest)}"
        waiting = f"{counted(figures.depth, 'checkpoint')} wait{'s' if figures.depth == 1 else ''} for the store{since}"
        parts.append(f"{waiting}, {size_text(figures.bytes)}")
    if figures.aside:
        parts.append(f"{counted(figures.aside, 'checkpoint')} set aside")
    parts += [f"a spool was put out of the way: {printable(left)}" for left in figures.left]
    return "; ".join(parts) or None


def spool_text(store: Store, checkpoint: Checkpoint) -> str | None:
    """Return with how many others a checkpoint waits for the store, in words; None when it is there."""
    return None if checkpoint.sequence is not None else figures_text(store.spool_figures())


def _compare_files(call: Invocation, store: Store, found: Recovery, verbose: bool) -> WorkspaceFound | None:
    from lastgood.errors import CheckpointError
    from lastgood.views.workspace import WorkspaceFound, compare_workspace

    try:
        folders = call.folders()
    except CheckpointError as error:
        return WorkspaceFound(problem=str(error))
    if folders is None:
        return None
    with counting(call, "looking at files"):
        return compare_workspace(store, folders, found, verbose=verbose)


def _lines(
    call: Invocation,
    view: StatusView,
    found: Recovery | None,
    here: WorkspaceFound | None,
    waiting: str | None,
    *,
    verbose: bool,
) -> list[str]:
    fields: list[tuple[str, Any]] = [("store", view.store), ("found by", view.found_by)]
    if found is None:
        makes = "the first save" if call.locate().config is None else "`lastgood init`"
        fields.append(("state", call.complete(f"not there; {makes} makes a new one")))
    elif found.away is None:
        fields += [("format", view.format), ("size", size_text(view.size or 0))]
    fields.append(("task", view.task_id))
    if view.branch is not None:
        more = f" (one of {view.branches})" if view.branches > 1 else ""
        fields.append(("branch", view.branch["name"] + more))
    if found is not None and found.head is not None:
        fields.append(("head", line(found.head) if found.head.integrity_ok else f"{found.head.id} (damaged)"))
        if found.last_good is not None and found.last_good.id != found.head.id:
            fields.append(("last good" if view.last_good_verified else "unverified", line(found.last_good)))
    fields.append(("checkpoints", str(view.checkpoints)))
    fields += _work_fields(view) if view.run_control_state is not None else []
    fields += [("open step", f"{step['name']} (its process: {step['process']})") for step in view.steps]
    fields += [("spool", waiting)] if waiting else []
    fields += _workspace_fields(here, verbose) if here else []
    fields += [("advice", sentence) for sentence in view.advice]
    return field_lines(fields)


def _work_fields(work: StatusView) -> Iterator[tuple[str, str]]:
    from lastgood.model.checkpoint import describe

    yield "work", describe(work.run_control_state or "")
    if work.worker is not None:
        yield "run by", _worker_text(work.worker)
    if work.progress is not None:
        yield "progress", _progress_text(work.progress)
    if work.question is not None:
        choices = ", ".join(work.question.get("choices") or ())
        yield "asks", work.question["text"] + (f" ({choices})" if choices else "")
    for one in work.requests:
        yield "requested", f"{one.kind} by {one.actor}, {local_time(one.at)} ({one.id})"


def _worker_text(worker: WorkerView) -> str:
    if worker.process == "gone":
        how = "its process is gone; the next run takes over at once"
    elif not worker.lease_live:
        how = "it does not answer, and its lease has run out; the next run takes over"
    elif worker.process == "unknown":
        how = f"on another host; its lease is good until {local_time(worker.lease_until)}"
    else:
        how = f"process {worker.pid}"
    return f"{worker.executor} since {local_time(worker.since)} ({how})"


def _progress_text(progress: ProgressView) -> str:
    text = f"{progress.completed} of {len(progress.stages)} stages done"
    if progress.next is not None:
        text += f", then {progress.next}"
    if progress.attempts:
        text += f" (begun {progress.attempts} times)" if progress.attempts != 1 else " (begun)"
    return text + (f"; round {progress.round} of {progress.rounds}" if progress.rounds != 1 else "")


def _workspace_fields(here: WorkspaceFound, verbose: bool) -> Iterator[tuple[str, str]]:
    for name, path, branch in here.folders:
        yield "files", f"{name + ': ' if name else ''}{path}{f' (of {branch.name})' if branch else ''}"
    if here.problem:
        yield "files", here.problem
    if here.since is not None and not here.changes:
        yield "changed", f"nothing since {place_text(here.since)}"
    elif here.since is not None and not here.is_newest:
        yield "changed", f"since {place_text(here.since)}, the last one with whole folders:"
    for index, text in enumerate(few([change_line(change) for change in here.changes])):
        yield "changed" if not index else "", text
    for index, text in enumerate(few([text for one in here.skipped if (text := rules_text(one))])):
        yield "ignore rules" if not index else "", text
    skipped = [left_out(one).removeprefix("left out: ") for one in here.skipped if verbose and not rules_text(one)]
    for index, text in enumerate(few(skipped)):
        yield "left out" if not index else "", text


@subcommand
@click.option("--limit", "-n", type=Number(1, 1000), default=100, show_default=True, help="How many.")
@click.option("--after", type=Number(1), metavar="NUMBER", help="Only those after the task with this number.")
def tasks(call: Invocation, limit: int, after: int | None) -> None:
    """List the tasks of all owners, newest first; with --owner, of one."""
    with call.open() as store:
        found = store.tasks(owner=call.owner, after=after or 0, limit=limit)
    rows = [
        [
            printable(task.id),
            printable(task.owner),
            str(task.checkpoints),
            short_id(task.active_branch_id),
            local_time(task.created_at),
        ]
        for task in found
    ]
    lines = table(rows, ("task", "owner", "checkpoints", "active branch", "created"))
    print_result(call, {"tasks": found}, map(fitted, lines))
    if len(found) == limit:
        say(call, f"Older tasks: {call.again('--after', found[-1].number)}")


@subcommand
@task_argument()
@click.option("--abandon", metavar="ID", shell_complete=complete_steps, help="Abandon one; an id, or its beginning.")
@click.option("--yes", is_flag=True, help="Do not ask whether to abandon one that is running.")
def steps(call: Invocation, abandon: str | None, yes: bool) -> None:
    """List unfinished steps: who began them, when, and whether their process is running."""
    with call.open() as store:
        task_id = store.task(call.task_id(), owner=call.owner).task_id
        found = store.open_steps(task_id, owner=call.owner)
        if abandon is None:
            rows = [_row(step) for step in found]
            view = {"steps": [view_step(step) for step in found]}
            print_result(
                call, view, map(fitted, table(rows, ("id", "step", "type", "began", "by", "process")) if rows else [])
            )
            if not rows:
                say(call, f"no step of {task_id} is open")
            return
        step = choose([*found, *store.recovery(task_id, owner=call.owner).restores], abandon, "step")
        name = printable(getattr(step, "name", "an interrupted restore"))
        if is_alive(step.process):
            told = f"process {step.process.pid} is running it, and what it commits will be refused"
            confirm(call, f"abandon {name}; {told}", "steps --abandon of a running step", yes)
        store.abandon_step(step.id, owner=call.owner)
    ended = {"abandoned": view_step(step) if step in found else compose(id=step.id, task_id=step.task_id)}
    print_result(call, ended, [f"abandoned {name} ({step.id})"])


def _row(step: OpenStep) -> list[str]:
    where = f"{PROCESS[is_alive(step.process)]} ({step.process.pid} on {printable(step.process.host)})"
    began = local_time(step.began_at)
    return [short_id(step.id), printable(step.name), step.type, began, printable(step.began_by), where]
