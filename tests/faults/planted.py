"""Bugs that are known, because they are ours: each is put into a copy of lastgood, and a campaign must notice it.

A campaign that no bug trips proves nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import lastgood

SOURCE = Path(lastgood.__file__).parent


class Change(NamedTuple):
    """In `file` (below the package) `old` stands exactly once; it becomes `new`."""

    file: str
    old: str
    new: str


class Bug(NamedTuple):
    """`campaign` and `part`: who must notice it. `points`: of how many trials."""

    name: str
    changes: tuple[Change, ...]
    campaign: str
    part: str
    points: int | None = 150


def plant(bug: Bug, folder: Path) -> Path:
    """A copy of lastgood with the bug in it; what to put in front of the path to import it."""
    shutil.copytree(SOURCE, folder / "lastgood", ignore=shutil.ignore_patterns("__pycache__"))
    for file, old, new in bug.changes:
        place = folder / "lastgood" / file
        text = place.read_text()
        if text.count(old) != 1:
            raise ValueError(f"{bug.name}: what it changes is {text.count(old)} times in {file}: {old!r}")
        place.write_text(text.replace(old, new))
    return folder


BUGS = (
    Bug(
        "a new catalog is built in its place, not beside it",
        (
            Change(
                "catalog/sqlite/database.py",
                'fresh = path.with_name(f".{path.name}.{new_id()}.new")\n    try:',
                "fresh = path\n    try:",
            ),
        ),
        "kill",
        "create",
    ),
    Bug(
        "writes that were short are not completed",
        (
            Change(
                "objects/local.py",
                "    while rest:\n        rest = rest[os.write(descriptor, rest) :]",
                "    os.write(descriptor, rest)",
            ),
            Change("engine/draft.py", 'os.fdopen(descriptor, "wb")', 'os.fdopen(descriptor, "wb", buffering=0)'),
        ),
        "failing",
        "save packed",
    ),
    Bug(
        "an error of the disk is swallowed",
        (
            Change(
                "engine/draft.py",
                "self._writer.add(key, data)\n        except OSError as error:\n            self.discard()\n"
                "            raise disk_error(error) from error",
                "self._writer.add(key, data)\n        except OSError:\n            pass",
            ),
            Change("engine/draft.py", 'os.fdopen(descriptor, "wb")', 'os.fdopen(descriptor, "wb", buffering=0)'),
        ),
        "failing",
        "save packed",
    ),
    Bug(
        "an error of the disk comes as it is",
        (
            Change(
                "engine/draft.py",
                "except OSError as error:\n            raise disk_error(error) from error\n        self._file",
                "finally:\n            pass\n        self._file",
            ),
        ),
        "failing",
        "save packed",
    ),
)
