"""A compiled copy of lastgood: a helper process that a store starts would compile it again, each time, where Python is
told to write nothing beside the source."""

from __future__ import annotations

import compileall
import functools
import shutil
import tempfile
from pathlib import Path

import lastgood

SOURCE = Path(lastgood.__file__).parent


def copy_source(folder: Path) -> Path:
    """Copy lastgood into a folder. Return what to put in front of the path to import it."""
    shutil.copytree(SOURCE, folder / "lastgood", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@functools.cache
def compiled() -> Path:
    """Return the folder of a compiled copy, made once for this process."""
    folder = tempfile.TemporaryDirectory(prefix="lastgood-compiled-")
    _kept.append(folder)
    copied = copy_source(Path(folder.name))
    compileall.compile_dir(copied, quiet=2)
    return copied


_kept: list[tempfile.TemporaryDirectory[str]] = []
