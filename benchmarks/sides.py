"""The two sides that capture files: a task with a workspace, and a shadow git repository beside the same tree."""

from __future__ import annotations

import gc
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import say, seconds
from benchmarks.tree import Made, change, make_tree
from lastgood.engine.checkpoint import Checkpoint
from lastgood.opening import open_store

TASK = "files"


class Ours:
    """A task with a workspace, and one handle that stays open."""

    def __init__(self, folder: Path, tree: Path, *, watch: bool = False) -> None:
        self.folder = folder
        self._store = open_store(folder)
        self.task = self._store.task(TASK, workspace=tree, watch=watch)
        self._step = 0

    def save(self) -> Checkpoint:
        self._step += 1
        return self.task.save({"step": self._step})

    def close(self) -> None:
        self._store.close()


class Shadow:
    """A repository beside the tree, which git is told of by its environment. Everything else is git's default.

    Automatic gc is off, because it would go on behind the measurements; `pack` does its work.
    """

    def __init__(self, folder: Path, tree: Path) -> None:
        self.folder = folder
        self._tree = tree
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self._environment = {
            **kept,
            "GIT_DIR": str(folder),
            "GIT_WORK_TREE": str(tree),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            **_git_settings({"user.name": "bench", "user.email": "bench@localhost", "gc.auto": "0"}),
        }
        self.run("git init -q")

    def run(self, line: str, **more: str) -> bytes:
        command = ["sh", "-c", line]
        done = subprocess.run(
            command, cwd=self._tree, env={**self._environment, **more}, stdout=subprocess.PIPE, check=True
        )
        return done.stdout

    def save(self, *options: str) -> None:
        self.run(" ".join(["git add -A && git commit -q -m step", *options]))

    def pack(self) -> None:
        self.run("git gc -q")


def _git_settings(settings: dict[str, str]) -> dict[str, str]:
    """As git takes them from its environment."""
    named = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        named |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return named


class Pair:
    """The same tree for both sides; each has captured it once, and packed it as it would by itself."""

    def __init__(self, folder: Path, files: int) -> None:
        self.folder = folder
        self.trees = {"ours": folder / "our-tree", "theirs": folder / "their-tree"}
        say(f"  making {files:,} files, and capturing them once")
        self.made: dict[str, Made] = {side: make_tree(tree, files) for side, tree in self.trees.items()}
        self._step = 0
        self.ours = Ours(folder / "our-store", self.trees["ours"])
        self.ours.save()
        self.theirs = Shadow(folder / "their-repository", self.trees["theirs"])
        self.theirs.save()
        self.theirs.pack()

    def choose(self, side: str, count: int, seed: int) -> list[Path]:
        return random.Random(seed).sample(self.made[side].files, count)

    def change(self, count: int) -> dict[str, list[Path]]:
        """The same edit on both sides, in files that differ from time to time."""
        self._step += 1
        chosen = {side: self.choose(side, count, self._step) for side in self.trees}
        for paths in chosen.values():
            change(paths, self._step)
        return chosen

    def close(self) -> None:
        self.ours.close()


class Settings(NamedTuple):
    folder: Path
    files: int
    pair: Pair


def settled(action: Callable[[], Any]) -> float:
    """How long it takes when nothing is left to do of what came before: no garbage, no unwritten pages."""
    gc.collect()
    os.sync()
    return seconds(action)
