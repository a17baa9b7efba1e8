"""What the tests of a catalog work with: a catalog, checkpoints made in a line, and errors that must be raised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lastgood.catalog.contract import Catalog
from lastgood.catalog.values import (
    Actor,
    Blob,
    Commit,
    Committed,
    HistoryRange,
    NewBranch,
    NewEvent,
    NewSlice,
    StoredCheckpoint,
)
from lastgood.errors import CheckpointError
from lastgood.model.checkpoint import Record, encode_record
from lastgood.model.identity import digest, new_id
from lastgood.model.task import TaskInfo
from lastgood.model.work import Process, Request

ADA, BEN = "ada", "ben"
ACTOR = Actor(ADA, "correlation-1")
SOMEBODY = Process("host", 1)
_OF_THE_COMMIT = (
    "file_blobs", "packs", "relies_on", "base", "binding", "journal", "files_move", "keeps_redo", "lease", "fulfilled",
    "begins", "append",
)  # fmt: skip


class CatalogCase:
    """A catalog, and what the tests do with it. A subclass of CatalogConformance says how one is made."""

    catalog: Catalog

    def make_catalog(self) -> Catalog:
        raise NotImplementedError

    def setup_method(self) -> None:
        self.catalog = self.make_catalog()

    def teardown_method(self) -> None:
        self.catalog.close()

    def save(
        self,
        task_id: str = "task",
        parent: StoredCheckpoint | None = None,
        *,
        owner: str = ADA,
        new: NewBranch | None = None,
        branch: str | None = None,
        only_if_active: bool = False,
        root: bytes = b"root",
        blobs: tuple[bytes, ...] = (),
        slices: Sequence[NewSlice] = (),
        keep_root: bool = False,
        step: str | None = None,
        attestations: Sequence[tuple[str, dict[str, Any]]] = (),
        inherited: Sequence[str] = (),
        notes: Sequence[NewEvent] = (),
        announces: bool = True,
        **fields: Any,
    ) -> Committed:
        """Commit a checkpoint on top of `parent`, on its branch unless another is given; its packs are announced."""
        more = {name: fields.pop(name) for name in _OF_THE_COMMIT if name in fields}
        if announces:
            self.catalog.announce([pack.name for pack in more.get("packs", ())], SOMEBODY)
        record = Record(
            id=fields.pop("id", None) or new_id(),
            task_id=task_id,
            parent_id=parent.id if parent else None,
            parent_checksum=parent.checksum if parent else None,
            created_by=owner,
            correlation_id=ACTOR.correlation_id,
            **fields,
        )
        data = encode_record(record)
        if new is None and parent is None and branch is None:
            new = NewBranch(new_id(), "main")
        commit = Commit(
            owner=owner,
            record=record,
            data=data,
            checksum=digest(data),
            branch=new or branch or (parent.placement.branch_id if parent else ""),
            only_if_active=only_if_active,
            root=None if keep_root else Blob(b"", len(root), 0, root),
            keep_root=keep_root,
            blobs=[Blob(digest(blob), len(blob), 0, blob) for blob in blobs],
            slices=slices,
            step=step,
            attestations=attestations,
            inherited=inherited,
            notes=notes,
            **more,
        )
        return self.catalog.commit(commit, ACTOR)

    def chain(self, count: int, task_id: str = "task", **fields: Any) -> list[StoredCheckpoint]:
        """Make `count` checkpoints on one branch of a new task, oldest first."""
        made: list[StoredCheckpoint] = []
        for _ in range(count):
            made.append(self.save(task_id, made[-1] if made else None, **fields).stored)
        return made

    def restore(
        self, origin: StoredCheckpoint, name: str, expects: str | None = None, **fields: Any
    ) -> StoredCheckpoint:
        return self.save(parent=origin, new=NewBranch(new_id(), name, expects=expects), **fields).stored

    def active(self) -> str:
        position = self.catalog.position(ADA, "task")
        assert position is not None
        return position.head.id

    def task(self, task_id: str = "task", owner: str = ADA) -> TaskInfo:
        position = self.catalog.position(owner, task_id)
        assert position is not None
        return position.task

    def request(self, request_id: str, owner: str = ADA) -> Request | None:
        return next(iter(self.catalog.requests(owner, id=request_id)), None)

    def last_verified(self, among: HistoryRange, type: str | None = None) -> StoredCheckpoint | None:
        return next(iter(self.catalog.checkpoints(among, limit=1, type=type, verified=True)), None)

    def whole(self, task_id: str = "task") -> HistoryRange:
        return HistoryRange(self.task(task_id))

    def along(self, branch_id: str, task_id: str = "task") -> HistoryRange:
        branch = self.catalog.branch(ADA, branch_id)
        assert branch is not None
        return HistoryRange(self.task(task_id), branch)

    def listed(self, line: HistoryRange, **how: Any) -> list[str]:
        return [row.id for row in self.catalog.checkpoints(line, **how)]


@contextmanager
def refused(kind: type[CheckpointError]) -> Iterator[list[Any]]:
    """Fail unless the block raises `kind`; the error is left in the list."""
    caught: list[Any] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    else:
        raise AssertionError(f"{kind.__name__} was not raised")
