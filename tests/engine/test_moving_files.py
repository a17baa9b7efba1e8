"""Files and folders that others rename, replace, write and delete while they are saved and restored: at any system call
that names them, once or a few times. Nothing outside is read or written, and nothing that was written is lost (G14)."""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.file_trees import QUICK

import lastgood
from lastgood.files import apply
from lastgood.model.tree import is_temporary

pytestmark = pytest.mark.once

CALLS = ["open", "close", "read", "readv", "pread", "write", "stat", "lstat", "fstat", "scandir", "readlink", "mkdir"]
CALLS += ["rename", "unlink", "rmdir", "symlink", "fchmod", "chmod", "fsync"]
NAMES = ["a", "b", "d/a", "d/c", "d/e/f", "g/c", "new", "d/new"]
FOLDERS = ["d", "d/e", "g", "moved", "d/moved"]
LAST = 16
"""There are about so many calls that name one file or folder; what is to be done later is done when all is over."""


class Deed(NamedTuple):
    """What somebody does to a path before the so manieth call that names it."""

    at: int
    what: str
    path: str
    other: str


def _deeds() -> st.SearchStrategy[list[Deed]]:
    at = st.integers(1, LAST)
    names, folders = st.sampled_from(NAMES), st.sampled_from(FOLDERS)
    files = st.builds(Deed, at, st.sampled_from(["write", "replace", "delete", "rename"]), names, names)
    moves = st.builds(Deed, at, st.sampled_from(["rename", "link", "link back"]), folders, folders)
    return st.lists(files | moves, min_size=1, max_size=4)


class Others:
    """Others, who work in a folder: what they wrote, and where each content ever lay."""

    def __init__(self, root: Path, outside: Path) -> None:
        self.root, self.outside = root, outside
        self.written: set[bytes] = set()
        """What is somewhere, unless they themselves have deleted it or written over it."""
        self.lay_at: dict[str, set[bytes]] = {}
        self._numbers = itertools.count()

    def do(self, deed: Deed) -> None:
        path, other = self.root / deed.path, self.root / deed.other
        if any(folder.is_symlink() for folder in (*path.parents, *other.parents)):
            return  # they do not work outside either
        with suppress(OSError):
            if deed.what == "write" and not path.is_symlink():
                self._lose(path)
                path.write_bytes(self._content())
            elif deed.what == "replace":
                fresh = self.root.parent / "fresh"
                fresh.write_bytes(self._content())
                held = self._lose(path)
                try:
                    fresh.rename(path)
                except OSError:
                    self.written |= held
                    fresh.unlink()
            elif deed.what == "delete":
                self._lose(path)
                path.unlink()
            elif deed.what == "rename" and path != other:
                held = self._lose(other)
                try:
                    path.rename(other)
                except OSError:
                    self.written |= held
            elif deed.what == "link" and path.is_dir() and not path.is_symlink():
                path.rename(self.root / "aside")
                path.symlink_to(self.outside / "d")
            elif deed.what == "link back" and path.is_symlink() and (self.root / "aside").is_dir():
                path.unlink()
                (self.root / "aside").rename(path)
        self.look()

    def look(self) -> None:
        """Note what lies where."""
        for path, content in contents(self.root).items():
            self.lay_at.setdefault(path, set()).add(content)
            if content.startswith(b"by others"):
                self.written.add(content)

    def _content(self) -> bytes:
        return b"by others %d" % next(self._numbers)

    def _lose(self, path: Path) -> set[bytes]:
        held = {path.read_bytes()} if path.is_file() and not path.is_symlink() else set()
        self.written -= held
        return held


def contents(folder: Path) -> dict[str, bytes]:
    found = {}
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(place, name)
            if path.is_file() and not path.is_symlink() and not is_temporary(os.fsencode(name)):
                found[str(path.relative_to(folder))] = path.read_bytes()
    return found


class Calls:
    """Counts the system calls of this thread that name a file; before each one, whatever is due is done."""

    def __init__(self, deeds: list[Deed], do: Callable[[Deed], None]) -> None:
        self._deeds, self._do = list(deeds), do
        self._thread = threading.get_ident()
        self._counts: Counter[str] = Counter()
        self._is_busy = False

    def __call__(self, arguments: tuple[Any, ...]) -> None:
        if threading.get_ident() == self._thread and not self._is_busy:
            self._is_busy = True
            named = {Path(os.fsdecode(one)).name for one in arguments if isinstance(one, str | bytes)}
            self._counts.update(named)
            for deed in [deed for deed in self._deeds if self._is_due(deed, named)]:
                self._deeds.remove(deed)
                self._do(deed)
            self._is_busy = False

    def _is_due(self, deed: Deed, named: set[str]) -> bool:
        name = Path(deed.path).name
        return name in named and self._counts[name] >= deed.at

    def do_rest(self) -> None:
        for deed in self._deeds:
            self._do(deed)


@contextmanager
def disturbed(deeds: list[Deed], others: Others) -> Iterator[None]:
    calls = Calls(deeds, others.do)

    def wrap(module: Any, name: str) -> None:
        call = getattr(module, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            calls(arguments)
            return call(*arguments, **options)

        patch.setattr(module, name, counted)

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            wrap(os, name)
        for name in ("rename_exclusively", "exchange"):
            wrap(apply, name)
        yield
    calls.do_rest()


class Place(NamedTuple):
    store: lastgood.Store
    task: lastgood.Task
    others: Others

    def kept(self) -> set[bytes]:
        """Return all contents of files that any checkpoint holds, or that lie on the disk."""
        found = set(contents(self.others.root).values())
        for number, checkpoint in enumerate(self.store.list_checkpoints("t", 100)):
            copy = self.others.root.parent / "copies" / str(number)
            self.task.copy_files(checkpoint, copy)
            found |= set(contents(copy).values())
        return found


@contextmanager
def place() -> Iterator[Place]:
    """A task with two checkpoints, files that were edited since, and a folder outside with the same names."""
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        root, outside = Path(folder, "work"), Path(folder, "outside")
        _write(outside, "outside")
        _write(root, "first")
        with lastgood.open(Path(folder, "store"), user="ada", collect="never") as store:
            task = store.task("t", workspace=root)
            task.tag(task.save({"n": 1}), "first")
            _write(root, "second")
            (root / "b").unlink()
            (root / "g").mkdir()
            (root / "g" / "c").write_text("second g/c")
            task.save({"n": 2})
            (root / "a").write_text("by others, before")
            others = Others(root, outside)
            others.look()
            stamps = _stamps(outside)
            yield Place(store, task, others)
            assert _stamps(outside) == stamps


def _write(root: Path, text: str) -> None:
    for name in ["a", "b", "d/a", "d/c", "d/e/f"]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text} {name}")


def _stamps(folder: Path) -> list[tuple[str, int, int]]:
    found = ((path, path.stat()) for path in sorted([folder, *folder.rglob("*")]))
    return [(str(path), status.st_mtime_ns, status.st_ctime_ns) for path, status in found]


@given(_deeds())
@settings(max_examples=60, deadline=None)
def test_what_is_saved_of_a_file_is_what_it_was_at_some_time(deeds: list[Deed]) -> None:
    """And what was there all the time, wherever, is saved, or something is reported."""
    with place() as (_, task, others):
        before = set(contents(others.root).values())
        with disturbed(deeds, others):
            saved = task.save({"n": 3})
        copy = others.root.parent / "copy"
        task.copy_files(saved, copy)
        found = contents(copy)
        for path, content in found.items():
            assert content in others.lay_at[path], f"{path} never was {content!r}"
        lost = before & set(contents(others.root).values()) - set(found.values())
        assert not lost or saved.skipped, f"{lost} was there all the time, and nobody was told"


@given(_deeds())
@settings(max_examples=60, deadline=None)
def test_what_others_write_during_a_restore_is_not_lost(deeds: list[Deed]) -> None:
    with place() as here:
        store, task, others = here
        with disturbed(deeds, others), suppress(lastgood.ConflictError, lastgood.UnavailableError):
            task.restore("first")
        others.look()
        kept = here.kept()
        assert others.written <= kept, f"lost: {others.written - kept}"
        assert not any(content.startswith(b"outside") for content in kept)
        assert store.check().ok
        task = store.task("t", workspace=others.root)
        assert task.recovery().restores == ()
        task.save({"n": 4})
