"""One history of a tree, kept twice: checkpoints in a store of ours, and commits in a shadow repository of git.

Both have the same tree and the same changes. Git's side is made by `git fast-import`, so that a thousand commits of a
large tree take seconds and not minutes.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

from benchmarks.measure import say
from benchmarks.tree import Made, change, make_tree
from lastgood.opening import open_store
from lastgood.store import Store

TASK = "history"
EVERY, KEPT = "refs/heads/every", "refs/heads/kept"
"""The branch of all commits, and that of every second one, which has the same trees without the others."""


class History(NamedTuple):
    """A store that lost every second checkpoint, and a repository where nothing leads to every second commit any more.

    `early` is the store as it was after a quarter of the checkpoints, and has lost every second one, too. `repository`
    is packed, as git's automatic gc leaves it; in `loose` only the first commit is, as plain commits leave it.
    """

    tree: Path
    made: Made
    store: Path
    early: Path
    repository: Path
    loose: Path
    checkpoints: int


def make_history(folder: Path, files: int, checkpoints: int, changes: int) -> History:
    tree, store, early = (folder / name for name in ("tree", "store", "early"))
    repository, loose = folder / "repository", folder / "loose"
    say(f"  making {files:,} files, and {checkpoints:,} checkpoints with {changes} changes each")
    made = make_tree(tree, files)
    with open_store(store) as ours, Import(repository, tree) as theirs:
        task = ours.task(TASK, workspace=tree, watch=True)
        for step in range(checkpoints):
            changed = random.Random(step).sample(made.files, changes) if step else None
            change(changed or [], step)
            task.save({"step": step})
            theirs.commit(changed, kept=step % 2 == 1)
            if step + 1 == checkpoints // 4:
                copy_store(store, early)
    for place in (store, early):
        with open_store(place) as ours:
            purge_half(ours)
    say("  packing git's side")
    git(repository, "gc", "-q")
    _loosen(repository, loose)
    git(repository, "update-ref", "-d", EVERY)
    git(repository, "reflog", "expire", "--expire=now", "--all")
    return History(tree, made, store, early, repository, loose, checkpoints)


def purge_half(store: Store) -> None:
    """Every second one; the newest is the head, and stays."""
    head = store.task(TASK).head
    assert head is not None
    for sequence in range((head.sequence or 0) - 1, 0, -2):
        store.purge_checkpoint(store.find_checkpoint(f"@{sequence}", TASK).id)


def copy_store(source: Path, target: Path) -> None:
    """While nobody writes. What SQLite shares between processes is made anew."""
    shutil.copytree(source, target, ignore=lambda _, names: [name for name in names if name.endswith("-shm")])


def _loosen(repository: Path, target: Path) -> None:
    _init(target)
    first = git(repository, "rev-list", "--max-parents=0", EVERY).decode().strip()
    packed = git(repository, "pack-objects", "-q", "--revs", "--stdout", input=first)
    git(target, "index-pack", "--stdin", input=packed)
    since = git(repository, "pack-objects", "-q", "--revs", "--stdout", input=f"{EVERY}\n{KEPT}\n^{first}\n")
    git(target, "unpack-objects", "-q", input=since)
    git(target, "update-ref", KEPT, git(repository, "rev-parse", KEPT).decode().strip())


def _init(repository: Path) -> None:
    repository.mkdir()
    git(repository, "init", "-q", "--bare", "--initial-branch", KEPT.rpartition("/")[2])


class Import:
    """Commits on their way into a bare repository. A context manager: they are there when it ends."""

    def __init__(self, repository: Path, tree: Path) -> None:
        self._tree = tree
        self._marks = 0
        self._heads: dict[str, int] = {}
        self._since_kept: dict[bytes, int] = {}
        _init(repository)
        command = ["git", "fast-import", "--quiet", "--done"]
        self._process = subprocess.Popen(command, env=git_environment(repository), stdin=subprocess.PIPE)
        assert self._process.stdin is not None
        self._stream: IO[bytes] = self._process.stdin

    def __enter__(self) -> Import:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._stream.write(b"done\n")
        self._stream.close()
        if self._process.wait() and kind is None:
            raise RuntimeError("git fast-import failed")

    def commit(self, changed: list[Path] | None, *, kept: bool) -> None:
        """The tree as it is now, after these files changed; None: all of it."""
        paths = changed if changed is not None else [path for path in self._tree.rglob("*") if path.is_file()]
        marks = {os.fsencode(path.relative_to(self._tree)): self._blob(path.read_bytes()) for path in paths}
        self._since_kept |= marks
        self._commit(EVERY, marks)
        if kept:
            self._commit(KEPT, self._since_kept)
            self._since_kept = {}

    def _blob(self, data: bytes) -> int:
        self._marks += 1
        self._stream.write(b"blob\nmark :%d\ndata %d\n%s\n" % (self._marks, len(data), data))
        return self._marks

    def _commit(self, branch: str, files: dict[bytes, int]) -> None:
        self._marks += 1
        write: Callable[[bytes], int] = self._stream.write
        write(b"commit %s\nmark :%d\n" % (branch.encode(), self._marks))
        write(b"committer bench <bench@localhost> %d +0000\ndata 4\nstep\n" % (1_700_000_000 + self._marks))
        if branch in self._heads:
            write(b"from :%d\n" % self._heads[branch])
        for path, mark in files.items():
            write(b"M 100644 :%d %s\n" % (mark, path))
        write(b"\n")
        self._heads[branch] = self._marks


def git(repository: Path, *arguments: str, input: str | bytes = b"") -> bytes:
    given = input.encode() if isinstance(input, str) else input
    command, environment = ["git", *arguments], git_environment(repository)
    return subprocess.run(command, env=environment, input=given, stdout=subprocess.PIPE, check=True).stdout


def git_environment(repository: Path) -> dict[str, str]:
    """Git's defaults, whatever this machine has set; nothing goes on by itself."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    alone = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    settings = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "gc.auto", "GIT_CONFIG_VALUE_0": "0"}
    return {**kept, "GIT_DIR": str(repository), **alone, **settings}
