"""The catalog's contract over any database that offers a connection: each method is one transaction."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from lastgood.catalog.contract import Catalog
from lastgood.catalog.relational import branches, collection, deletion, records, sessions
from lastgood.catalog.relational.commit import commit as commit_checkpoint
from lastgood.catalog.relational.connection import Connection, key
from lastgood.catalog.values import (
    FILES,
    MAX_PAGE,
    Actor,
    AnnouncedPack,
    Binding,
    Blob,
    CheckpointRoot,
    Commit,
    Committed,
    FulfilledRequest,
    HistoryRange,
    IndexedBlob,
    KnownPack,
    NewPack,
    Position,
    SlicedBlob,
    StoredCheckpoint,
    StoreInfo,
)
from lastgood.model.checkpoint import Attestation, Head
from lastgood.model.task import BranchInfo, Event, EventKind, Journal, Lease, OpenStep, Process, Request, TaskInfo

T = TypeVar("T")
P = ParamSpec("P")
Work = Callable[Concatenate[Connection, P], T]


class RelationalCatalog(Catalog):
    """A database adds how a transaction is opened, and what only it can do."""

    @abstractmethod
    def _read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `work` finds in a snapshot."""

    @abstractmethod
    def _write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `work` returns, when all that it did is durable; if it raises, nothing has happened."""

    @abstractmethod
    def _write_soon(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Write without waiting for the disk: it survives this process, and power loss once a durable write follows."""

    # --- records --------------------------------------------------------------------------------------------------

    def info(self) -> StoreInfo:
        return self._read(records.read_info)

    def commit(self, commit: Commit, actor: Actor) -> Committed:
        return self._write(commit_checkpoint, commit, actor)

    def tasks(self, owner: str | None, after: int = 0, limit: int = 100) -> list[TaskInfo]:
        return self._read(records.read_tasks, owner, after, limit)

    def position(self, owner: str, id: str) -> Position | None:
        return self._read(records.read_position, owner, id)

    def checkpoint(self, owner: str, checkpoint_id: str) -> StoredCheckpoint | None:
        return self._read(records.read_checkpoint, owner, checkpoint_id)

    def checkpoint_at(self, task: TaskInfo, at: int | str) -> StoredCheckpoint | None:
        return self._read(records.read_checkpoint_at, task.number, at)

    def find(self, owner: str, prefix: str, limit: int = 2) -> list[str]:
        return self._read(records.find_ids, owner, prefix, limit)

    def tags(self, task: TaskInfo) -> dict[str, Head]:
        return self._read(records.read_tags, task.number)

    def checkpoints(
        self,
        among: HistoryRange,
        *,
        before: int | None = None,
        limit: int = 100,
        type: str | None = None,
        verified: bool = False,
    ) -> list[StoredCheckpoint]:
        return self._read(records.read_verified if verified else records.read_page, among, before, limit, type)

    def count(self, among: HistoryRange, type: str | None = None) -> int:
        return self._read(records.count, among, type)

    def root(self, stored: StoredCheckpoint) -> Blob | None:
        return self._read(records.read_root, key(stored.task_number, stored.placement.sequence))

    def blobs(self, partition: int, digests: Iterable[bytes]) -> dict[bytes, Blob]:
        return self._read(records.read_blobs, partition, digests)

    def has_blobs(self, partition: int, digests: Iterable[bytes]) -> set[bytes]:
        return self._read(records.has_blobs, partition, digests)

    def may_have_files(self) -> bool:
        return self._read(records.has_any_blob, FILES)

    def attest(
        self,
        owner: str,
        checkpoint_ids: Sequence[str],
        kind: str,
        data: dict[str, Any],
        actor: Actor,
        *,
        last_event: int | None = None,
    ) -> list[Attestation]:
        return self._write(deletion.attest_all, owner, checkpoint_ids, kind, data, actor, last_event)

    def attestations(self, owner: str, checkpoint_id: str) -> list[tuple[Attestation, bytes]]:
        return self._read(records.read_attestations, owner, checkpoint_id)

    def events(self, task: TaskInfo | None, *, after: int = 0, limit: int = 100) -> list[Event]:
        return self._read(records.read_events, records.STORE if task is None else task.number, after, limit)

    def history(self, among: HistoryRange, *, before: int | None = None, limit: int = 100) -> list[Event]:
        return self._read(records.read_history, among, before, limit)

    # --- branches -------------------------------------------------------------------------------------------------

    def branch(self, owner: str, branch_id: str) -> BranchInfo | None:
        return self._read(records.read_branch, owner, branch_id)

    def branches(self, task: TaskInfo, *, deleted: bool = False) -> list[BranchInfo]:
        return self._read(records.read_branches, task.number, deleted=deleted)

    def move(
        self,
        owner: str,
        id: str,
        way: Literal["switch", "undo", "redo"],
        actor: Actor,
        *,
        expects: str | None = None,
        lease: int | None = None,
    ) -> Position:
        by = branches.BranchMove(actor, expects, lease)
        if way == "switch":
            return self._write(branches.activate, owner, id, by)
        return self._write(branches.retrace, owner, id, way, by)

    def destination(self, owner: str, task_id: str, way: Literal["undo", "redo"]) -> StoredCheckpoint | None:
        return self._read(branches.read_destination, owner, task_id, way)

    def delete_branch(self, owner: str, branch_id: str, actor: Actor) -> int:
        return self._write(deletion.delete_branch, owner, branch_id, actor)

    # --- steps ----------------------------------------------------------------------------------------------------

    def begin_step(self, step: OpenStep, snapshot: Blob | None, lease: int | None = None) -> None:
        self._write_soon(sessions.begin_step, step, snapshot, lease)

    def open_step(self, owner: str, step_id: str) -> tuple[OpenStep, Blob | None] | None:
        return self._read(sessions.read_step, owner, step_id)

    def open_steps(self, owner: str | None, task_id: str | None = None) -> list[OpenStep]:
        return self._read(sessions.read_steps, owner, task_id)

    def end_step(self, owner: str, step_id: str, kind: EventKind, data: dict[str, Any], actor: Actor) -> None:
        self._write(sessions.end_step, owner, step_id, kind, data, actor)

    # --- leases ---------------------------------------------------------------------------------------------------

    def acquire_lease(
        self,
        owner: str | None,
        id: str,
        process: Process,
        executor: str,
        seconds: float,
        actor: Actor,
        *,
        over: int | None = None,
    ) -> Lease:
        return self._write_soon(sessions.acquire_lease, owner, id, process, executor, seconds, actor, over)

    def renew_lease(self, token: int, seconds: float) -> Lease:
        return self._write_soon(sessions.renew_lease, token, seconds)

    def release_lease(self, token: int) -> None:
        self._write_soon(sessions.release_lease, token)

    def lease(self, owner: str | None, id: str) -> Lease | None:
        return self._read(sessions.read_lease, owner, id)

    # --- requests -------------------------------------------------------------------------------------------------

    def post_request(self, owner: str, request: Request, actor: Actor) -> Request:
        return self._write(sessions.post_request, owner, request, actor)

    def requests(self, owner: str, *, id: str | None = None, branch_id: str | None = None) -> list[Request]:
        return self._read(sessions.read_requests, owner, id, branch_id)

    def end_request(
        self,
        owner: str,
        ended: FulfilledRequest,
        status: Literal["fulfilled", "refused"],
        actor: Actor,
        *,
        lease: int | None = None,
    ) -> None:
        self._write(sessions.end_request, owner, ended, status, actor, lease)

    # --- folders --------------------------------------------------------------------------------------------------

    def bound(self, owner: str, task_id: str, host: str, path: str) -> str | None:
        return self._read(branches.read_bound, owner, task_id, host, path)

    def bind(self, owner: str, branch_id: str, binding: Binding) -> None:
        self._write(branches.bind, owner, branch_id, binding)

    def begin_journal(self, journal: Journal) -> None:
        self._write(branches.begin_journal, journal)

    def journals(self, host: str) -> list[Journal]:
        return self._read(branches.read_journals, host)

    def end_journal(self, journal_id: str) -> None:
        self._write(branches.end_journal, journal_id)

    # --- deletion -------------------------------------------------------------------------------------------------

    def delete_task(self, owner: str, task_id: str, actor: Actor) -> int:
        return self._write(deletion.delete_task, owner, task_id, actor)

    def deleted_before(self, at: int) -> list[tuple[str, str]]:
        return self._read(deletion.read_deleted, at)

    def purge(
        self,
        checkpoints: Sequence[tuple[str, str]],
        actor: Actor,
        *,
        all_or_none: bool = False,
        spare_tagged: bool = False,
        deleted_before: int | None = None,
    ) -> list[str]:
        if all_or_none:
            return self._write(deletion.purge_all, checkpoints, actor)
        return self._write(deletion.purge_some, checkpoints, actor, spare_tagged, deleted_before)

    # --- collection -----------------------------------------------------------------------------------------------

    def held(self, after: StoredCheckpoint | None = None, limit: int = MAX_PAGE) -> list[CheckpointRoot]:
        return self._read(collection.read_held, after, limit)

    def indexed(self, after: int = 0, limit: int = MAX_PAGE, *, pack: str | None = None) -> list[IndexedBlob]:
        return self._read(collection.read_indexed, after, limit, pack)

    def sliced(self, after: SlicedBlob | None = None, limit: int = MAX_PAGE) -> list[SlicedBlob]:
        return self._read(collection.read_sliced, after, limit)

    def packs(self) -> list[KnownPack]:
        return self._read(collection.read_packs)

    def condemn(self, partition: int, digests: Sequence[bytes], at: int | None) -> None:
        self._write_soon(collection.condemn, partition, digests, at)

    def remove_blobs(
        self, partition: int, digests: Sequence[bytes], condemned_before: int | None, *, lease: int | None = None
    ) -> int:
        return self._write_soon(collection.remove_blobs, partition, digests, condemned_before, lease)

    def move_blobs(self, pack: NewPack, origin: str) -> None:
        self._write_soon(collection.move_blobs, pack, origin)

    def remove_packs(self, names: Sequence[str]) -> list[str]:
        return self._write(collection.remove_packs, names)

    def announce(self, names: Sequence[str], process: Process | None) -> None:
        self._write_soon(collection.announce, names, process)

    def announced(self) -> list[AnnouncedPack]:
        return self._read(collection.read_announced)
