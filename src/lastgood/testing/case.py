"""What the tests of a catalog work with: a catalog, checkpoints made in a line, and errors that must be raised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from lastgood.catalog.contract import Catalog
from lastgood.catalog.values import (
    Actor,
    Blob,
    Commit,
    Committed,
    HistoryRange,
    NewBranch,
    NewPack,
    NewSlice,
    PackedBlob,
    Position,
    StoredCheckpoint,
)
from lastgood.errors import CheckpointError
from lastgood.model.checkpoint import Attestation, Record, encode_record
from lastgood.model.identity import digest, digest_text, new_id
from lastgood.model.task import BranchInfo, FolderId, Journal, OpenStep, Process, Request, RequestKind, TaskInfo

ADA, BEN = "ada", "ben"
ACTOR = Actor(ADA, "correlation-1")
SOMEBODY = Process("host", 1)


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
        root: bytes = b"root",
        blobs: tuple[bytes, ...] = (),
        announces: bool = True,
        **fields: Any,
    ) -> Committed:
        """Commit a checkpoint on top of `parent`, on its branch unless another is given; its packs are announced.

        `fields` are those of the record and those of the commit.
        """
        if announces:
            self.catalog.announce([pack.name for pack in fields.get("packs", ())], SOMEBODY)
        record = Record(
            id=fields.pop("id", None) or new_id(),
            task_id=task_id,
            parent_id=parent.id if parent else None,
            parent_checksum=parent.checksum if parent else None,
            created_by=owner,
            correlation_id=ACTOR.correlation_id,
            **{name: fields.pop(name) for name in Record.__struct_fields__ if name in fields},
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
            root=None if fields.get("keep_root") else Blob(b"", len(root), 0, root),
            blobs=[inline(blob) for blob in blobs],
            **fields,
        )
        return self.catalog.commit(commit, ACTOR)

    def chain(self, count: int, task_id: str = "task", **fields: Any) -> list[StoredCheckpoint]:
        """Make `count` checkpoints on one branch of a new task, oldest first."""
        made: list[StoredCheckpoint] = []
        for _ in range(count):
            made.append(self.save(task_id, made[-1] if made else None, **fields).stored)
        return made

    def slice(self, task_id: str = "task") -> tuple[int, bytes]:
        """Make a task whose blobs `alpha` and `beta` are parts of another; its number, and that one's digest."""
        first = self.save(task_id, blobs=(b"alpha", b"beta")).stored
        whole = digest(b"alphabeta")
        slices = [NewSlice(digest(b"alpha"), whole, 0), NewSlice(digest(b"beta"), whole, 5)]
        self.save(task_id, first, blobs=(b"alphabeta",), slices=slices)
        return first.task_number, whole

    def fork(self, origin: StoredCheckpoint, name: str, **fields: Any) -> StoredCheckpoint:
        """Make a checkpoint on a new branch beside the active one; its id is its name."""
        return self.save(parent=origin, new=NewBranch(name, name, active=False), **fields).stored

    def restore(
        self, origin: StoredCheckpoint, name: str, expects: str | None = None, **fields: Any
    ) -> StoredCheckpoint:
        return self.save(parent=origin, new=NewBranch(new_id(), name, expects=expects), **fields).stored

    def attest(self, kind: str, *about: StoredCheckpoint, **data: Any) -> list[Attestation]:
        return self.catalog.attest(ADA, [each.id for each in about], kind, data, ACTOR)

    def purge(self, *chosen: StoredCheckpoint) -> list[str]:
        return self.catalog.purge([(ADA, each.id) for each in chosen], ACTOR, all_or_none=True)

    def move(self, way: Literal["undo", "redo"], **how: Any) -> Position:
        return self.catalog.move(ADA, "task", way, ACTOR, **how)

    def step(self, task_id: str = "task", owner: str = ADA, **fields: Any) -> OpenStep:
        return OpenStep(
            id=fields.pop("id", None) or new_id(),
            owner=owner,
            task_id=task_id,
            name="work",
            type="step",
            began_at_us=1 + len(self.catalog.open_steps(None)),
            began_by=owner,
            process=SOMEBODY,
            **fields,
        )

    def stored(self, one: StoredCheckpoint) -> StoredCheckpoint:
        """Return it as it is now."""
        found = self.catalog.checkpoint(ADA, one.id)
        assert found is not None
        return found

    def branch(self, branch_id: str) -> BranchInfo:
        found = self.catalog.branch(ADA, branch_id)
        assert found is not None
        return found

    def active(self) -> str:
        position = self.catalog.position(ADA, "task")
        assert position is not None
        return position.head.id

    def task(self, task_id: str = "task", owner: str = ADA) -> TaskInfo:
        position = self.catalog.position(owner, task_id)
        assert position is not None
        return position.task

    def post(self, branch_id: str, kind: RequestKind = "pause", id: str | None = None, **data: Any) -> Request:
        wanted = Request(id=id or new_id(), branch_id=branch_id, kind=kind, data=data, at_us=7, actor=ADA)
        return self.catalog.post_request(ADA, wanted, ACTOR)

    def whole(self, task_id: str = "task") -> HistoryRange:
        return HistoryRange(self.task(task_id))

    def along(self, branch_id: str) -> HistoryRange:
        return HistoryRange(self.task(), self.branch(branch_id))

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


def digests(*contents: bytes) -> list[bytes]:
    return [digest(content) for content in contents]


def inline(data: bytes) -> Blob:
    return Blob(digest(data), len(data), 0, data)


def pack_name(name: str) -> str:
    return f"packs/aa/{name}"


def pack(name: str, *contents: bytes) -> NewPack:
    """Return a pack of blobs of one byte each."""
    blobs = [PackedBlob(digest(each), 28 + at * 50, 1, 1, 0) for at, each in enumerate(contents)]
    return NewPack(pack_name(name), 90, blobs)


def folder(path: str, inode: str = "") -> FolderId:
    """Return a folder by its path, with a number of its own."""
    return FolderId(path, inode or digest_text(digest(path.encode())), "9", "this boot")


def journal(chosen: StoredCheckpoint, before: StoredCheckpoint, began_at: int = 0) -> Journal:
    return Journal(
        id=new_id(),
        owner=ADA,
        task_id="task",
        began_at_us=began_at,
        process=SOMEBODY,
        chosen=chosen.id,
        before=before.id,
        folders=(folder("/srv/app"),),
    )
