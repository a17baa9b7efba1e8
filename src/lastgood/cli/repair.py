"""`lastgood repair`"""

from __future__ import annotations

from typing import Any

import click
import msgspec

from lastgood.cli.check import described as described_check
from lastgood.cli.check import described_finding, finding_lines
from lastgood.cli.command import subcommand
from lastgood.cli.files import few
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, counted, printable, styled
from lastgood.cli.progress import counting
from lastgood.errors import IntegrityError
from lastgood.upkeep.report import RepairReport


@subcommand
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--accept-loss", is_flag=True, help="Go on without the acknowledged commits that are gone.")
def command(call: Invocation, dry_run: bool, accept_loss: bool) -> None:
    """Mend what can be mended: the index of blobs from packs, counters and names from records, damaged content from
    wherever it still is. Nothing is invented, and a copy of all that is changed is kept. What nobody has is told.
    """
    with call.open_to_work() as store, counting(call, "repairing"):
        report = store.repair(dry_run=dry_run, accept_loss=accept_loss)
    answer(call, _described(report), _lines(report))
    if not report.ok:
        click.get_current_context().exit(IntegrityError.exit_code)


def _described(report: RepairReport) -> dict[str, Any]:
    return {
        "ok": report.ok,
        "dry_run": report.dry_run,
        "accepted": report.accepted,
        "mended": [msgspec.structs.asdict(mended) for mended in report.mended],
        "lost": [described_finding(finding) for finding in report.lost],
        "quarantine": report.quarantine,
        "check": described_check(report.check),
    }


def _lines(report: RepairReport) -> list[str]:
    word = "would be mended" if report.dry_run else "mended"
    lines = few([f"{styled(word, fg='green')}: {printable(mended.sentence)}" for mended in report.mended])
    lines += [line for finding in report.lost for line in finding_lines(finding)]
    if report.accepted:
        told = "would be given up" if report.dry_run else "are given up"
        lines.append(f"{counted(report.accepted, 'acknowledged commit')} {told}")
    if report.quarantine is not None:
        lines.append(f"what was changed is kept in {printable(report.quarantine)}")
    if not report.mended and report.ok:
        return [*lines, "nothing to mend"]
    left = f"{len(report.lost):,} cannot be mended" if report.lost else "nothing is damaged any more"
    return [*lines, f"{len(report.mended):,} {word}; {left if not report.dry_run or report.lost else 'all of it'}"]
