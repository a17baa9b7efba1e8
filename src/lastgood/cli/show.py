"""`lastgood show`"""

from __future__ import annotations

from typing import Any

import click

from lastgood.cli.command import subcommand
from lastgood.cli.evidence import evidence_lines
from lastgood.cli.files import change_line, described, few
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, json_text, local_time, printable, shortened, size_text
from lastgood.cli.spool import waits
from lastgood.cli.summary import moment_text, place_text, summary, verification
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.difference import FileChange
from lastgood.model.checkpoint import Attestation, FileRoot
from lastgood.model.identity import moment
from lastgood.store import Store

PREVIEW = 400


@subcommand
@click.argument("name", default="HEAD")
@click.option("--state", is_flag=True, help="Print the state alone, as JSON.")
def command(call: Invocation, name: str, state: bool) -> None:
    """Show everything about the checkpoint NAME: an id or its beginning, a tag, HEAD, @12, or any of them with ~1."""
    with call.open() as store:
        checkpoint = store.find_checkpoint(name, call.task_id(), owner=call.owner)
        if state:
            click.echo(json_text(checkpoint.state, indent=0 if call.json else 2))
            return
        from lastgood.cli.companions import companion_lines, companions

        said = store.attestations(checkpoint.id, owner=call.owner)
        data: dict[str, Any] = {
            **summary(checkpoint),
            **companions(checkpoint),
            "evidence": checkpoint.evidence_pack.to_dict(),
            "attestations": [
                {"kind": one.kind, "at": moment_text(moment(one.at)), "actor": one.actor, "data": one.data}
                for one in said
            ],
        }
        if call.json:
            changes = _changes(call, store, checkpoint)
            data["file_roots"] = [_root(root) for root in checkpoint.record.files or ()]
            data["files"] = None if changes is None else [described(one) for one in changes]
        answer(call, data, _lines(checkpoint, said, waits(store, checkpoint)))
        if not call.json:
            click.echo(f"state        {shortened(json_text(checkpoint.state), PREVIEW)}")
            for line in companion_lines(checkpoint):
                click.echo(line)
            for line in few([change_line(one) for one in _changes(call, store, checkpoint) or ()]):
                click.echo(f"{'':<12} {line}")


def _changes(call: Invocation, store: Store, checkpoint: Checkpoint) -> list[FileChange] | None:
    """Against the parent; None where no files were captured."""
    if checkpoint.record.files is None:
        return None
    return store.compare_files(None, checkpoint.id, owner=call.owner).changes


def _root(root: FileRoot) -> dict[str, Any]:
    return {
        "name": root.name,
        "partial": root.partial,
        "file_count": root.file_count,
        "total_size": root.total_size,
        "git_head": root.git_head,
    }


def _lines(checkpoint: Checkpoint, said: list[Attestation], waiting: str | None) -> list[str]:
    fields: dict[str, Any] = {
        "checkpoint": checkpoint.id,
        "task": checkpoint.task_id,
        "sequence": place_text(checkpoint) if waiting is None else "none yet: it is spooled, and not in the store",
        "spool": waiting,
        "parent": checkpoint.parent_id or "none, it is the first",
        "branch": checkpoint.branch_id,
        "type": checkpoint.type,
        "lineage": checkpoint.lineage,
        "time": local_time(checkpoint.created_at),
        "by": checkpoint.created_by,
        "step": checkpoint.step_id,
        "key": checkpoint.key,
        "tags": ", ".join(checkpoint.tags),
        "deleted": "yes" if checkpoint.deleted else "",
        "verified": _verified(checkpoint),
        "checksum": checkpoint.checksum,
        "size": size_text(checkpoint.state_size),
        "files": _files(checkpoint),
        "metadata": json_text(checkpoint.metadata) if checkpoint.metadata else "",
    }
    lines = [f"{name:<12} {printable(str(value))}" for name, value in fields.items() if value]
    lines += evidence_lines(checkpoint.evidence_pack)
    lines += [f"{'message' if not i else '':<12} {printable(part)}" for i, part in enumerate(_message(checkpoint))]
    return lines + [
        f"{one.kind:<12} {local_time(moment(one.at))} by {printable(one.actor)} {_told(one)}" for one in said
    ]


def _files(checkpoint: Checkpoint) -> str:
    return "; ".join(
        f"{root.name + ': ' if root.name else ''}{root.file_count:,} ({size_text(root.total_size)})"
        + (", those that were listed" if root.partial else "")
        + (f", git {root.git_head[:40]}" if root.git_head else "")
        for root in checkpoint.record.files or ()
    )


def _told(attestation: Attestation) -> str:
    if attestation.kind != "verification":
        return json_text(attestation.data)
    if attestation.data.get("verified"):
        return "it held"
    statuses = [status for status, *_ in attestation.data.get("results", [])]
    return "it did NOT hold" if "failed" in statuses or not statuses else "it could not be said"


def _verified(checkpoint: Checkpoint) -> str:
    at = checkpoint.last_verified_at
    if at is None or checkpoint.evidence_pack.is_refused:
        return "not checked yet" if checkpoint.evidence_pack.evidence_list else "unverified: it has no evidence"
    said = {"verified": "yes", "failed": "NO"}.get(verification(checkpoint), "it cannot be said any more")
    return f"{said}, {local_time(at)}"


def _message(checkpoint: Checkpoint) -> list[str]:
    return checkpoint.message.split("\n") if checkpoint.message else []
