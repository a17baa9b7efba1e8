"""`lastgood check`"""

from __future__ import annotations

from typing import Any

import click

from lastgood.cli.command import subcommand
from lastgood.cli.files import few, path_text
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, counted, printable, short_id, size_text, styled
from lastgood.cli.progress import counting
from lastgood.errors import IntegrityError
from lastgood.upkeep.check import check_at
from lastgood.upkeep.report import CheckReport, Finding, TaskHealth, Use

MOST_PARTS = 5
MOST_FINDINGS = 50


def _share(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """`5%`, or `0.05`."""
    if value is None:
        return None
    try:
        share = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise click.BadParameter(f"{value!r} is no share of the blobs; give one as 5%", ctx, param)
    return share


@subcommand
@click.option("--read-data", is_flag=True, help="Read every byte of content, too.")
@click.option("--sample", callback=_share, metavar="SHARE", help="Read a random share of the blobs, as in 5%.")
@click.option("--seed", type=int, help="Choose the same sample again.")
def command(call: Invocation, read_data: bool, sample: float | None, seed: int | None) -> None:
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
    answer(call, described(report), _lines(report))
    if not report.ok:
        click.get_current_context().exit(IntegrityError.exit_code)


def described(report: CheckReport) -> dict[str, Any]:
    """For programs."""
    import msgspec

    return {
        "ok": report.ok,
        "depth": report.depth,
        "seed": report.seed,
        "findings": [described_finding(finding) for finding in report.findings],
        "remarks": [described_finding(remark) for remark in report.remarks],
        "tasks": [msgspec.structs.asdict(health) for health in report.standings],
        "looked_at": msgspec.structs.asdict(report.looked_at),
    }


def described_finding(finding: Finding) -> dict[str, Any]:
    import msgspec

    return {
        **{name: getattr(finding, name) for name in ("code", "kind", "name", "sentence", "owner", "task_id")},
        "blobs": list(finding.blobs),
        "uses": [{**msgspec.structs.asdict(use), "parts": list(use.parts)} for use in finding.uses],
    }


def _lines(report: CheckReport) -> list[str]:
    lines = [line for finding in report.findings[:MOST_FINDINGS] for line in finding_lines(finding)]
    if len(report.findings) > MOST_FINDINGS:
        lines.append(f"… and {len(report.findings) - MOST_FINDINGS:,} more; --json has all")
    lines += few([f"note: {printable(remark.sentence)}" for remark in report.remarks])
    lines += [_health_line(health) for health in report.standings if health.damaged]
    seen = report.looked_at
    told = f"{counted(seen.checkpoints, 'checkpoint')}, {counted(seen.blobs, 'blob')}, {counted(seen.packs, 'pack')}"
    if report.depth != "structure":
        told += f"; {counted(seen.blobs_read, 'blob')} read, {size_text(seen.bytes_read)}"
    if report.seed is not None:
        told += f" (--seed {report.seed} reads the same)"
    if report.ok:
        verdict = styled("no damage", fg="green")
    else:
        verdict = styled(f"{counted(len(report.findings), 'finding')}", fg="red")
        verdict += "; `lastgood repair` mends what can be mended"
    return [*lines, f"looked at {told}", verdict]


def finding_lines(finding: Finding) -> list[str]:
    """What was found, and the checkpoints that need it; those with the same paths on one line."""
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


def _health_line(health: TaskHealth) -> str:
    head = "its newest checkpoint is whole" if health.head_intact else "its newest checkpoint is damaged"
    told = f"{printable(health.task_id)}: {health.damaged:,} of {counted(health.checkpoints, 'checkpoint')} damaged"
    newest = f"go back to {short_id(health.newest_intact)}" if health.newest_intact else "nothing to go back to"
    return f"{told}; {head}" + ("" if health.head_intact else f"; {newest}")
