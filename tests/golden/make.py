"""Write the golden store of today's format: `python -m tests.golden.make`, from the root of a clone.

Run it by hand when a format is done, and commit what it writes: `1.4.tar.xz`, the store, and `1.4.json`, what it must
give back. Tests demand one for each format that a migration names. A store that is on the shelf is never written anew:
code that cannot read it any more has changed the format, and needs a version of its own. (Only a format that was never
part of a release may be taken off by hand, and made again.) What is new in a format goes into a chapter of `story.py`.

Older formats were written by their own code, at 3959566 (1.0), 304b191 (1.1) and 3eb0bef (1.2), with

    PYTHONPATH=<a clone of that>/src:. python -m tests.golden.make

The packs of 1.2 have a shorter header than those since: what is in them can be read, but a check calls their index
damaged until a repair has written them anew. No release wrote any, so the golden store of 1.2 has none: its files are
small enough to lie in the catalog.
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


def main() -> None:
    version = migrations()[-1].format
    if shelf.archive(version).exists():
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
