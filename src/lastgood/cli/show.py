"""`lastgood show`, `lastgood ls` and `lastgood cat`"""

from __future__ import annotations

import sys
from stat import S_IFDIR, S_IFLNK, S_IFREG, filemode
from typing import TYPE_CHECKING, Any

import click

from lastgood.cli.completion import complete_checkpoints, complete_files, complete_inside
from lastgood.cli.invocation import Invocation, subcommand
from lastgood.cli.output import (
    change_line,
    few,
    field_lines,
    json_text,
    local_time,
    path_text,
    print_result,
    printable,
    printable_lines,
    shortened,
    size_text,
    value_text,
)
from lastgood.cli.status import spool_text
from lastgood.cli.summary import companion_lines, evidence_lines, place_text
from lastgood.errors import InvalidError
from lastgood.views.checkpoint import changes_since_parent, verification, view_detail
from lastgood.views.document import tagged
from lastgood.views.files import list_files, view_file

if TYPE_CHECKING:
    from lastgood import Checkpoint
    from lastgood.model.checkpoint import Attestation
    from lastgood.types import FileInfo

PREVIEW = 400
_TYPES = {"file": S_IFREG, "folder": S_IFDIR, "link": S_IFLNK}


@subcommand
@click.argument("name", default="HEAD", shell_complete=complete_checkpoints)
@click.option("--state", is_flag=True, help="Print the state alone, as JSON.")
def show(call: Invocation, name: str, state: bool) -> None:
    """Show everything about the checkpoint NAME: an id or its beginning, a tag, HEAD, @12, or any of
    them with ~1; or last-good."""
    with call.open() as store:
        checkpoint = store.find_checkpoint(name, call.task_id(), owner=call.owner)
        if state:
            click.echo(value_text(checkpoint.state, indent=0 if call.json else 2))
            return
        if call.json:
            click.echo(json_text(view_detail(store, checkpoint, call.owner)))
            return
        for line in _lines(checkpoint, checkpoint.attestations, spool_text(store, checkpoint)):
            click.echo(line)
        click.echo(f"state        {shortened(value_text(checkpoint.state), PREVIEW)}")
        changes = changes_since_parent(store, checkpoint, call.owner)
        lines = few([change_line(one) for one in changes or ()])
        for line in [*companion_lines(checkpoint), *(f"{'':<12} {line}" for line in lines)]:
            click.echo(line)


@subcommand
@click.argument("folder", default="HEAD", metavar="[CHECKPOINT[:PATH]]", shell_complete=complete_files)
@click.argument("path", required=False, shell_complete=complete_inside)
@click.option("-l", "long", is_flag=True, help="With mode and size, and where links point.")
@click.option("-R", "deep", is_flag=True, help="Include everything below.")
def ls(call: Invocation, folder: str, path: str | None, long: bool, deep: bool) -> None:
    """List the files of CHECKPOINT (default: HEAD) in the current folder, or in its folder PATH.

    Files that were not captured are listed as left out. With several folders paths look like app:src/main.py.
    """
    name, inside = split_name(call, folder, path)
    with call.open() as store:
        checkpoint = store.find_checkpoint(name, call.task_id(), owner=call.owner)
        found = list(list_files(store, checkpoint, inside, call.owner, deep=deep))
    view = {"checkpointId": checkpoint.id, "files": [view_file(info) for info in found]}
    print_result(call, view, (_long(info) if long else _short(info) for info in found))


@subcommand
@click.argument("file", metavar="CHECKPOINT[:PATH]", shell_complete=complete_files)
@click.argument("path", required=False, shell_complete=complete_inside)
def cat(call: Invocation, file: str, path: str | None) -> None:
    """Print the file PATH as it was at CHECKPOINT (empty: HEAD), byte by byte; of a link, where it points.

    On a terminal control characters are escaped.
    """
    if path is None and not file.partition(":")[2]:
        raise InvalidError("cat takes a checkpoint and a path", hint="as in `lastgood cat HEAD~1 src/app.py`")
    name, path = split_name(call, file, path)
    with call.open() as store:
        checkpoint = store.find_checkpoint(name, call.task_id(), owner=call.owner)
        pieces = store.stream_file(checkpoint.id, path, owner=call.owner)
        if call.json:
            content = b"".join(pieces)
            click.echo(json_text({"checkpointId": checkpoint.id, "path": path, "content": tagged(content)}))
        elif sys.stdout.isatty():
            content = b"".join(pieces)
            click.echo(printable_lines(content.decode("utf-8", "backslashreplace")), nl=False)
        else:
            for piece in pieces:
                click.echo(piece, nl=False)


def split_name(call: Invocation, text: str, path: str | None) -> tuple[str, str]:
    """Split `HEAD~1:app.py`, or `HEAD~1` beside a path, into the name of a checkpoint and a path of the workspace."""
    name, colon, inside = text.partition(":")
    if colon and path is not None:
        raise click.UsageError(f"the path is given twice: {inside[:80]!r} and {path[:80]!r}")
    return name or "HEAD", call.in_workspace(inside if path is None else path)


def _lines(checkpoint: Checkpoint, attestations: list[Attestation], waiting: str | None) -> list[str]:
    fields: dict[str, Any] = {
        "checkpoint": checkpoint.id,
        "task": checkpoint.task_id,
        "sequence": place_text(checkpoint) if waiting is None else "none yet: it is spooled, and not in the store",
        "spool": waiting,
        "parent": checkpoint.parent_id or "none, it is the first",
        "branch": checkpoint.branch_id,
        "type": checkpoint.type,
        "time": local_time(checkpoint.created_at),
        "by": checkpoint.created_by,
        "step": checkpoint.step_id,
        "key": checkpoint.key,
        "tags": ", ".join(checkpoint.tags),
        "deleted": "yes" if checkpoint.deleted else "",
        "verified": _verified(checkpoint),
        "sha256": checkpoint.checksum.removeprefix("sha256:"),
        "state size": size_text(checkpoint.state_size),
        "files": _files(checkpoint),
        "metadata": value_text(checkpoint.metadata) if checkpoint.metadata else "",
    }
    lines = field_lines((name, str(value)) for name, value in fields.items() if value)
    lines += evidence_lines(checkpoint.evidence_pack)
    message = checkpoint.message.split("\n") if checkpoint.message else []
    lines += [f"{'message' if not i else '':<12} {printable(part)}" for i, part in enumerate(message)]
    return lines + [
        f"{one.kind:<12} {local_time(one.at)} by {printable(one.actor)} {_attested(one)}" for one in attestations
    ]


def _files(checkpoint: Checkpoint) -> str:
    return "; ".join(
        f"{root.name + ': ' if root.name else ''}{root.file_count:,} ({size_text(root.total_size)})"
        + (", those that were listed" if root.partial else "")
        + (f", git {root.git_head[:40]}" if root.git_head else "")
        for root in checkpoint.record.files or ()
    )


def _attested(attestation: Attestation) -> str:
    if attestation.kind != "verification":
        return value_text(attestation.data)
    if attestation.data.get("verified"):
        return "it held"
    if problems := attestation.data.get("problems"):
        return f"it was DAMAGED: {printable(str(problems[0]))}"
    statuses = [status for status, *_ in attestation.data.get("results", [])]
    if not statuses:
        return "it was whole"
    return "it did NOT hold" if "failed" in statuses else "it could not be said"


def _verified(checkpoint: Checkpoint) -> str:
    at = checkpoint.last_verified_at
    if at is not None and checkpoint.damage:
        return f"DAMAGED, {local_time(at)}: {printable(checkpoint.damage[0])}"
    if (judge := checkpoint.judge()) is not None:
        said = {"verified": "yes", "failed": "NO"}.get(verification(checkpoint), "it cannot be said")
        return f"{said}, by {place_text(judge)} {judge.id}, which has the same state and files"
    if at is None or not checkpoint.has_evidence or checkpoint.evidence_pack.is_refused:
        return "not checked yet" if checkpoint.evidence_pack.evidence_list else "unverified: it has no evidence"
    result = {"verified": "yes", "failed": "NO"}.get(verification(checkpoint), "it cannot be said any more")
    return f"{result}, {local_time(at)}"


def _short(info: FileInfo) -> str:
    if info.kind == "left out":
        return f"{path_text(info.path)} (left out: {info.why})"
    return path_text(info.path) + ("/" if info.kind == "folder" else "")


def _long(info: FileInfo) -> str:
    kind = _TYPES.get(info.kind)
    mode = "?---------" if kind is None else filemode(kind | (0o777 if info.kind == "link" else info.mode or 0))
    size = "-" if info.size is None else str(info.size)
    target = f" -> {path_text(info.target)}" if info.target is not None else ""
    return f"{mode} {size:>12} {_short(info)}{target}"
