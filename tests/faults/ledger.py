"""What a store has acknowledged, and what it was asked for: written outside of the store, one line at a time.

A line is written before the call it announces, or after the call that it acknowledges has come back. A torn last line
is no line: nobody was told.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults import shim


class Content(NamedTuple):
    """What a checkpoint must hold: digests of its state and of its files (None: it has none)."""

    state: str
    files: str | None


class Ledger:
    """The writing side."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def intend(self, message: str, content: Content) -> None:
        """A checkpoint with this message is going to be asked for."""
        self._write(kind="intended", message=message, content=content)

    def acknowledge(self, id: str, sequence: int, content: Content, **more: Any) -> None:
        """The store has said that this checkpoint is saved."""
        self._write(kind="acknowledged", id=id, sequence=sequence, content=content, **more)

    def know(self, content: Content) -> None:
        """Such a state, or such files, are there to be saved: a checkpoint may hold them without being announced."""
        self._write(kind="known", content=content)

    def remove(self, ids: Iterable[str]) -> None:
        """These are going to be removed; from now on they may be there or not."""
        self._write(kind="removing", ids=list(ids))

    def removed(self, ids: Iterable[str]) -> None:
        """The store has said that these are gone."""
        self._write(kind="removed", ids=list(ids))

    def allow(self, workspace: Iterable[str]) -> None:
        """From now on the files on disk are one of these, as soon as somebody has opened the workspace again."""
        self._write(kind="workspace", allowed=list(workspace))

    def report(self, operation: str, code: str, sentence: str) -> None:
        """The store has said that it could not."""
        self._write(kind="error", operation=operation, code=code, sentence=sentence)

    def _write(self, **line: Any) -> None:
        os.write(self._fd, json.dumps(line).encode() + b"\n")
        shim.mark(line["kind"])


class Account(NamedTuple):
    """The reading side: what can be asked of a store by a ledger."""

    acknowledged: dict[str, dict[str, Any]]
    intended: dict[str, Content]
    states: set[str]
    trees: set[str | None]
    removing: set[str]
    removed: set[str]
    workspace: list[str] | None
    errors: list[dict[str, Any]]


def read_account(path: Path) -> Account:
    account = Account({}, {}, set(), {None}, set(), set(), None, [])
    for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else []:
        account = _enter(account, json.loads(line))
    return account


def _enter(account: Account, line: dict[str, Any]) -> Account:
    kind = line["kind"]
    if "content" in line:
        content = line["content"] = Content(*line["content"])
        account.states.add(content.state)
        account.trees.add(content.files)
    if kind == "acknowledged":
        account.acknowledged[line["id"]] = line
    elif kind == "intended":
        account.intended[line["message"]] = line["content"]
    elif kind == "removing":
        account.removing.update(line["ids"])
    elif kind == "removed":
        account.removed.update(line["ids"])
    elif kind == "error":
        account.errors.append(line)
    elif kind == "workspace":
        return account._replace(workspace=line["allowed"])
    return account


def state_digest(state: Any) -> str:
    """Of what was given to a save, or came back from it: the type of every part counts."""
    return hashlib.sha256(repr(state).encode()).hexdigest()


def tree_digest(folder: Path) -> str:
    """Of all that lies in a folder: names, kinds, permissions of files, bytes."""
    lines = []
    for path in sorted(folder.rglob("*")):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            held = str(path.readlink())
        elif stat.S_ISDIR(found.st_mode):
            held = "folder"
        else:
            held = f"{found.st_mode & 0o777:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        lines.append(f"{path.relative_to(folder)}\0{held}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
