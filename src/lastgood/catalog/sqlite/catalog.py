"""The catalog contract over one SQLite file, or in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import apsw

from lastgood.catalog.contract import Catalog
from lastgood.catalog.sqlite import (
    attestations,
    branches,
    collection,
    commits,
    files,
    leases,
    reading,
    requests,
    steps,
    usage,
)
from lastgood.catalog.sqlite.database import Database, FileDatabase, MemoryDatabase
from lastgood.catalog.values import (
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
from lastgood.errors import NotFoundError
from lastgood.model.checkpoint import Attestation, Head
from lastgood.model.identity import now
from lastgood.model.journal import Journal
from lastgood.model.lease import Lease
from lastgood.model.request import Request
from lastgood.model.step import OpenStep, Process
from lastgood.model.task import BranchInfo, Event, EventKind, TaskInfo

if TYPE_CHECKING:
    from lastgood.catalog.upkeep import Audit, Corrections


class SQLiteCatalog(Catalog):
    """`path` None: in memory, gone with the process."""

    shared = False

    def __init__(self, path: Path | None, clock: Callable[[], int] = now) -> None:
        self._clock = clock
        self.durable = path is not None
        self.file = path
        self._database: Database = MemoryDatabase() if path is None else FileDatabase(path)

    def info(self) -> StoreInfo:
        return self._database.read(reading.read_info)

    def commit(self, commit: Commit, actor: Actor) -> Committed:
        return self._database.write(lambda connection: commits.commit(connection, commit, actor, self._clock()))

    def require_ready(self) -> None:
        self._database.require_ready()

    def queue(self) -> AbstractContextManager[object]:
        return self._database.queue()

    def task(self, owner: str, task_id: str) -> TaskInfo | None:
        return self._database.read(lambda connection: reading.read_task(connection, owner, task_id))

    def position(self, owner: str, id: str) -> Position | None:
        return self._database.read(lambda connection: reading.read_position(connection, owner, id))

    def tasks(self, owner: str | None, after: int = 0, limit: int = 100) -> list[TaskInfo]:
        return self._database.read(lambda connection: reading.read_tasks(connection, owner, after, limit))

    def branch(self, owner: str, branch_id: str) -> BranchInfo | None:
        return self._database.read(lambda connection: reading.read_branch(connection, owner, branch_id))

    def branches(self, task: TaskInfo) -> list[BranchInfo]:
        return self._database.read(lambda connection: reading.read_branches(connection, task.number))

    def activate(
        self, owner: str, branch_id: str, actor: Actor, *, expects: str | None = None, lease: int | None = None
    ) -> Position:
        change = branches.BranchMove(actor, expects, lease, self._clock())
        return self._database.write(lambda connection: branches.activate(connection, owner, branch_id, change))

    def undo(
        self, owner: str, task_id: str, actor: Actor, *, expects: str | None = None, lease: int | None = None
    ) -> Position:
        change = branches.BranchMove(actor, expects, lease, self._clock())
        return self._database.write(lambda connection: branches.undo(connection, owner, task_id, change))

    def redo(
        self, owner: str, task_id: str, actor: Actor, *, expects: str | None = None, lease: int | None = None
    ) -> Position:
        change = branches.BranchMove(actor, expects, lease, self._clock())
        return self._database.write(lambda connection: branches.redo(connection, owner, task_id, change))

    def destination(self, owner: str, task_id: str, way: Literal["undo", "redo"]) -> StoredCheckpoint | None:
        return self._database.read(lambda connection: branches.read_destination(connection, owner, task_id, way))

    def delete_branch(self, owner: str, branch_id: str, actor: Actor) -> int:
        return self._database.write(
            lambda connection: branches.delete_branch(connection, owner, branch_id, actor, self._clock())
        )

    def begin_step(self, step: OpenStep, snapshot: Blob | None, lease: int | None = None) -> None:
        self._database.write(lambda connection: steps.begin_step(connection, step, snapshot, lease), durable=False)

    def open_step(self, owner: str, step_id: str) -> tuple[OpenStep, Blob | None] | None:
        return self._database.read(lambda connection: steps.read_step(connection, owner, step_id))

    def open_steps(self, owner: str | None, task_id: str | None = None) -> list[OpenStep]:
        return self._database.read(lambda connection: steps.read_steps(connection, owner, task_id))

    def end_step(self, owner: str, step_id: str, kind: EventKind, data: dict[str, Any], actor: Actor) -> None:
        self._database.write(lambda connection: steps.end_step(connection, owner, step_id, kind, data, actor))

    def acquire_lease(
        self,
        owner: str,
        branch_id: str,
        process: Process,
        executor: str,
        seconds: float,
        actor: Actor,
        *,
        over: int | None = None,
    ) -> Lease:
        about = (owner, branch_id, process, executor, seconds, over, actor)
        return self._database.write(lambda connection: leases.acquire(connection, *about, self._clock()), durable=False)

    def renew_lease(self, token: int, seconds: float) -> Lease:
        return self._database.write(
            lambda connection: leases.renew(connection, token, seconds, self._clock()), durable=False
        )

    def release_lease(self, token: int) -> None:
        self._database.write(lambda connection: leases.release(connection, token), durable=False)

    def lease(self, owner: str, branch_id: str) -> Lease | None:
        return self._database.read(lambda connection: leases.read_lease(connection, owner, branch_id, self._clock()))

    def post_request(self, owner: str, request: Request, actor: Actor) -> Request:
        return self._database.write(lambda connection: requests.post(connection, owner, request, actor))

    def request(self, owner: str, request_id: str) -> Request | None:
        return self._database.read(lambda connection: requests.read_request(connection, owner, request_id))

    def open_requests(self, owner: str, branch_id: str) -> list[Request]:
        return self._database.read(lambda connection: requests.read_open(connection, owner, branch_id))

    def end_request(
        self,
        owner: str,
        ended: FulfilledRequest,
        status: Literal["met", "refused"],
        actor: Actor,
        *,
        lease: int | None = None,
    ) -> None:
        self._database.write(lambda connection: requests.end(connection, owner, ended, status, actor, lease))

    def checkpoint(self, owner: str, checkpoint_id: str) -> StoredCheckpoint | None:
        return self._database.read(lambda connection: reading.read_checkpoint(connection, owner, checkpoint_id))

    def checkpoint_at(self, task: TaskInfo, sequence: int) -> StoredCheckpoint | None:
        return self._database.read(
            lambda connection: reading.read_checkpoint_number(connection, reading.key(task.number, sequence))
        )

    def find(self, owner: str, prefix: str, limit: int = 2) -> list[str]:
        return self._database.read(lambda connection: reading.find_ids(connection, owner, prefix, limit))

    def tagged(self, task: TaskInfo, tag: str) -> StoredCheckpoint | None:
        return self._database.read(lambda connection: reading.read_tagged(connection, task.number, tag))

    def tags(self, task: TaskInfo) -> dict[str, Head]:
        return self._database.read(lambda connection: reading.read_tags(connection, task.number))

    def checkpoints(
        self, line: HistoryRange, *, before: int | None = None, limit: int = 100, type: str | None = None
    ) -> list[StoredCheckpoint]:
        return self._database.read(lambda connection: reading.read_line(connection, line, before, limit, type))

    def last_verified(self, line: HistoryRange, type: str | None = None) -> StoredCheckpoint | None:
        return self._database.read(lambda connection: reading.read_last_verified(connection, line, type))

    def count(self, line: HistoryRange, type: str | None = None) -> int:
        return self._database.read(lambda connection: reading.count_line(connection, line, type))

    def root(self, stored: StoredCheckpoint) -> Blob | None:
        return self._database.read(
            lambda connection: reading.read_root(connection, reading.key(stored.task_number, stored.placement.sequence))
        )

    def blobs(self, partition: int, digests: Iterable[bytes]) -> dict[bytes, Blob]:
        return self._database.read(lambda connection: reading.read_blobs(connection, partition, digests))

    def has_blobs(self, partition: int, digests: Iterable[bytes]) -> set[bytes]:
        return self._database.read(lambda connection: files.has_blobs(connection, partition, digests))

    def has_files(self) -> bool:
        return self._database.read(files.has_any)

    def bound(self, owner: str, task_id: str, host: str, path: str) -> str | None:
        return self._database.read(lambda connection: files.read_bound(connection, owner, task_id, host, path))

    def bind(self, owner: str, branch_id: str, binding: Binding) -> None:
        self._database.write(lambda connection: files.bind(connection, owner, branch_id, binding))

    def begin_journal(self, journal: Journal) -> None:
        self._database.write(lambda connection: files.begin_journal(connection, journal))

    def journals(self, host: str) -> list[Journal]:
        return self._database.read(lambda connection: files.read_journals(connection, host))

    def end_journal(self, journal_id: str) -> None:
        self._database.write(lambda connection: files.end_journal(connection, journal_id))

    def attest(
        self, owner: str, checkpoint_ids: Sequence[str], kind: str, data: dict[str, Any], actor: Actor
    ) -> list[Attestation]:
        def attest_each(connection: apsw.Connection) -> list[Attestation]:
            return [attestations.attest(connection, owner, id_, kind, data, actor) for id_ in checkpoint_ids]

        return self._database.write(attest_each)

    def attestations(self, owner: str, checkpoint_id: str) -> list[tuple[Attestation, bytes]]:
        def read_all(connection: apsw.Connection) -> list[tuple[Attestation, bytes]]:
            number = reading.number_of(connection, owner, checkpoint_id)
            if number is None:
                raise NotFoundError(f"there is no checkpoint {checkpoint_id!r}", hint="`lastgood log` lists them")
            return reading.read_attestations(connection, number)

        return self._database.read(read_all)

    def events(self, task: TaskInfo, *, after: int = 0, limit: int = 100) -> list[Event]:
        return self._database.read(lambda connection: reading.read_events(connection, task.number, after, limit))

    def history(self, line: HistoryRange, *, before: int | None = None, limit: int = 100) -> list[Event]:
        return self._database.read(lambda connection: reading.read_history(connection, line, before, limit))

    def store_events(self, *, after: int = 0, limit: int = 100) -> list[Event]:
        return self._database.read(lambda connection: reading.read_events(connection, 0, after, limit))

    def purge(self, owner: str, checkpoint_id: str, actor: Actor) -> None:
        self._database.write(lambda connection: attestations.purge(connection, owner, checkpoint_id, actor))

    def delete_task(self, owner: str, task_id: str, actor: Actor) -> int:
        def delete(connection: apsw.Connection) -> int:
            leases.check_task(connection, owner, task_id, self._clock())
            return attestations.delete_task(connection, owner, task_id, actor)

        return self._database.write(delete)

    def size(self) -> int:
        return self._database.size()

    def accept_loss(self) -> int:
        return self._database.accept_loss()

    def close(self) -> None:
        self._database.close()

    def held(self, after: StoredCheckpoint | None = None, limit: int = MAX_PAGE) -> list[CheckpointRoot]:
        return self._database.read(lambda connection: usage.read_held(connection, after, limit))

    def all_branches(self, task: TaskInfo) -> list[BranchInfo]:
        return self._database.read(lambda connection: reading.read_all_branches(connection, task.number))

    def indexed(self, after: int = 0, limit: int = MAX_PAGE) -> list[IndexedBlob]:
        return self._database.read(lambda connection: usage.read_indexed(connection, after, limit))

    def sliced(self, after: SlicedBlob | None = None, limit: int = MAX_PAGE) -> list[SlicedBlob]:
        return self._database.read(lambda connection: usage.read_sliced(connection, after, limit))

    def packs(self) -> list[KnownPack]:
        return self._database.read(usage.read_packs)

    def used_bytes(self) -> int:
        return self._database.read(usage.read_used_bytes)

    def free_bytes(self) -> int:
        return self._database.read(usage.read_free_bytes)

    def deleted_before(self, at: int) -> list[tuple[str, str]]:
        return self._database.read(lambda connection: collection.read_deleted(connection, at))

    def purge_all(
        self,
        checkpoints: Sequence[tuple[str, str]],
        actor: Actor,
        *,
        spare_tagged: bool = False,
        deleted_before: int | None = None,
    ) -> list[str]:
        return self._database.write(
            lambda connection: collection.purge_all(
                connection, checkpoints, actor, spare_tagged=spare_tagged, deleted_before=deleted_before
            )
        )

    def condemn(self, partition: int, digests: Sequence[bytes], at: int) -> None:
        self._database.write(lambda connection: collection.condemn(connection, partition, digests, at), durable=False)

    def acquit(self, partition: int, digests: Sequence[bytes]) -> None:
        self._database.write(lambda connection: collection.acquit(connection, partition, digests), durable=False)

    def remove_blobs(self, partition: int, digests: Sequence[bytes], condemned_before: int) -> int:
        return self._database.write(
            lambda connection: collection.remove_blobs(connection, partition, digests, condemned_before), durable=False
        )

    def remove_slices(self, partition: int, digests: Sequence[bytes]) -> int:
        return self._database.write(
            lambda connection: collection.remove_slices(connection, partition, digests), durable=False
        )

    def move_blobs(self, pack: NewPack, origin: str) -> None:
        self._database.write(lambda connection: collection.move_blobs(connection, pack, origin), durable=False)

    def lying_in(self, pack: str) -> list[IndexedBlob]:
        return self._database.read(lambda connection: usage.read_lying_in(connection, pack))

    def remove_packs(self, names: Sequence[str]) -> list[str]:
        return self._database.write(lambda connection: collection.remove_packs(connection, names))

    def announce(self, names: Sequence[str], process: Process) -> None:
        self._database.write(lambda connection: collection.announce(connection, names, process), durable=False)

    def withdraw(self, names: Sequence[str]) -> None:
        self._database.write(lambda connection: collection.withdraw(connection, names), durable=False)

    def flights(self) -> list[AnnouncedPack]:
        return self._database.read(collection.read_flights)

    def shrink(self, limit: int) -> int:
        return self._database.shrink(limit)

    @contextmanager
    def audit(self) -> Iterator[Audit]:
        from lastgood.catalog.sqlite.audit import SQLiteAudit

        with self._database.auditing() as (connection, lost):
            yield SQLiteAudit(connection, lost)

    def mend(self, mending: Corrections, actor: Actor) -> None:
        from lastgood.catalog.sqlite.mending import mend

        self._database.write(lambda connection: mend(connection, mending, actor))

    def rebuild(self) -> list[str]:
        return self._database.rebuild()
