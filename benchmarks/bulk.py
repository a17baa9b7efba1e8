"""Large stores for measuring, made by the real commit code; only the making of them is not durable.

Every checkpoint is written by the engine's own path of a save, many to a transaction. The number of commits
and its witness move once for each transaction, as the database does it.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any, cast

import apsw

from benchmarks.measure import say
from lastgood.catalog.contract import Catalog
from lastgood.catalog.relational.commit import commit as commit_checkpoint
from lastgood.catalog.relational.deletion import attest
from lastgood.catalog.sqlite.connection import SQLiteConnection
from lastgood.catalog.sqlite.database import FileDatabase
from lastgood.catalog.sqlite.group import Write
from lastgood.catalog.values import Actor, Commit, Committed, NewBranch
from lastgood.engine.commit import Draft, Ground, Splitters, write_checkpoint
from lastgood.engine.options import Options
from lastgood.local.location import locate, make_folder
from lastgood.model.checkpoint import Head, Record
from lastgood.model.identity import SHA256, new_id
from lastgood.model.task import MAIN
from lastgood.secrets.redaction import Redaction

TASK, USER = "work", "bench"
BRANCHES = 300
CHECKPOINTS_PER_BRANCH = 3000  # at least: a small store has one branch
VERIFIED_EVERY = 100
BATCH = 5000
TYPES = ("manual", "tool_executed", "step_completed")


def small_state(step: int) -> dict[str, Any]:
    """About 300 bytes, and no two alike."""
    return {
        "step": step,
        "phase": "implement",
        "cursor": {"file": f"src/module_{step % 97}.py", "line": step * 7 % 1000, "column": step % 80},
        "plan": ["read the failing test", "find the cause", "write the change", "run the whole suite"],
        "notes": f"attempt {step}: the third assertion still fails, look at the order of the calls",
        "usage": {"input": step * 813, "output": step * 97},
    }


def make_store(folder: Path, checkpoints: int, seed: int = 1) -> float:
    """A store with one task of so many checkpoints, in random order on up to 300 branches. Seconds a commit."""
    catalog = locate(folder).catalog
    assert catalog is not None
    make_folder(catalog.parent)
    database = FileDatabase(catalog)
    connection = database.read(lambda connection: connection.raw)
    connection.pragma("synchronous", 0)  # for the making alone: who opens the store next has it in full again
    connection.pragma("cache_size", -(256 << 10))
    maker = _Maker(connection, checkpoints, random.Random(seed))
    start = said = time.perf_counter()
    for done in range(0, checkpoints, BATCH):
        count = min(BATCH, checkpoints - done)
        database.writer()(Write(maker.commit_many, (count,), {}, durable=True))
        if time.perf_counter() - said > 10:
            said = time.perf_counter()
            say(f"  made {maker.made:,} of {checkpoints:,} checkpoints, {_rate(start, maker.made)} each")
    took = time.perf_counter() - start
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    database.close()
    _sync(catalog)
    return took / checkpoints


class _Branch:
    def __init__(self, id: str) -> None:
        self.id: str | NewBranch = NewBranch(id, MAIN)
        self.head: Head | None = None
        self.record: Record | None = None
        self.splitters = Splitters(Options().max_state_bytes, SHA256)

    def advance(self, committed: Committed, record: Record) -> None:
        stored = committed.stored
        self.id = stored.placement.branch_id
        self.head = Head(stored.id, stored.checksum, stored.placement.sequence, stored.placement.branch_id)
        self.record = record


class _Maker:
    """Commits one checkpoint after the other, on branches that begin at random ones."""

    def __init__(self, connection: apsw.Connection, checkpoints: int, chance: random.Random) -> None:
        self._catalog = _Bulk(connection)
        self._random = chance
        self._every = max(checkpoints // BRANCHES, CHECKPOINTS_PER_BRANCH)
        self._branches = [_Branch(new_id())]
        self.made = 0

    def commit_many(self, _: object, count: int) -> None:
        for _index in range(count):
            self.commit()

    def commit(self) -> None:
        branch = self._choose()
        self.made += 1
        draft = Draft(
            state=small_state(self.made),
            message=f"step {self.made}",
            type=TYPES[self.made % len(TYPES)],
            step_id=f"step-{self.made % 50}",
            iteration=self.made,
        )
        ground = Ground(USER, TASK, branch.id, branch.head, branch.record, False)
        write_checkpoint(cast(Catalog, self._catalog), ground, draft, branch.splitters, USER, Redaction())
        branch.advance(self._catalog.committed, self._catalog.record)
        if self.made % VERIFIED_EVERY == 0:
            self._catalog.verify(self._catalog.record.id)

    def _choose(self) -> _Branch:
        """Mostly one of those there are; now and then a new one, which becomes active, from where another is."""
        chosen = self._random.choice(self._branches)
        if not self.made or self.made % self._every:
            return chosen
        branch = _Branch("")
        branch.id = NewBranch(new_id(), f"branch-{len(self._branches)}")
        branch.head, branch.record = chosen.head, chosen.record
        self._branches.append(branch)
        return branch


class _Bulk:
    """As much of a catalog as a save needs, inside a transaction that the caller opened."""

    record: Record
    committed: Committed

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = SQLiteConnection(connection)

    def commit(self, commit: Commit, actor: Actor) -> Committed:
        self.record = commit.record
        self.committed = commit_checkpoint(self._connection, commit, actor)
        return self.committed

    def verify(self, checkpoint_id: str) -> None:
        attest(self._connection, USER, checkpoint_id, "verification", {"verified": True}, Actor(USER))


def _rate(start: float, made: int) -> str:
    return f"{(time.perf_counter() - start) / made * 1e6:.0f} µs"


def _sync(file: Path) -> None:
    """What the making left in the system's cache is written now, and not while something is measured."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
