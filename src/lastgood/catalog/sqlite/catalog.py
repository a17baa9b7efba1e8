"""The catalog in one SQLite file, or in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.catalog.relational.catalog import RelationalCatalog
from lastgood.catalog.relational.connection import P, T, Work
from lastgood.catalog.sqlite.database import FileDatabase, MemoryDatabase
from lastgood.catalog.sqlite.group import Write
from lastgood.catalog.values import Actor, DiskUse

if TYPE_CHECKING:
    from lastgood.catalog.upkeep import Audit, Corrections


class SQLiteCatalog(RelationalCatalog):
    """`path` None: in memory, gone with the process."""

    shared = False

    def __init__(self, path: Path | None, *, read_only: bool = False) -> None:
        self.durable = path is not None
        self.address = None if path is None else str(path)
        self._database = MemoryDatabase() if path is None else FileDatabase(path, read_only=read_only)

    def _read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.read(work, *args, **kwargs)

    def _write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.writer()(Write(work, args, kwargs, durable=True))

    def _write_soon(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._database.writer()(Write(work, args, kwargs, durable=False))

    def require_ready(self) -> None:
        self._database.require_ready()

    def exclusive(self) -> AbstractContextManager[object]:
        return self._database.queue()

    def disk_use(self) -> DiskUse:
        return self._database.disk_use()

    def shrink(self, limit: int) -> int:
        return self._database.shrink(limit)

    def accept_loss(self) -> int:
        return self._database.accept_loss()

    @contextmanager
    def audit(self) -> Iterator[Audit]:
        from lastgood.catalog.sqlite.audit import SQLiteAudit

        with self._database.auditing() as (raw, lost):
            yield SQLiteAudit(raw, lost)

    def correct(self, corrections: Corrections, actor: Actor) -> None:
        from lastgood.catalog.sqlite.repair import correct

        self._write(correct, corrections, actor)

    def back_up(self, path: Path) -> None:
        self._database.back_up(path)

    def rebuild(self) -> list[str]:
        return self._database.rebuild()

    def close(self) -> None:
        self._database.close()
