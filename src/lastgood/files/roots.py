"""The folders that a task's files lie in, and what git says about them. Nothing here writes."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lastgood.errors import InvalidError
from lastgood.files.folders import FolderWalk, split
from lastgood.model.identity import check_name

MAX_SMALL = 4096
MAX_PACKED = 1 << 20
MAX_EXCLUDE = 1 << 20
MAX_HOPS = 5

_HASH = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_BRANCH = re.compile(r"refs(?:/(?![.])[^\x00-\x20\x7f-\x9f~^:?*\[\\/]{1,255}(?<![.])(?<![.]lock)){1,16}")
_FILE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class Root(NamedTuple):
    """A folder of a workspace. `path` is absolute and real; a workspace of one folder calls it ""."""

    name: str
    path: str


def open_roots(
    workspace: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]], *, store: Sequence[str] = ()
) -> tuple[Root, ...]:
    """Return the roots of a workspace, by name. `store` are the folders that the store itself lies in.

    InvalidError for what is no folder, for the root of the file system, the home directory, a folder of the store,
    and for folders that lie in each other.
    """
    if os.name == "nt":
        raise InvalidError(
            "files cannot be captured on Windows yet", hint="leave the workspace out; state and evidence are kept"
        )
    if not isinstance(workspace, Mapping):
        return (_open_root("", workspace, store),)
    if not workspace:
        raise InvalidError("the workspace names no folder", hint="give at least one, or leave the workspace out")
    named = [(check_name("the name of a workspace folder", name), path) for name, path in workspace.items()]
    roots = tuple([_open_root(name, path, store) for name, path in sorted(named)])
    for position, one in enumerate(roots):
        for other in roots[position + 1 :]:
            _refuse_overlap(one, other)
    return roots


def _open_root(name: str, path: str | os.PathLike[str], store: Sequence[str]) -> Root:
    real = _to_real(path)
    if _is_same(real, "/"):
        raise InvalidError("the root of the file system cannot be a workspace", hint="give the folder of the project")
    if any(_is_same(real, home) for home in _homes()):
        raise InvalidError("the home directory cannot be a workspace", hint="give the folder of the project")
    if any(_is_within(real, folder) for folder in store):
        raise InvalidError("the workspace lies inside the store", hint="give the folder of the project")
    return Root(name, real)


def _to_real(path: object) -> str:
    try:
        text = os.path.expanduser(os.fsdecode(path))  # type: ignore[arg-type]  # noqa: PTH111
    except TypeError as error:
        raise InvalidError(f"a workspace cannot be {type(path).__name__}", hint="give the path of a folder") from error
    if not text or "\0" in text:
        raise InvalidError("the workspace's path is empty or has a NUL in it", hint="give the path of a folder")
    shown = ascii(text[:200])
    try:
        real = os.path.realpath(text, strict=True)
        is_folder = stat.S_ISDIR(os.stat(real).st_mode)  # noqa: PTH116
    except FileNotFoundError as error:
        raise InvalidError(f"the workspace {shown} is not there", hint="make the folder first") from error
    except (OSError, UnicodeError) as error:
        raise InvalidError(
            f"the workspace {shown} cannot be reached", hint="look at its path and its rights"
        ) from error
    if not is_folder:
        raise InvalidError(f"the workspace {shown} is not a folder", hint="give the folder that the file lies in")
    return real


def _homes() -> list[str]:
    """Return the home directory as the environment says, and as the system says."""
    homes = [os.path.expanduser("~")]  # noqa: PTH111
    try:
        import pwd

        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    except (ImportError, KeyError):
        pass
    return homes


def _refuse_overlap(one: Root, other: Root) -> None:
    if _is_within(one.path, other.path) or _is_within(other.path, one.path):
        raise InvalidError(
            f"the workspace folders {one.name!r} and {other.name!r} lie in each other, or are the same",
            hint="give the outer one alone",
        )


def _is_within(path: str, folder: str) -> bool:
    """Return whether it lies in the folder, also by another name: another mount, or names without case."""
    while not _is_same(path, folder):
        above = os.path.dirname(path)  # noqa: PTH120
        if above == path:
            return False
        path = above
    return True


def _is_same(one: str, other: str) -> bool:
    try:
        return one == other or os.path.samefile(one, other)  # noqa: PTH121
    except (OSError, ValueError):
        return False


def git_head(root: Root) -> str | None:
    """Return the commit that the repository in `root` stands on; the branch while it has none; None when that is not
    to be had. Reads little and never raises."""
    folder = _git_folder(root)
    if folder is None:
        return None
    folders = (folder, _common_folder(folder))
    text, branch = _read(f"{folder}/HEAD", MAX_SMALL), ""
    for _ in range(MAX_HOPS):
        if text is None:
            break
        if _HASH.fullmatch(text.strip()):
            return text.strip().decode()
        branch = _to_branch(text)
        if not branch:
            return None
        text = _read_branch(folders, branch)
    return branch.removeprefix("refs/heads/") or None


def git_exclude(root: Root) -> bytes:
    """Return the text of the repository's info/exclude; empty when there is none."""
    folder = _git_folder(root)
    return b"" if folder is None else _read(f"{_common_folder(folder)}/info/exclude", MAX_EXCLUDE) or b""


def _git_folder(root: Root) -> str | None:
    """Return `.git`, or the folder that a file of this name names."""
    place = os.path.join(root.path, ".git")  # noqa: PTH118
    if os.path.isdir(place):  # noqa: PTH112
        return place
    text = _read(place, MAX_SMALL)
    if text is None or not text.startswith(b"gitdir:"):
        return None
    return _resolve(root.path, text.removeprefix(b"gitdir:"))


def _common_folder(folder: str) -> str:
    """Return where a worktree's branches are: in the repository that it belongs to."""
    text = _read(f"{folder}/commondir", MAX_SMALL)
    return folder if text is None else _resolve(folder, text) or folder


def _resolve(folder: str, text: bytes) -> str | None:
    path = os.fsdecode(text.strip())
    return os.path.join(folder, path) if path and "\0" not in path and "\n" not in path else None  # noqa: PTH118


def _to_branch(text: bytes) -> str:
    """Return the branch that a symbolic reference names; empty when it is none, or one that leads elsewhere."""
    try:
        name = text.removeprefix(b"ref:").strip().decode() if text.startswith(b"ref:") else ""
    except UnicodeDecodeError:
        return ""
    return name if _BRANCH.fullmatch(name) and ".." not in name and name.isprintable() else ""


def _read_branch(folders: tuple[str, str], branch: str) -> bytes | None:
    for folder in folders:
        text = _read(f"{folder}/{branch}", MAX_SMALL)
        if text is not None:
            return text
    packed = _read(f"{folders[1]}/packed-refs", MAX_PACKED) or b""
    line = re.search(rb"^([0-9a-f]{40,64}) " + re.escape(branch.encode()) + rb"$", packed, re.MULTILINE)
    return line and line[1]


def read_below(root: Root, path: bytes, limit: int) -> bytes | None:
    """Read the beginning of a regular file below `root`, following no link; None when it is not to be had."""
    folder, name = split(path)
    try:
        with FolderWalk(root.path) as walk:
            return _read(name, limit, walk.folder(folder))
    except OSError:
        return None


def _read(path: str | bytes, limit: int, folder: int | None = None) -> bytes | None:
    """Read the beginning of a regular file; None when it is not to be had."""
    try:
        descriptor = os.open(path, _FILE, dir_fd=folder)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(limit)
    except OSError:
        return None
    finally:
        os.close(descriptor)
