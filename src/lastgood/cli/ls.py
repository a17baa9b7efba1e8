"""`lastgood ls`"""

from __future__ import annotations

from collections.abc import Iterator
from stat import S_IFDIR, S_IFLNK, S_IFREG, filemode
from typing import TYPE_CHECKING, Any

import click

from lastgood.cli.cat import split_name
from lastgood.cli.command import subcommand
from lastgood.cli.files import path_text
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer
from lastgood.errors import NotFoundError

if TYPE_CHECKING:
    from lastgood.engine.browse import FileInfo
    from lastgood.store import Store

_TYPES = {"file": S_IFREG, "folder": S_IFDIR, "link": S_IFLNK}


@subcommand
@click.argument("folder", default="HEAD", metavar="[CHECKPOINT[:PATH]]")
@click.option("-l", "long", is_flag=True, help="With mode and size, and where links point.")
@click.option("-R", "deep", is_flag=True, help="With all that is below.")
def command(call: Invocation, folder: str, long: bool, deep: bool) -> None:
    """List the files of CHECKPOINT (default: HEAD), or what lies in its folder PATH.

    What was seen and not captured is listed as left out. With several folders paths look like app:src/main.py.
    """
    name, path = split_name(folder)
    with call.open() as store:
        checkpoint = store.find_checkpoint(name, call.task_id(), owner=call.owner)
        found = list(_walk(store, call, checkpoint.id, path, deep))
    data = {"checkpoint_id": checkpoint.id, "files": [described(info) for info in found]}
    answer(call, data, (_long(info) if long else _short(info) for info in found))


def described(info: FileInfo) -> dict[str, Any]:
    """For programs."""
    return {**info._asdict(), "mode": None if info.mode is None else f"{info.mode:04o}"}


def _walk(store: Store, call: Invocation, checkpoint_id: str, path: str, deep: bool) -> Iterator[FileInfo]:
    """Depth first without recursion: a tree may be deeper than Python's stack."""
    waiting = list(reversed(_list(store, call, checkpoint_id, path)))
    while waiting:
        info = waiting.pop()
        yield info
        if deep and info.kind == "folder":
            waiting.extend(reversed(store.list_files(checkpoint_id, info.path, owner=call.owner)))


def _list(store: Store, call: Invocation, checkpoint_id: str, path: str) -> list[FileInfo]:
    """What lies in the folder; of anything else, itself."""
    try:
        return store.list_files(checkpoint_id, path, owner=call.owner)
    except NotFoundError:
        wanted = path.rstrip("/")
        above = wanted[: max(wanted.rfind("/"), wanted.find(":")) + 1]
        found = store.list_files(checkpoint_id, above, owner=call.owner) if wanted else []
        same = [info for info in found if info.path == wanted]
        if not same:
            raise
        return same


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
