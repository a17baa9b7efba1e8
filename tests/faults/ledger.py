"""What a store has acknowledged, and what it was asked for: written outside of the store, one line at a time.

A line is written before the call it announces, or after the call that it acknowledges has come back. A torn last line
is no line: nobody was told.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import sqlite3
import stat
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults import shim

KNOWN = os.environ.get("LASTGOOD_FAULTS_KNOWN")
"""A folder for what processes that come later need not find out again, if there is one."""


class Content(NamedTuple):
    """What a checkpoint must hold: digests of its state and of its files (None: it has none)."""

    state: str
    files: str | None


class Ledger:
    """Writes a ledger."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with self._alone():  # whoever was here before may have been killed; whoever is here beside writes on
            os.ftruncate(self._fd, path.read_bytes().rfind(b"\n") + 1)

    def intend(self, message: str, content: Content) -> None:
        """Announce a checkpoint that is going to be asked for."""
        self._write(kind="intended", message=message, content=content)

    def acknowledge(self, id: str, sequence: int, content: Content, *, owner: str | None = None, **more: Any) -> None:
        """Record that the store said that a checkpoint is saved. `more`: whether it is `verified`."""
        self._write(kind="acknowledged", id=id, sequence=sequence, content=content, owner=owner, **more)

    def know(self, content: Content) -> None:
        """Record a state and files that are there: a checkpoint may hold them without being announced."""
        self._write(kind="known", content=content)

    def remove(self, ids: Iterable[str]) -> None:
        """Announce a removal: from now on these checkpoints may be there or not."""
        self._write(kind="removing", ids=list(ids))

    def removed(self, ids: Iterable[str]) -> None:
        """Record that the store said that these are gone."""
        self._write(kind="removed", ids=list(ids))

    def hide(self, ids: Iterable[str]) -> None:
        """Announce a deletion: listed or not, these are whole until somebody collects."""
        self._write(kind="hiding", ids=list(ids))

    def collect(self) -> None:
        """Announce a collection: what is marked as deleted may be gone from now on."""
        self._write(kind="collecting")

    def returned(self, ids: Iterable[str]) -> None:
        """Record that the store said that these are there (again)."""
        self._write(kind="returned", ids=list(ids))

    def damaged(self, ids: Iterable[str]) -> None:
        """Record damage: from now on these are refused, or right."""
        self._write(kind="damaged", ids=list(ids))

    def mend(self, accept_loss: bool = False) -> None:
        """Record that the store is damaged: from now on it is repaired after it was opened."""
        self._write(kind="mending", accept_loss=accept_loss)

    def back_up(self, name: str, ids: Iterable[str], *, made: bool = False) -> None:
        """Announce a backup, or record that it is made: where it is there, it holds at least these checkpoints."""
        self._write(kind="backup", name=name, ids=list(ids), made=made)

    def expect(self, fact: str, allowed: Iterable[Any]) -> None:
        """Record the answers that the store may give to a question (facts.py) from now on."""
        self._write(kind="fact", fact=fact, allowed=list(allowed))

    def tell(self, lines: Sequence[str]) -> str:
        """Record what a tree consists of. Return its digest."""
        digest = digest_lines(lines)
        self._write(kind="tree", digest=digest, lines=lines)
        return digest

    def allow(self, workspace: Iterable[str]) -> None:
        """Record the trees that may be on disk from now on, as soon as somebody has opened the workspace again."""
        self._write(kind="workspace", allowed=list(workspace))

    def report(self, operation: str, code: str, sentence: str) -> None:
        """Record an error of the store."""
        self._write(kind="error", operation=operation, code=code, sentence=sentence)

    def _write(self, **line: Any) -> None:
        with self._alone():
            os.write(self._fd, json.dumps(line).encode() + b"\n")
        shim.mark(line["kind"])

    @contextmanager
    def _alone(self) -> Iterator[None]:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)


class Account(NamedTuple):
    """What a ledger says about a store."""

    acknowledged: dict[str, dict[str, Any]]
    intended: dict[str, Content]
    asked: Counter[str]
    """How often a checkpoint with a message was asked for."""
    states: set[str]
    trees: set[str | None]
    removing: set[str]
    removed: set[str]
    workspace: list[str] | None
    errors: list[dict[str, Any]]
    hidden: set[str]
    """Marked as deleted, or about to be: they may be gone as soon as somebody has collected."""
    damaged: set[str]
    mending: list[bool]
    """Whether losses may be accepted, of each repair that was begun."""
    facts: dict[str, list[Any]]
    told: dict[str, list[str]]
    """What trees consist of, by their digests."""
    backups: dict[str, dict[str, Any]]
    """By name: the ids that are in it at least, and whether it must be there."""


def read_account(path: Path) -> Account:
    account = Account({}, {}, Counter(), set(), {None}, set(), set(), None, [], set(), set(), [], {}, {}, {})
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
        account.asked[line["message"]] += 1
    elif kind in _STANDINGS:
        _stand(account, kind, line["ids"])
    elif kind == "collecting":
        account.hidden.clear()
    elif kind == "mending":
        account.mending.append(line["accept_loss"])
    elif kind == "fact":
        account.facts[line["fact"]] = line["allowed"]
    elif kind == "error":
        account.errors.append(line)
    elif kind == "tree":
        account.told[line["digest"]] = line["lines"]
    elif kind == "backup":
        account.backups[line["name"]] = line
    elif kind == "workspace":
        return account._replace(workspace=line["allowed"])
    return account


_STANDINGS = ("removing", "removed", "hiding", "returned", "damaged")


def _stand(account: Account, kind: str, ids: list[str]) -> None:
    if kind == "damaged":
        account.damaged.update(ids)
        return
    for standing in (account.removing, account.hidden) if kind != "removed" else ():
        standing.difference_update(ids)
    account.removed.difference_update(ids)
    if kind == "hiding":
        account.hidden.update(ids)
    if kind != "returned":
        account.removing.update(ids)
    if kind == "removed":
        account.removed.update(ids)


def state_digest(state: Any) -> str:
    """Return the digest of a state; the type of every part counts."""
    return sha256(repr(_shown(state)).encode())


def _shown(value: Any) -> Any:
    """An AppendList shows nothing but its length."""
    if type(value) is dict:
        return {key: _shown(item) for key, item in value.items()}
    if type(value).__name__ == "AppendList":
        return ("AppendList", *map(_shown, value))
    return [_shown(item) for item in value] if type(value) is list else value


def tree_digest(folder: Path) -> str:
    """Return the digest of a folder: names, kinds, permissions of files, bytes."""
    return digest_lines(tree_lines(folder))


def digest_lines(lines: Sequence[str]) -> str:
    return sha256("\n".join(lines).encode(errors="surrogateescape"))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tree_lines(folder: Path) -> list[str]:
    """Return what lies in a folder, a line each, sorted. Of a database what is committed counts, wherever that lies."""
    held: dict[str, str] = {}
    files: dict[str, tuple[int, bytes]] = {}
    for name, entry in _below(str(folder), ""):
        found = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            held[name] = str(Path(entry.path).readlink())
        elif stat.S_ISDIR(found.st_mode):
            held[name] = "folder"
        else:
            files[name] = found.st_mode & 0o777, Path(entry.path).read_bytes()
    databases = {name for name, (_, content) in files.items() if content.startswith(b"SQLite format 3\0")}
    for name, (mode, content) in files.items():
        log, journal = (files.get(name + end, (0, None))[1] for end in ("-wal", "-journal"))
        is_database = name in databases
        held[name] = f"{mode:o} {_committed(content, log, journal) if is_database else sha256(content)}"
    for name in databases:
        for end in ("-wal", "-shm", "-journal"):
            held.pop(name + end, None)
    return sorted(f"{name}\0{what}" for name, what in held.items())


def _below(folder: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Return all that lies in a folder, by its path below it."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = prefix + entry.name
            yield name, entry
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path, f"{name}/")


@functools.cache
def _committed(database: bytes, log: bytes | None, journal: bytes | None) -> str:
    """Return the digest of all that is committed into a database, as a program finds it that opens it next. The bytes
    of its files say it all, so those that were read by any process before are not read again."""
    files = {"database": database, "database-wal": log, "database-journal": journal}
    known = KNOWN and Path(KNOWN, sha256(repr([(end, data and sha256(data)) for end, data in files.items()]).encode()))
    if known and known.exists():
        return known.read_text()
    with tempfile.TemporaryDirectory(prefix="lastgood-database-", dir=KNOWN) as folder:
        for name, data in files.items():
            if data is not None:
                Path(folder, name).write_bytes(data)
        digest = sha256(_dump(Path(folder, "database")))
        if known:
            Path(folder, "digest").write_text(digest)
            Path(folder, "digest").rename(known)
    return digest


def _dump(path: Path) -> bytes:
    try:
        with closing(sqlite3.connect(path)) as database:
            whole = database.execute("PRAGMA integrity_check").fetchall()
            return repr([whole, *database.iterdump()]).encode()
    except sqlite3.Error as error:
        return repr(error).encode()
