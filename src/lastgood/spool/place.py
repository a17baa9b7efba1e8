"""Where the spool of a store lies: a folder of its own for each user and store, never inside the store."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from lastgood.engine.options import Options
from lastgood.errors import InvalidError
from lastgood.local.location import CATALOG, objects_beside, state_folder
from lastgood.model.identity import digest

NAME = "spool.sqlite"


def spool_folder(catalog: Path, options: Options) -> Path | None:
    """None: in memory. It follows from the store's path alone, because a store that is away cannot tell its id."""
    if options.spool is None:
        return None
    target = os.path.realpath(catalog)
    if isinstance(options.spool, msgspec.UnsetType):
        try:
            above = state_folder() / "spool"
        except RuntimeError:  # a user without a home
            return None
    else:
        above = Path(os.path.abspath(os.path.expanduser(os.fspath(options.spool))))  # noqa: PTH100, PTH111
        _require_outside(Path(os.path.realpath(above)), Path(target))
    return above / digest(os.fsencode(target)).hex()[:32]


def _require_outside(folder: Path, catalog: Path) -> None:
    inside = [objects_beside(catalog), *([catalog.parent] if catalog.name == CATALOG else [])]
    if any(folder == each or each in folder.parents for each in inside):
        raise InvalidError(
            "the spool would lie inside the store that it stands in for", hint="give another folder", field="spool"
        )


def free_bytes(folder: Path) -> int | None:
    """How much room there is where `folder` is, or would be; None when nobody can tell."""
    path = str(folder)  # each save asks, so that no objects are made of the paths above
    while True:
        try:
            found = os.statvfs(path)
        except FileNotFoundError:
            above = path.rpartition("/")[0] or "/"
            if above == path:
                return None
            path = above
        except OSError:
            return None
        else:
            return found.f_bavail * found.f_frsize
