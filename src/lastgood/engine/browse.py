"""The files in a checkpoint: listed, read, and looked up for evidence about them."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from lastgood.engine.blobs import FileBlobs
from lastgood.engine.load import require_files
from lastgood.errors import IntegrityError, InvalidError, LostCommitsError, NotFoundError
from lastgood.files.selection import locate, select, split_exact
from lastgood.model.checkpoint import FileRoot, Record
from lastgood.model.identity import digest_text
from lastgood.model.tree import Entry, EntryCount, File, Folder, Left, Link

if TYPE_CHECKING:
    from lastgood.evidence.files import CapturedFile, FindCaptured

MAX_LINKS = 40
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
        return [FileInfo(root.name, "folder", size=root.total_size) for root in roots]
    root, parts = _locate(roots, path)
    entry, _ = _find(blobs, root, parts)
    if not isinstance(entry, Folder):
        raise missing_file(path)
    folder = show_path(root.name, b"".join(part + b"/" for part in parts))
    return [_info(folder, entry) for entry in blobs.read_tree(entry.tree)]


def read_file(blobs: FileBlobs, roots: Sequence[FileRoot], path: str) -> Iterator[bytes] | None:
    """Return the content of a file, piece by piece; of a link, where it points; None: there is no such file.

    NotFoundError where that is not known, because the file was left out.
    """
    root, parts = _locate(roots, path)
    entry, used = _find(blobs, root, parts)
    match entry if used == len(parts) else None:
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
            hint="go back to another checkpoint",
        )


def find_unmatched(
    blobs: FileBlobs, roots: Sequence[FileRoot], texts: Sequence[str], known: Callable[[], Sequence[str]]
) -> tuple[str, list[str]] | None:
    """Return the first path or pattern that selects none of these files, nor of the paths that `known` returns, and all
    of these; None when each selects something. What is there by its exact name is found without reading them all."""
    texts = [text for text in texts if text != "**" and not _exists(blobs, roots, text)]
    paths = [show_path(root.name, path) for root in roots for path, _ in walk_files(blobs, root)] if texts else []
    names = [root.name for root in roots]
    texts = [text for text in texts if not _is_selective(text, paths, names)]
    paths += known() if texts else ()
    return next(((text, paths) for text in texts if not _is_selective(text, paths, names)), None)


def _is_selective(text: str, paths: list[str], roots: list[str]) -> bool:
    """Return whether a path or pattern selects one of these paths at least."""
    located = [locate(path, roots) for path in paths]
    selections = {name: select([text], name) for name, _ in located}
    return any((found := selections[name]) is None or found.covers(os.fsencode(inside)) for name, inside in located)


def _exists(blobs: FileBlobs, roots: Sequence[FileRoot], path: str) -> bool:
    try:
        root, parts = _locate(roots, path)
    except (NotFoundError, InvalidError):
        return False
    entry, used = _find(blobs, root, parts)
    return entry is not None and used == len(parts)


def most_like(path: str, paths: list[str]) -> str | None:
    """Return the path of the same name in another folder, else the one that differs least in its letters."""
    from difflib import get_close_matches

    name = posixpath.basename(path)
    elsewhere = (one for one in paths if posixpath.basename(one) == name)
    return next(elsewhere, None) or next(iter(get_close_matches(path, paths[:MOST_COMPARED], 1)), None)


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


def _locate(roots: Sequence[FileRoot], path: str) -> tuple[FileRoot, list[bytes]]:
    name, inside = locate(path, [root.name for root in roots])
    for root in sorted(roots, key=lambda root: root.partial):
        if root.name == name:
            return root, split_exact(inside)
    raise missing_file(path)


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


def missing_file(path: str) -> NotFoundError:
    return NotFoundError(
        f"there is no file {path!r} in this checkpoint", hint="store.list_files(checkpoint_id) shows what there is"
    )
