"""Differences on this side: what has to be read is awaited."""

from __future__ import annotations

from lastgood.aio.checkpoint import Checkpoint, if_any
from lastgood.aio.handle import Fetched, Handle, Plain, bridged
from lastgood.compare.state import StateChange
from lastgood.compare.summary import Stat
from lastgood.engine import difference as engine
from lastgood.engine.difference import FileChange


class FilesDiff(Handle[engine.FilesDiff]):
    """As `lastgood.FilesDiff`: `await diff.changes()`."""

    __slots__ = ()

    changes = Fetched[list[FileChange]]()
    stats = Fetched[list[Stat]]()
    summary = Fetched[str]()
    patch = bridged(engine.FilesDiff.patch)


class Difference(Handle[engine.Difference]):
    """As `lastgood.Difference`: `await difference.state()`."""

    __slots__ = ()

    before = Plain(Checkpoint)
    after = Plain(if_any)
    files = Plain(FilesDiff)
    state = Fetched[list[StateChange]]()
    summary = Fetched[str]()
