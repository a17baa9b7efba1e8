"""Write the golden store of today's format: `python -m tests.golden.make`, from the root of a clone.

It writes `2.0.tar.xz`, the store, and `2.0.json`, what it must give back; commit both. Tests demand one for each format
that a migration names. Until the first release the format may still change under its number: then the store is made
again. From the first release on a store that is on the shelf is never written anew: code that cannot read it any more
has changed the format, and needs a version of its own. What is new in a format goes into a chapter of `story.py`.
"""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.golden import shelf, story

from lastgood.catalog.sqlite.migration import migrations

LEFT = "objects.cache"
RELEASED: tuple[str, ...] = ()
"""Formats that a release has written."""


def main() -> None:
    version = migrations()[-1].format
    if version in RELEASED and shelf.archive(version).exists():
        sys.exit(f"there is a golden store of format {version}; it stays as it is")
    with tempfile.TemporaryDirectory(prefix="golden-", dir="/tmp") as name:  # the path is kept in the store
        folder = Path(name)
        done = subprocess.run([sys.executable, "-m", "tests.golden.make", name], check=False)
        if done.returncode != -signal.SIGKILL:
            sys.exit("the story did not come to its end")
        packed = _pack(folder / "store")
        shelf.expectation(version).write_bytes((folder / "expectation.json").read_bytes() + b"\n")
        shelf.archive(version).write_bytes(packed)
    sys.stdout.write(f"{shelf.archive(version)}: {len(packed):,} bytes\n")


def _pack(store: Path) -> bytes:
    """The store's folder, without who owned it and when."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if LEFT in Path(member.name).parts:
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = 0
        return member

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=9) as archive:
        archive.add(store, ".", filter=anonymous)
    return buffer.getvalue()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        story.tell(Path(sys.argv[1]), (Path(sys.argv[1]) / "expectation.json").write_bytes)
    main()
