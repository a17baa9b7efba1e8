"""Folders as values: generated, built, looked at; and a store with a workspace to try them on.

A spec says what lies in a folder: name -> (mode, content) for a file, the target as bytes for a link, (mode, spec) for
a folder. What `look` finds on disk and what `flatten` makes of a spec are the same when the folder holds just that.
"""

# Names are raw bytes here, which pathlib does not take.
# ruff: noqa: PTH101, PTH102, PTH106, PTH108, PTH112, PTH114, PTH115, PTH118, PTH123, PTH208, PTH211

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from hypothesis import strategies as st

import lastgood

QUICK = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where syncing costs nothing: these tests sync thousands of times."""

Spec = dict[bytes, Any]
Found = dict[bytes, tuple[Any, ...]]
"""path -> ("file", mode, content) | ("link", target) | ("folder", mode)"""


class Bench(NamedTuple):
    """A store of its own and a folder beside it."""

    store: lastgood.Store
    root: Path

    def task(self, id: str = "t") -> lastgood.Task:
        return self.store.task(id, workspace=self.root)

    def new_task(self) -> lastgood.Task:
        return self.task(uuid4().hex)


@contextmanager
def bench() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        root = Path(folder, "work")
        root.mkdir()
        with lastgood.open(Path(folder, "store"), user="tester") as store:
            yield Bench(store, root)


def build(folder: os.PathLike[str] | str | bytes, spec: Spec) -> None:
    """Modes are given whatever the umask says; a folder's after what is in it."""
    for name, thing in spec.items():
        path = os.path.join(os.fsencode(folder), name)
        if isinstance(thing, bytes):
            os.symlink(thing, path)
            continue
        mode, inside = thing
        if isinstance(inside, dict):
            os.mkdir(path)
            build(path, inside)
        else:
            with open(path, "wb") as file:
                file.write(inside)
        os.chmod(path, mode)


def replace(folder: os.PathLike[str] | str, spec: Spec) -> None:
    """The folder holds this and nothing else."""
    _empty(os.fsencode(folder))
    build(folder, spec)


def _empty(folder: bytes) -> None:
    os.chmod(folder, 0o755)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isdir(path) and not os.path.islink(path):
            _empty(path)
            os.rmdir(path)
        else:
            os.unlink(path)


def look(folder: os.PathLike[str] | str | bytes) -> Found:
    """Everything below a folder, in the order of the paths."""
    return dict(sorted(_walk(os.fsencode(folder), b"")))


def _walk(folder: bytes, path: bytes) -> Iterator[tuple[bytes, tuple[Any, ...]]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            here = os.path.join(path, entry.name)
            mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
            if entry.is_symlink():
                yield here, ("link", os.readlink(entry.path))
            elif entry.is_dir():
                yield here, ("folder", mode)
                yield from _walk(entry.path, here)
            elif entry.is_file():
                with open(entry.path, "rb") as file:
                    yield here, ("file", mode, file.read())
            else:
                yield here, ("special", mode)


def flatten(spec: Spec, path: bytes = b"") -> Found:
    found: Found = {}
    for name, thing in spec.items():
        here = os.path.join(path, name)
        if isinstance(thing, bytes):
            found[here] = "link", thing
        elif isinstance(thing[1], dict):
            found[here] = "folder", thing[0]
            found |= flatten(thing[1], here)
        else:
            found[here] = "file", *thing
    return dict(sorted(found.items()))


def files(**named: str) -> Spec:
    """Plain text files; an underscore in a name stands for a dot."""
    return {name.replace("_", ".").encode(): (0o644, text.encode()) for name, text in named.items()}


def copy(source: Path, target: Path) -> None:
    """As it is, links and modes included, in the place of whatever is there."""
    if target.exists():
        remove(target)
    shutil.copytree(source, target, symlinks=True)


def remove(folder: Path) -> None:
    _empty(os.fsencode(folder))
    folder.rmdir()


NAMES = [b"a", b"A", b"b", b"new\nline", b"\xff\xfe", "é".encode(), "e\u0301".encode(), b"-rf", b'q"[x]*', b" "]
"""Few, so that a path is often one thing in one tree and another thing in the next: case-only renames, type changes."""

CONTENT = st.one_of(
    st.sampled_from([b"", b"one\n", b"two\n", b"no end", b"x\n" * 1200, b"\0\1\2" * 400]), st.binary(max_size=20)
)
FILES = st.tuples(st.sampled_from([0o644, 0o755, 0o600, 0o444, 0o4755]), CONTENT)
LINKS = st.sampled_from([b"a", b"b/a", b"../..", b"..", b".", b"/etc/passwd", b"/nowhere\xff", b"new\nline"])
"""To what lies beside them (or is not there), to themselves (`a` called `a`), round in circles, and to outside."""


def specs(
    things: st.SearchStrategy[Any], modes: tuple[int, ...] = (0o755, 0o700, 0o555, 0o2750)
) -> st.SearchStrategy[Spec]:
    def folders(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.tuples(st.sampled_from(modes), st.dictionaries(st.sampled_from(NAMES), below, max_size=4))

    return st.dictionaries(st.sampled_from(NAMES), st.recursive(things, folders, max_leaves=8), max_size=6)


SPECS = specs(st.one_of(FILES, LINKS))


def paths_of(found: Found, kind: str) -> list[bytes]:
    return [path for path, what in found.items() if what[0] == kind]


def without(found: Found, leave: Callable[[bytes], bool]) -> Found:
    return {path: what for path, what in found.items() if not leave(path)}
