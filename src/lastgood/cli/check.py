"""`lastgood check`, `lastgood repair`, `lastgood verify` and `lastgood last-good`"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import click

from lastgood.cli.completion import complete_checkpoints
from lastgood.cli.failure import confirm
from lastgood.cli.invocation import Invocation, subcommand, task_argument
from lastgood.cli.output import (
    counted,
    counting,
    few,
    fitted,
    json_text,
    path_text,
    print_result,
    printable,
    say,
    short_id,
    size_text,
    styled,
)
from lastgood.cli.summary import evidence_text, line, place_text
from lastgood.errors import EvidenceError, IntegrityError, LostCommitsError, NotFoundError
from lastgood.model.checkpoint import PROVISIONAL
from lastgood.opening import check_at
from lastgood.upkeep.report import CheckReport, Finding, RepairReport, TaskHealth, Use
from lastgood.views.checkpoint import (
    Examined,
    ExaminedResult,
    examine_all,
    examine_one,
    verification,
    view_checkpoint,
    view_verification,
)

if TYPE_CHECKING:
    from lastgood.types import Verification


MOST_PARTS = 5
MOST_FINDINGS = 50


@subcommand
@click.option("--read-data", is_flag=True, help="Read every byte of content, too.")
def check(call: Invocation, read_data: bool) -> None:
    """Check the whole store for damage: database, records, directories, packs; with --read-data every byte of content.

    Lists what is damaged, which checkpoints and files need it, and what still works. Changes nothing.
    """
    call.require_store()
    with counting(call, "checking") as stage:
        report = check_at(call.store, read_data, lambda done, of: stage("bytes read", done, of))
    print_result(call, report, _check_lines(call, report))
    if not report.ok:
        click.get_current_context().exit(IntegrityError.exit_code)


@subcommand
@click.option("--accept-loss", is_flag=True, help="Go on without the acknowledged commits that are gone.")
@click.option("--yes", is_flag=True, help="Do not ask before --accept-loss.")
def repair(call: Invocation, accept_loss: bool, yes: bool) -> None:
    """Repair damaged data from intact copies: the index of blobs from packs, counters and names from records, damaged
    content from wherever it still is. Lists what cannot be repaired.

    Nothing is invented, and a copy of everything that is changed is kept.
    """
    with call.open_to_work() as store:
        try:
            with counting(call, "repairing"):
                report = store.repair()
        except LostCommitsError as error:
            if not accept_loss:
                raise
            gone = counted(error.details["lost"], "acknowledged commit")
            confirm(call, f"go on for good without {gone} that the store has lost", "repair --accept-loss", yes)
            with counting(call, "repairing"):
                report = store.repair(accept_loss=True)
    print_result(call, report, _repair_lines(report))
    if not report.ok:
        click.get_current_context().exit(IntegrityError.exit_code)


def _check_lines(call: Invocation, report: CheckReport) -> list[str]:
    lines = [line for finding in report.findings[:MOST_FINDINGS] for line in _finding_lines(finding)]
    if len(report.findings) > MOST_FINDINGS:
        lines.append(f"… and {len(report.findings) - MOST_FINDINGS:,} more; --json has all")
    lines += [line for task in report.standings if task.damaged for line in _task_lines(task)]
    seen = report.looked_at
    text = f"{counted(seen.checkpoints, 'checkpoint')}, {counted(seen.blobs, 'blob')}, {counted(seen.packs, 'pack')}"
    if report.depth != "structure":
        text += f"; {counted(seen.blobs_read, 'blob')} read, {size_text(seen.bytes_read)}"
    if report.ok:
        verdict = styled("no damage", fg="green")
    else:
        verdict = styled(f"{counted(len(report.findings), 'problem')} found", fg="red")
        verdict += call.complete("; `lastgood repair` repairs what it can")
    return [*lines, f"checked {text}", verdict]


def _finding_lines(finding: Finding) -> list[str]:
    """Return what was found, and the checkpoints that need it; those with the same paths on one line."""
    groups: dict[tuple[str, tuple[str, ...], int], list[Use]] = {}
    for use in finding.uses:
        if (use.parts or len(finding.uses) > 1) and use.id is not None:
            groups.setdefault((use.task_id, use.parts, use.more), []).append(use)
    lines = [f"  {_needed_line(*about, uses)}" for about, uses in groups.items()]
    return [f"{styled(finding.code, fg='red')}: {_sentence(finding)}", *few(lines)]


def _sentence(finding: Finding) -> str:
    """Return what was found, with enough of a hash to find it in JSON, which has it whole."""
    return re.sub(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}", r"\1…", printable(finding.sentence))


def _needed_line(task_id: str, parts: tuple[str, ...], more: int, uses: list[Use]) -> str:
    first, last = uses[0], uses[-1]
    where = f"@{first.sequence} {short_id(first.id or '')}"
    if len(uses) > 1:
        where = f"{counted(len(uses), 'checkpoint')} from @{first.sequence} to @{last.sequence}"
    shown = [path_text(part) for part in parts[:MOST_PARTS]]
    hidden = len(parts) - len(shown) + more
    listed = ", ".join(shown) + (f" and {hidden:,} more" if hidden else "")
    return f"{printable(task_id)} {where}" + (f": {listed}" if listed else "")


def _task_lines(task: TaskHealth) -> list[str]:
    head = "its newest checkpoint is whole" if task.head_intact else "its newest checkpoint is damaged"
    text = f"{printable(task.task_id)}: {task.damaged:,} of {counted(task.checkpoints, 'checkpoint')} damaged"
    newest = f"restore {short_id(task.newest_intact)}, the newest intact one" if task.newest_intact else "no intact one"
    return [f"{text}; {head}", *([] if task.head_intact else [f"  {newest}"])]


def _repair_lines(report: RepairReport) -> list[str]:
    lines = few([f"{styled('repaired', fg='green')}: {_sentence(mended)}" for mended in report.mended])
    lines += [line for finding in report.lost for line in _finding_lines(finding)]
    if report.accepted:
        lines.append(f"{counted(report.accepted, 'acknowledged commit')} are gone for good")
    if report.quarantine is not None:
        lines += ["a copy of what was changed is kept in", f"  {printable(report.quarantine)}"]
    if not report.mended and report.ok:
        return [*lines, "nothing to repair"]
    left = f"{len(report.lost):,} cannot be repaired" if report.lost else "no damage is left"
    return [*lines, f"{len(report.mended):,} repaired; {left}"]


_WORDS: dict[ExaminedResult, str] = {
    "verified": "verified",
    "unverified": "unverified",
    "failed": "NOT verified",
    "damaged": "damaged",
    "intact": "intact",
}
_COLORS = {"verified": "green", "failed": "red", "damaged": "red"}


@subcommand
@click.argument("name", required=False, shell_complete=complete_checkpoints)
@click.option("--all", "every", is_flag=True, help="Every checkpoint of the store, or of the task given with --task.")
@click.option("--bytes-only", is_flag=True, help="Verify stored bytes only, not evidence.")
def verify(call: Invocation, name: str | None, every: bool, bytes_only: bool) -> None:
    """Verify the checkpoint NAME (default: HEAD): every stored byte is what was saved, and its evidence holds now.

    The result is recorded.
    """
    if every and name is not None:
        raise click.UsageError("verify takes NAME or --all, not both")
    found: list[Examined] = []
    with call.open_to_work() as store:
        if every:
            examined = examine_all(store, call.task, call.owner, bytes_only=bytes_only)
        else:
            examined = iter([examine_one(store, name or "HEAD", call.task_id(), call.owner, bytes_only=bytes_only)])
        for one in examined:
            found.append(one)
            if not call.json:
                click.echo("\n".join(_lines(one)))
    count = {result: sum(one.result == result for one in found) for result in _WORDS}
    if call.json:
        click.echo(json_text(view_verification(found)))
    elif every:
        counts = ", ".join(f"{number} {_WORDS[result]}" for result, number in count.items() if number)
        click.echo(f"{counted(len(found), 'checkpoint')}: {counts or 'nothing to verify'}")
    if count["damaged"] or count["failed"]:
        wrong = IntegrityError if count["damaged"] else EvidenceError
        click.get_current_context().exit(wrong.exit_code)


@subcommand
@task_argument()
@click.option("--any", "any_", is_flag=True, help="Accept an unverified one, too.")
@click.option("--type", "type_", metavar="TYPE", help="Only one of this type.")
def last_good(call: Invocation, any_: bool, type_: str | None) -> None:
    """Find the newest checkpoint of the active branch that is whole and whose evidence holds now. It is also
    a name for other commands: `lastgood restore last-good`. In a pipe only its place is printed, such as @15.

    The evidence of an ancestor with the same state and files counts. If no checkpoint has evidence, an unverified one
    is found.
    """
    from lastgood.views.records import find_last_good

    passed: list[Verification] = []
    with call.open_to_work() as store:
        task_id = call.task_id()
        found = find_last_good(store, task_id, call.owner, any=any_, type=type_, on_passed=passed.append)
        notes = [_refusal(one) for one in passed if one.refusal is not None][:1]
        if found is None:
            asked = "is whole and not known to be bad" if any_ else "is whole, with evidence that holds"
            message = "; ".join([f"no checkpoint of {task_id!r} {asked}", *notes])
            more = "" if any_ else "; --any accepts one that is unverified"
            raise NotFoundError(message, hint=f"`lastgood verify --all` says why{more}")
        if verification(found) == "unverified":
            notes.append("it is unverified: it is whole, and nothing says whether it is good")
        for note in notes:
            say(call, f"note: {note}")
        view = {"checkpoint": view_checkpoint(found)}
    print_result(call, view, [fitted(line(found)) if sys.stdout.isatty() else place_text(found)])


def _refusal(one: Verification) -> str:
    return f"whether {short_id(one.checkpoint_id)} is good cannot be said here: {one.refusal}"


def _lines(one: Examined) -> list[str]:
    word = styled(_WORDS[one.result], fg=_COLORS.get(one.result))
    if one.result == "unverified":
        word += " (its evidence cannot be checked)" if one.evidence else " (no evidence)"
    if one.inherited_from is not None:
        word += f" (by {short_id(one.inherited_from)}, which has the same state and files)"
    place = f"@{one.sequence}" if one.sequence < PROVISIONAL else "spooled"
    first = f"{printable(one.task_id)} {place} {short_id(one.id or '')}".rstrip()
    return [
        f"{first}: {word}",
        *(f"  {printable(problem)}" for problem in one.problems),
        *(f"  {evidence_text(evidence)}" for evidence in one.evidence),
    ]
