"""What a checkpoint captured at the paths that its evidence speaks of."""

from __future__ import annotations

import os
import posixpath
import stat
from functools import partial
from typing import TYPE_CHECKING, Literal

from lastgood.evidence.captured import CapturedFile, FindCaptured
from lastgood.model.checkpoint import FileRoot
from lastgood.model.tree import Entry, File, Folder, Left, Link

if TYPE_CHECKING:
    from lastgood.engine.blobs import FileBlobs

MAX_LINKS = 40
_HERE = Folder(b"", 0o755, b"")


def seen_from(base: str, root: str) -> tuple[str, str] | None:
    """How a path relative to `base` becomes one relative to `root`: what to take off, what to put before it.

    None when neither folder lies in the other.
    """
    if base == root:
        return "", ""
    if root.startswith(base.rstrip("/") + "/"):
        return root[len(base.rstrip("/")) + 1 :] + "/", ""
    if base.startswith(root.rstrip("/") + "/"):
        return "", base[len(root.rstrip("/")) + 1 :] + "/"
    return None


def find_in(blobs: FileBlobs, roots: tuple[FileRoot, ...]) -> FindCaptured:
    """Looks paths of claims up in the captured trees. Absolute paths are about the outside world."""

    def find(path: str) -> CapturedFile | Literal["absent", "unknown"]:
        text = posixpath.normpath(path)
        for root in roots:
            if root.base is None or text.startswith(("/", "../")) or text == "..":
                continue
            off, before = root.base
            if off and not (text + "/").startswith(off):
                continue
            inside = posixpath.normpath(before + (text + "/")[len(off) :])
            found = _resolve(blobs, root, os.fsencode(inside))
            if found != "unknown" and not (found == "absent" and root.partial):
                return found
        return "unknown"

    return find


def _resolve(blobs: FileBlobs, root: FileRoot, path: bytes) -> CapturedFile | Literal["absent", "unknown"]:
    """What is there, links followed as long as they stay in the root."""
    for _ in range(MAX_LINKS):
        entry, rest, above = _walk(blobs, root.tree, path)
        match entry:
            case None:
                return "absent"
            case Left():
                return "unknown"
            case Link():
                target = posixpath.normpath(posixpath.join(above, entry.target, rest))
                if target.startswith((b"/", b"../")) or target == b"..":
                    return "unknown"
                path = target
            case Folder():
                return CapturedFile(stat.S_IFDIR | entry.mode)
            case File():
                return CapturedFile(stat.S_IFREG | entry.mode, entry.size, entry.digest, partial(blobs.stream, entry))
    return "unknown"


def _walk(blobs: FileBlobs, tree: bytes, path: bytes) -> tuple[Entry | None, bytes, bytes]:
    """The entry that a path leads to, or the first on the way that is no folder, what is left then, and where it is."""
    parts = [part for part in path.split(b"/") if part not in (b"", b".")]
    entry: Entry = _HERE
    for index, name in enumerate(parts):
        found = next((each for each in blobs.read_tree(tree) if each.name == name), None)
        rest, above = b"/".join(parts[index + 1 :]), b"/".join(parts[:index])
        if found is None:
            return None, b"", above
        if isinstance(found, Link | Left):
            return found, rest, above
        if isinstance(found, File):
            return (None if rest else found), b"", above
        entry, tree = found, found.tree
    return entry, b"", b""
