"""Where golden stores lie, and how they are taken down.

Each is one archive, `2.0.tar.xz`: the store's folder as a killed process left it, modes and all, but for what a host
only remembers (`objects.cache`). One opaque file, because nobody is to mend it; tar, because folders and modes are part
of a store; xz, because the log repeats the pages of the database, and its window is wide enough to see that (2.0 has
2 MB: 71 KB as xz, 278 KB as gzip). What to expect of it is written in `2.0.json`, to be read by people, too.

`1.4.tar.xz` is a store from before the first release. It has no expectation but to be refused.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import msgspec
from tests.golden.ledger import Expectation

FOLDER = Path(__file__).parent


def archive(version: str) -> Path:
    return FOLDER / f"{version}.tar.xz"


def expectation(version: str) -> Path:
    return FOLDER / f"{version}.json"


def unpack(version: str, folder: Path) -> Expectation:
    """Make `folder`, which is not there yet, the golden store of a format; what it must give back.

    It is to be opened as the user `golden`.
    """
    extract(version, folder)
    return msgspec.json.decode(expectation(version).read_bytes(), type=Expectation)


def extract(version: str, folder: Path) -> None:
    with tarfile.open(archive(version)) as packed:
        folder.mkdir(mode=0o700)
        packed.extractall(folder, filter="tar")


def _order(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


VERSIONS = tuple(sorted((file.name.removesuffix(".json") for file in FOLDER.glob("*.json")), key=_order))
"""Every format that there is a golden store of, oldest first."""
NEWEST = VERSIONS[-1] if VERSIONS else ""
REFUSED = "1.4"
"""A format that no release wrote, and none reads."""
