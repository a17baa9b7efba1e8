"""The git directory of a folder, found without git. What a `.git` file names is believed only if that says the same."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from lastgood.local.paths import read_beginning

_MAX_BYTES = 64 << 10
_WORKTREE = re.compile(rb"^\s*worktree\s*=\s*(.+?)\s*$", re.MULTILINE)


class Repository(NamedTuple):
    """A repository by the folder that its files are in. `directory` is its common git directory: that of a worktree is
    the repository's. None: a `.git` that links or points to what does not know this folder."""

    folder: Path
    directory: Path | None


def find_repository(folder: Path) -> Repository | None:
    """Find the repository that a folder is in, from its real path upwards."""
    for candidate in (folder, *folder.parents):
        place = candidate / ".git"
        if place.is_symlink() or place.is_file():
            return Repository(candidate, None if place.is_symlink() else _named_by(place))
        if place.is_dir():
            return Repository(candidate, place if (place / "HEAD").exists() else None)
    return None


def _named_by(file: Path) -> Path | None:
    """Return the git directory that a `.git` file names, if that is one of this folder: the worktree's own directory
    names the file, a submodule's configuration names the folder."""
    folder = _follow(file.parent, _read(file).removeprefix(b"gitdir:"))
    if folder is None:
        return None
    if common := _read(folder / "commondir"):
        return _follow(folder, common) if _follow(folder, _read(folder / "gitdir")) == file else None
    work = _WORKTREE.search(_read(folder / "config"))
    return folder if work and _follow(folder, work[1]) == file.parent else None


def _read(file: Path) -> bytes:
    """Return the beginning of a file; nothing where that cannot be had."""
    try:
        read = read_beginning(file, _MAX_BYTES)
    except (OSError, ValueError):
        return b""
    return b"" if read is None else read[0]


def _follow(folder: Path, text: bytes) -> Path | None:
    path = os.fsdecode(text.strip())
    return Path(os.path.realpath(folder / path)) if path and "\0" not in path else None
