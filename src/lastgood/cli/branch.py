"""`lastgood branch` and `lastgood fork`: the tree of branches is drawn here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from lastgood.cli.completion import complete_branches, complete_checkpoints
from lastgood.cli.failure import confirm
from lastgood.cli.invocation import Invocation, Number, subcommand, task_argument, workspace_options
from lastgood.cli.output import counted, json_text, print_result, printable, say, shortened, styled, terminal_width
from lastgood.cli.restore import move
from lastgood.cli.summary import STYLES, age_text, mark_of, tagged_message
from lastgood.model.checkpoint import describe
from lastgood.views.branch import Fold, Point, Strand, Tree, find_branch, list_branches, read_tree
from lastgood.views.checkpoint import verification, view_checkpoint
from lastgood.views.document import compose

if TYPE_CHECKING:
    from lastgood import Store
    from lastgood.types import BranchInfo

WIDEST_GRAPH = 8  # to which the rows are aligned; deeper ones are shifted


@subcommand
@task_argument()
@click.option(
    "--switch",
    metavar="NAME",
    help="Make this branch the active one; a name or an id.",
    shell_complete=complete_branches,
)
@click.option(
    "--delete", metavar="NAME", help="Delete this branch and what only it has.", shell_complete=complete_branches
)
@click.option("--yes", is_flag=True, help="Do not ask before --delete.")
@click.option("--limit", "-n", type=Number(1), default=20, show_default=True, help="How many are drawn.")
@workspace_options
def branch(call: Invocation, switch: str | None, delete: str | None, yes: bool, limit: int) -> None:
    """Draw the tree of the task's branches and their checkpoints, newest at the top, the active one leftmost.

    Of each checkpoint: whether its evidence held (v verified, x not, ? there is none), its age, type, tags and
    message. Long runs are folded; `lastgood log` lists them.
    """
    if switch is not None and delete is not None:
        raise click.UsageError("branch takes --switch or --delete, not both")
    if switch is not None:
        move(call, "switched", lambda task: task.switch(switch))
    elif delete is not None:
        _delete(call, delete, yes)
    else:
        with call.open() as store:
            show_tree(call, store, limit)


def _delete(call: Invocation, name: str, yes: bool) -> None:
    with call.open_to_work() as store:
        task = store.task(call.task_id(), owner=call.owner)
        going = counted(task.delete_branch(name, dry_run=True), "checkpoint")
        confirm(call, f"delete the branch {printable(name)} with {going} that only it has", "branch --delete", yes)
        count = task.delete_branch(name)
    said = f"deleted {printable(name)} with {counted(count, 'checkpoint')}"
    print_result(call, {"deleted": name, "checkpoints": count}, [said])


def show_tree(call: Invocation, store: Store, limit: int) -> None:
    """Print the tree of the task's branches; of the newest `limit`."""
    if call.json:
        click.echo(json_text({"branches": list_branches(store, call.task_id(), call.owner)}))
        return
    tree = read_tree(store, call.task_id(), limit, call.owner)
    for line in draw(tree, width=terminal_width(sys.stdout)):
        click.echo(line)
    if tree.left_out:
        say(call, f"{counted(tree.left_out, 'older branch', 'older branches')} not shown; -n shows more")


@subcommand
@click.argument("checkpoint", default="HEAD", shell_complete=complete_checkpoints)
@click.option("--name", metavar="NAME", help="Name of the branch.  [default: the next number, as main-2]")
@click.option("--description", default="", metavar="TEXT", help="What it is for.")
@click.option("--paused", is_flag=True, help="Start paused.")
@click.option("--override-evidence", is_flag=True, help="Start there although its evidence does not hold.")
def fork(
    call: Invocation, checkpoint: str, name: str | None, description: str, paused: bool, override_evidence: bool
) -> None:
    """Start a branch at CHECKPOINT (default: HEAD). The active branch stays as it is.

    --task with its name or id works on the new branch, `lastgood branch --switch` makes it the active one.
    """
    with call.open_to_work() as store:
        task = store.task(call.task_id(), owner=call.owner)
        forked = task.fork(checkpoint, name=name, description=description, paused=paused, verify=not override_evidence)
        made, head = find_branch(store, task.task_id, forked.branch_id, task.owner), forked.head
        assert made is not None, "it was made a moment ago"
        assert head is not None, "a branch begins with a checkpoint"
        view = compose(
            checkpoint_id=made.origin_id,
            branch_id=made.id,
            branch=made.name,
            run_control_state=made.control_state,
            checkpoint=view_checkpoint(head),
        )
    sentence = f"forked @{made.origin_sequence} as @{head.sequence}, on the new branch {printable(made.name)}"
    switch = f"Switch to it with `lastgood branch --switch {quote(printable(made.name))}`"
    print_result(call, view, [sentence, call.complete(switch)])


class TreeRow(NamedTuple):
    """A line: the graph, what stands in columns, and the rest. `style` is that of the mark, or of a text alone."""

    graph: str
    cells: tuple[str, ...] = ()
    text: str = ""
    style: dict[str, Any] = {}  # noqa: RUF012 - never changed


def draw(tree: Tree, *, width: int | None, now: datetime | None = None) -> list[str]:
    """Return the lines to print; `width`: what they are cut to."""
    painter = _Painter(tree, now or datetime.now(UTC))
    rows = [row for strand in tree.strands for row in painter.strand(strand, "")]
    return list(_laid_out(rows, width))


class _Painter:
    def __init__(self, tree: Tree, now: datetime) -> None:
        self._active = tree.active
        self._now = now

    def strand(self, strand: Strand, left: str) -> Iterator[TreeRow]:
        """Draw a line with all that leaves it; `left` is what is drawn in the columns before."""
        open_above = False
        for item in strand.items:
            if isinstance(item, Fold):
                yield TreeRow(f"{left}: ", text=f"... {counted(item.count, 'checkpoint')} ...", style={"dim": True})
                continue
            for side in item.sides:
                yield from self.strand(side, left + ("| " if open_above else "  "))
                yield TreeRow(left + ("|/" if open_above else " /"))
                open_above = True
            if item.head_of is not None:
                yield TreeRow(left + ("+ " if open_above else ""), text=self._label(item.head_of), style={"bold": True})
            yield self._point(item, left)
            open_above = True
        if strand.unseen:
            text = f"... goes on from @{strand.unseen}, on a branch that is not shown ..."
            yield TreeRow(f"{left}: ", text=text, style={"dim": True})

    def _point(self, point: Point, left: str) -> TreeRow:
        place = point.place
        graph = left + ("*" if point.head_of is not None and point.head_of.id == self._active else "o")
        where, checkpoint = f"@{place.sequence}", place.checkpoint
        if checkpoint is None:
            return TreeRow(graph, (where, " ", "", ""), "(purged)")
        result = verification(checkpoint)
        if result == "damaged":
            return TreeRow(graph, (where, mark_of(checkpoint), "", ""), "(damaged)", STYLES[result])
        text = tagged_message(checkpoint)
        if point.origin:
            text = f"from @{point.origin}" + (f": {text}" if text else "")
        if place.deleted:
            text = f"(deleted) {text}"
        age = age_text(self._now - checkpoint.created_at)
        return TreeRow(graph, (where, mark_of(checkpoint), age, checkpoint.type), text, STYLES[result])

    def _label(self, branch: BranchInfo) -> str:
        facts = [
            "active" if branch.id == self._active else "",
            "deleted" if branch.deleted else "",
            describe(branch.control_state) if branch.control_state != "idle" else "",
        ]
        text = ", ".join(fact for fact in facts if fact)
        title = f"  {printable(branch.description.partition(chr(10))[0])}" if branch.description else ""
        return printable(branch.name) + (f" ({text})" if text else "") + title


def _laid_out(rows: list[TreeRow], width: int | None) -> Iterator[str]:
    """Rows with checkpoints in columns; other texts right behind the graph."""
    points = [row for row in rows if row.cells]
    graph = min(WIDEST_GRAPH, max((len(row.graph) for row in points), default=0))
    places, marks, ages, types = (max((len(row.cells[cell]) for row in points), default=0) for cell in range(4))
    for row in rows:
        if row.cells:
            place, mark, age, type_ = row.cells
            before, shown = f"{row.graph:<{graph}} {place:<{places}} ", f"{mark:<{marks}}"
            after = f" {age:>{ages}}  {type_:<{types}}  {row.text}"
        else:
            before, shown, after = row.graph, row.text, ""
        whole = (before + shown + after).rstrip()
        line, end = shortened(whole, width) if width else whole, len(before) + len(shown)
        yield line[: len(before)] + styled(line[len(before) : end], **row.style) + line[end:]
