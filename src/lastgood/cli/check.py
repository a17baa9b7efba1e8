"""`lastgood check` and `lastgood repair`"""

from __future__ import annotations

import click

from lastgood.cli.command import subcommand
from lastgood.cli.files import few, path_text
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import counted, print_result, printable, short_id, size_text, styled
from lastgood.cli.progress import counting
from lastgood.cli.quantity import share
from lastgood.errors import IntegrityError
from lastgood.opening import check_at
from lastgood.upkeep.report import CheckReport, Finding, RepairReport, TaskHealth, Use

MOST_PARTS = 5
MOST_FINDINGS = 50


@subcommand
@click.option("--read-data", is_flag=True, help="Read every byte of content, too.")
@click.option("--sample", callback=share, metavar="SHARE", help="Read a random share of the blobs, as in 5%.")
@click.option("--seed", type=int, help="Choose the same sample again.")
def check(call: Invocation, read_data: bool, sample: float | None, seed: int | None) -> None:
    """Check the whole store: database, records, chains, places, references, directories, packs; with --read-data
    every byte. Says what is damaged, which checkpoints and files need it, and what still works. Changes nothing.
    """
    if read_data and sample is not None:
        raise click.UsageError("check takes --read-data or --sample, not both")
    if seed is not None and sample is None:
        raise click.UsageError("--seed repeats a --sample")
    call.require_store()
    with counting(call, "checking") as stage:
        report = check_at(
            call.store,
            read_data=read_data,
            sample=sample,
            seed=seed,
            progress=lambda done, of: stage("bytes read", done, of),
        )
    print_result(call, report, _check_lines(report))
    if not report.ok:
        click.get_current_context().exit(IntegrityError.exit_code)


@subcommand
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--accept-loss", is_flag=True, help="Go on without the acknowledged commits that are gone.")
def repair(call: Invocation, dry_run: bool, accept_loss: bool) -> None:
    """Repair damaged data from intact copies: the index of blobs from packs, counters and names from records, damaged
    content from wherever it still is. Nothing is invented, and a copy of all that is changed is kept. What nobody has
    is told.
    """
    with call.open_to_work() as store, counting(call, "repairing"):
        report = store.repair(dry_run=dry_run, accept_loss=accept_loss)
    print_result(call, report, _repair_lines(report))
    if not report.ok:
        click.get_current_context().exit(IntegrityError.exit_code)


def _check_lines(report: CheckReport) -> list[str]:
    lines = [line for finding in report.findings[:MOST_FINDINGS] for line in _finding_lines(finding)]
    if len(report.findings) > MOST_FINDINGS:
        lines.append(f"… and {len(report.findings) - MOST_FINDINGS:,} more; --json has all")
    lines += few([f"note: {printable(remark.sentence)}" for remark in report.remarks])
    lines += [_task_line(task) for task in report.standings if task.damaged]
    seen = report.looked_at
    text = f"{counted(seen.checkpoints, 'checkpoint')}, {counted(seen.blobs, 'blob')}, {counted(seen.packs, 'pack')}"
    if report.depth != "structure":
        text += f"; {counted(seen.blobs_read, 'blob')} read, {size_text(seen.bytes_read)}"
    if report.seed is not None:
        text += f" (--seed {report.seed} reads the same)"
    if report.ok:
        verdict = styled("no damage", fg="green")
    else:
        verdict = styled(f"{counted(len(report.findings), 'finding')}", fg="red")
        verdict += "; `lastgood repair` mends what can be mended"
    return [*lines, f"looked at {text}", verdict]


def _finding_lines(finding: Finding) -> list[str]:
    """Return what was found, and the checkpoints that need it; those with the same paths on one line."""
    groups: dict[tuple[str, tuple[str, ...], int], list[Use]] = {}
    for use in finding.uses:
        if (use.parts or len(finding.uses) > 1) and use.id is not None:
            groups.setdefault((use.task_id, use.parts, use.more), []).append(use)
    lines = [f"  {_needed_line(*about, uses)}" for about, uses in groups.items()]
    return [f"{styled(finding.code, fg='red')}: {printable(finding.sentence)}", *few(lines)]


def _needed_line(task_id: str, parts: tuple[str, ...], more: int, uses: list[Use]) -> str:
    first, last = uses[0], uses[-1]
    where = f"@{first.sequence} {short_id(first.id or '')}"
    if len(uses) > 1:
        where = f"{counted(len(uses), 'checkpoint')} from @{first.sequence} to @{last.sequence}"
    shown = [path_text(part) for part in parts[:MOST_PARTS]]
    hidden = len(parts) - len(shown) + more
    listed = ", ".join(shown) + (f" and {hidden:,} more" if hidden else "")
    return f"{printable(task_id)} {where}" + (f": {listed}" if listed else "")


def _task_line(task: TaskHealth) -> str:
    head = "its newest checkpoint is whole" if task.head_intact else "its newest checkpoint is damaged"
    text = f"{printable(task.task_id)}: {task.damaged:,} of {counted(task.checkpoints, 'checkpoint')} damaged"
    newest = f"go back to {short_id(task.newest_intact)}" if task.newest_intact else "nothing to go back to"
    return f"{text}; {head}" + ("" if task.head_intact else f"; {newest}")


def _repair_lines(report: RepairReport) -> list[str]:
    word = "would be mended" if report.dry_run else "mended"
    lines = few([f"{styled(word, fg='green')}: {printable(mended.sentence)}" for mended in report.mended])
    lines += [line for finding in report.lost for line in _finding_lines(finding)]
    if report.accepted:
        text = "would be given up" if report.dry_run else "are given up"
        lines.append(f"{counted(report.accepted, 'acknowledged commit')} {text}")
    if report.quarantine is not None:
        lines.append(f"what was changed is kept in {printable(report.quarantine)}")
    if not report.mended and report.ok:
        return [*lines, "nothing to mend"]
    left = f"{len(report.lost):,} cannot be mended" if report.lost else "nothing is damaged any more"
    return [*lines, f"{len(report.mended):,} {word}; {left if not report.dry_run or report.lost else 'all of it'}"]
