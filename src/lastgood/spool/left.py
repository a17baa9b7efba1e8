"""Spools that were put out of the way: another store lay at the same place, or they were damaged. Nothing of them is
lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from lastgood.errors import IntegrityError
from lastgood.spool.file import SpoolFile

Why = Literal["other-store", "damaged"]


def find_left(folder: Path | None, why: Why | None = None) -> list[Path]:
    """Of the spool that lies, or would lie, in `folder`."""
    if folder is None:
        return []
    beginnings = tuple(f"{folder.name}.{name}." for name in (("other-store", "damaged") if why is None else (why,)))
    try:
        names = os.listdir(folder.parent)  # noqa: PTH208  # whoever opens a store asks: 9 us, with Path.glob 210
    except OSError:
        return []
    return sorted(folder.parent / name for name in names if name.startswith(beginnings))


def bring_back(folder: Path | None, store_id: Callable[[], str], bring: Callable[[SpoolFile], object]) -> None:
    """What was put beside while another store was here, and is meant for the one that is here now."""
    for left in find_left(folder, "other-store"):
        file = SpoolFile(left)
        try:
            if file.has_pending() and _whose(file) == store_id():
                bring(file)
                if file.is_empty():
                    import shutil

                    shutil.rmtree(left)
        finally:
            file.close()


def _whose(file: SpoolFile) -> object:
    """The id of the store that it waits for; None when that is damaged: then it stays where it is."""
    try:
        return file.fact("store_id")
    except IntegrityError:
        return None
