"""Where golden stores lie, and how they are taken down.

Each is one archive, `1.3.tar.xz`: the store's folder as a killed process left it, modes and all, but for what a host
only remembers (`objects.cache`). One opaque file, because nobody is to mend it; tar, because folders and modes are part
of a store; xz, because the log repeats the pages of the database, and its window is wide enough to see that (1.3 has
1.9 MB: 71 KB as xz, 278 KB as gzip). What to expect of it is written in `1.3.json`, to be read by people, too.
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
    with tarfile.open(archive(version)) as packed:
        folder.mkdir(mode=0o700)
        packed.extractall(folder, filter="tar")
    return msgspec.json.decode(expectation(version).read_bytes(), type=Expectation)


def _order(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


VERSIONS = tuple(sorted((file.name.removesuffix(".tar.xz") for file in FOLDER.glob("*.tar.xz")), key=_order))
"""Every format that there is a golden store of, oldest first."""
