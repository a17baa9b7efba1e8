"""The files in a checkpoint: listed, read, and looked up for evidence about them."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from lastgood.engine.blobs import FileBlobs
from lastgood.engine.load import require_files
from lastgood.errors import IntegrityError, LostCommitsError, NotFoundError
from lastgood.files.selection import locate, split_exact
from lastgood.model.checkpoint import FileRoot, Record
from lastgood.model.identity import digest_text
from lastgood.model.tree import Entry, EntryCount, File, Folder, Left, Link

if TYPE_CHECKING:
    from lastgood.evidence.files import CapturedFile, FindCaptured

MAX_LINKS = 40
LISTED = "store.list_files(checkpoint_id) lists what there is"
MOST_COMPARED = 20_000
"""Paths that are compared letter by letter with one that is not there, in about a second."""
FileKind = Literal["file", "folder", "link", "left out"]


class FileInfo(NamedTuple):
    """A path in a checkpoint. `why` says why something was left out; `target` is where a link points."""

    path: str
    kind: FileKind
    mode: int | None = None
    size: int | None = None
    sha256: str | None = None
    target: str | None = None
    why: str | None = None


def list_files(blobs: FileBlobs, roots: Sequence[FileRoot], path: str = "") -> list[FileInfo]:
    """List what lies in a folder, without going deeper. With several roots their names come first."""
    if not path and any(root.name for root in roots):
        sizes = {root.name: [each.total_size for each in roots if each.name == root.name] for root in roots}
        return [FileInfo(name, "folder", size=sum(each)) for name, each in sizes.items()]
    named, parts = _locate(blobs, roots, path)
    there: dict[bytes, Entry] = {}
    folders = [entry.tree for root in named if isinstance(entry := _find(blobs, root, parts)[0], Folder)]
    for entry in (entry for tree in folders for entry in blobs.read_tree(tree)):
        if isinstance(there.get(entry.name), Left | None):
            there[entry.name] = entry
    if not folders:
        raise missing_file(blobs, roots, path)
    folder = show_path(named[0].name, b"".join(part + b"/" for part in parts))
    return [_info(folder, there[name]) for name in sorted(there)]


def read_file(blobs: FileBlobs, roots: Sequence[FileRoot], path: str) -> Iterator[bytes] | None:
    """Return the content of a file, piece by piece; of a link, where it points; None: there is no such file.

    NotFoundError where that is not known, because the file was left out.
    """
    named, parts = _locate(blobs, roots, path)
    found = [entry for root in named for entry, used in [_find(blobs, root, parts)] if entry and used == len(parts)]
    match min(found, key=lambda entry: isinstance(entry, Left), default=None):
        case File() as file:
            return blobs.stream(file)
        case Link() as link:
            return iter([link.target])
        case Left() as left:
            raise NotFoundError(f"{path!r} was left out of this checkpoint ({left.why})", hint="it was not captured")
    return None


def read_named(blobs: FileBlobs, record: Record, path: str) -> Iterator[bytes] | None:
    """Return what `read_file` does; damage that is met names the checkpoint and the file."""
    with _naming_damage(record.id, path):
        content = read_file(blobs, require_files(record), path)
    return None if content is None else _yield_named(content, record.id, path)


def _yield_named(content: Iterator[bytes], checkpoint_id: str, path: str) -> Iterator[bytes]:
    with _naming_damage(checkpoint_id, path):
        yield from content


@contextmanager
def _naming_damage(checkpoint_id: str, path: str) -> Iterator[None]:
    try:
        yield
    except LostCommitsError:
        raise
    except IntegrityError as error:
        raise IntegrityError(
            f"checkpoint {checkpoint_id}: {path}: {error}", hint=error.hint, checkpoint_id=checkpoint_id, path=path
        ) from error


def walk_files(blobs: FileBlobs, root: FileRoot) -> Iterator[tuple[bytes, Entry]]:
    """Yield every entry of a root with its path, in the order of the paths. IntegrityError when they are not as many
    files as its record says."""
    waiting, count = [(b"", root.tree)], EntryCount(root.file_count)
    while waiting:
        path, tree = waiting.pop()
        below = []
        for entry in count.take(blobs.read_tree(tree)):
            place = path + b"/" + entry.name if path else entry.name
            yield place, entry
            if isinstance(entry, Folder):
                below.append((place, entry.tree))
        waiting.extend(reversed(below))
    if count.files != root.file_count:
        raise IntegrityError(
            f"a directory of a checkpoint has {count.files:,} files, and its record says {root.file_count:,}",
            hint="restore another checkpoint",
        )


def suggest(path: str, paths: Sequence[str]) -> str:
    """Return a hint: the path of the same name in another folder, else the one that differs least in its letters."""
    from difflib import get_close_matches

    elsewhere = [one for one in paths if posixpath.basename(one) == posixpath.basename(path)]
    folders = {posixpath.dirname(one) for one in paths}
    near = elsewhere or get_close_matches(path, [*paths[:MOST_COMPARED], *folders], 1)
    return f"did you mean {near[0]}?" if near else LISTED


def show_path(root: str, path: bytes) -> str:
    """Return a path as people write it: `app:src/main.py` in a root that has a name."""
    text = os.fsdecode(path)
    return f"{root}:{text}" if root else text


def find_captured(blobs: FileBlobs, roots: Sequence[FileRoot]) -> FindCaptured:
    """Return a lookup of paths that evidence names. Absolute paths are about the outside world."""

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
    """Return what is there, links followed as long as they stay in the root."""
    from lastgood.evidence.files import CapturedFile

    for _ in range(MAX_LINKS):
        parts = [part for part in path.split(b"/") if part not in (b"", b".")]
        entry, used = _find(blobs, root, parts)
        match entry:
            case Left():
                return "unknown"
            case Link():
                path = posixpath.normpath(posixpath.join(*parts[: used - 1], entry.target, *parts[used:]))
                if path.startswith((b"/", b"../")) or path == b"..":
                    return "unknown"
            case Folder():
                return CapturedFile(stat.S_IFDIR | entry.mode)
            case File() if used == len(parts):
                return CapturedFile(stat.S_IFREG | entry.mode, entry.size, entry.digest, partial(blobs.stream, entry))
            case _:
                return "absent"
    return "unknown"


def _find(blobs: FileBlobs, root: FileRoot, parts: Sequence[bytes]) -> tuple[Entry | None, int]:
    """Return the entry that the names lead to, or the first on the way that is no folder; and how many led there."""
    entry: Entry | None = Folder(b"", 0o755, root.tree)
    for depth, name in enumerate(parts):
        if not isinstance(entry, Folder):
            return entry, depth
        entry = next((each for each in blobs.read_tree(entry.tree) if each.name == name), None)
    return entry, len(parts)


def _locate(blobs: FileBlobs, roots: Sequence[FileRoot], path: str) -> tuple[list[FileRoot], list[bytes]]:
    """Return the roots that a path may be in: the folder as it was captured, then what else was captured by name."""
    name, inside = locate(path, [root.name for root in roots])
    if named := sorted((root for root in roots if root.name == name), key=lambda root: root.partial):
        return named, split_exact(inside)
    raise missing_file(blobs, roots, path)


def _info(folder: str, entry: Entry) -> FileInfo:
    path = folder + os.fsdecode(entry.name)
    match entry:
        case File():
            return FileInfo(path, "file", entry.mode, entry.size, digest_text(entry.digest))
        case Folder():
            return FileInfo(path, "folder", entry.mode)
        case Link():
            return FileInfo(path, "link", target=os.fsdecode(entry.target))
        case Left():
            return FileInfo(path, "left out", why=entry.why)


def missing_file(blobs: FileBlobs, roots: Sequence[FileRoot], path: str) -> NotFoundError:
    """Return the error for a path that is not in a checkpoint; its hint names the one that is most like it."""
    paths = [show_path(root.name, one) for root in roots for one, _ in walk_files(blobs, root)]
    if any(one.startswith(f"{path.rstrip('/')}/") for one in paths):
        return NotFoundError(f"{path[:200]!r} is a folder in this checkpoint", hint=LISTED)
    return NotFoundError(f"there is no {path[:200]!r} in this checkpoint", hint=suggest(path, paths))
