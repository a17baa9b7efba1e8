"""A store's catalog with what is spooled shown in it, as if it was stored already.

Reads of what neither is spooled nor depends on it go straight to the store's catalog, and so does every verb that is
not defined here: what needs the store while that is away raises UnavailableError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from lastgood.catalog.contract import Catalog
from lastgood.catalog.values import FILES, Actor, Blob, Commit, Committed, HistoryRange, Position, StoredCheckpoint
from lastgood.engine.engine import SpoolPort
from lastgood.errors import DiskFullError, NotFoundError, UnavailableError
from lastgood.model.checkpoint import Attestation
from lastgood.model.task import MAIN, BranchInfo, EventKind, OpenStep, TaskInfo
from lastgood.spool.entries import Entries, SpooledCheckpoint, Waiting, follow, is_provisional

AFTER_REPLAY = frozenset(("move", "destination", "delete_branch", "delete_task", "attest", "begin_journal"))
"""Verbs that move or remove something: all that is spooled comes into the store first."""
FREEING = frozenset(("attest", "delete_task"))
"""Those of them that make room: on a full disk, where nothing can come into the store, they work on what is there."""


class AbsentCatalog:
    """The catalog of a store that could not be opened, because of `error`: every verb raises."""

    durable = True
    shared = False

    def __init__(self, file: Path, error: UnavailableError) -> None:
        self.address = str(file)
        self.error = error

    def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*_: Any, **__: Any) -> Any:
            raise UnavailableError(
                str(self.error),
                hint=f"what is spooled can be read and gone on from; for the rest: {self.error.hint}",
            ) from self.error

        return refuse


class StoreSpool(SpoolPort, Protocol):
    """The spool as its overlay sees it: it knows whether the store is away."""

    def require_here(self) -> None:
        """UnavailableError while the store is away."""

    def reopen(self) -> Catalog:
        """Open the catalog of a store that was away when it was opened."""


class Overlay:
    """Used as a `Catalog`. What each save needs and nothing is added to are the catalog's own bound methods."""

    def __init__(self, backend: Catalog, entries: Entries, spool: StoreSpool) -> None:
        self._entries = entries
        self._spool = spool
        self._has_steps = False
        self._use(backend)

    @property
    def backend(self) -> Catalog:
        """The store's own catalog, opened if it could not be before; or one that refuses everything."""
        if isinstance(cast(object, self._backend), AbsentCatalog):
            with suppress(UnavailableError):
                self._use(self._spool.reopen())
        return self._backend

    @property
    def open_error(self) -> UnavailableError | None:
        """Why the store could not be opened; None when it is open."""
        backend = cast(object, self._backend)
        return backend.error if isinstance(backend, AbsentCatalog) else None

    def watch_steps(self, has_steps: bool) -> None:
        """Say whether there are steps that were begun in the spool: then each commit may end one of them."""
        self._has_steps = has_steps
        self.commit = self._commit_and_end_step if has_steps else self._backend.commit

    def _use(self, backend: Catalog) -> None:
        self._backend = backend
        self.has_blobs, self.announce = backend.has_blobs, backend.announce
        self.watch_steps(self._has_steps)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self.backend, name)
        return self._after_replay(found, frees=name in FREEING) if name in AFTER_REPLAY else found

    def _after_replay(self, work: Callable[..., Any], *, frees: bool) -> Callable[..., Any]:
        def replay_and_work(*about: Any, **more: Any) -> Any:
            error = self._make_way(frees=frees)
            try:
                return work(*about, **more)
            except NotFoundError:
                if error is None:
                    raise
                raise error from None  # what is spooled cannot be removed before it is in the store

        return replay_and_work

    def _make_way(self, *, frees: bool) -> UnavailableError | None:
        """Bring everything that is spooled into the store; return why that cannot be, if its disk is full and what is
        to be done makes room."""
        try:
            self._spool.make_way()
        except UnavailableError as error:
            if not frees or (not isinstance(error, DiskFullError) and not isinstance(error.__cause__, DiskFullError)):
                raise
            return error
        return None

    # --- where a task is -----------------------------------------------------------------------------------

    def position(self, owner: str, id: str) -> Position | None:
        if not self._entries.has_pending():
            return self.backend.position(owner, id)
        mine = self._entries.pending(owner, id)
        try:
            stored = self.backend.position(owner, id)
        except UnavailableError:
            last = _last(mine) or _last(self._entries.pending_on(owner, id), by_branch=True)
            if last is None:
                raise
            return self._provisional(last, by_branch=not mine)
        if stored is None:
            last = follow(_children(mine or self._entries.pending_on(owner, id)), None)
            return None if last is None else self._provisional(last, by_branch=not mine)
        last = follow(_children(self._entries.pending(owner, stored.task.id)), stored.head.id)
        return stored if last is None else self._ahead(stored, last)

    def _ahead(self, stored: Position, last: Waiting) -> Position:
        """Return the end of a spooled line that continues the stored one."""
        branch = msgspec.structs.replace(stored.branch, head=last.as_head())
        head = self._entries.entry(last).stored()
        return Position(stored.task, branch, head, stored.by_branch)

    def _provisional(self, last: Waiting, *, by_branch: bool) -> Position:
        entry = self._entries.entry(last)
        record = entry.body.commit.record
        begun = entry.branch()
        task = TaskInfo(-last.task, last.task_id, last.owner, last.at, last.branch_id, 0, 0, 0)
        branch = BranchInfo(
            0,
            last.branch_id,
            last.task_id,
            last.owner,
            begun.name if begun else MAIN,
            record.branch_description,
            None,
            0,
            last.as_head(),
            0,
            record.control_state,
            0,
            last.at,
            record.created_by,
            {},
        )
        return Position(task, branch, entry.stored(), by_branch)

    # --- checkpoints ---------------------------------------------------------------------------------------

    def checkpoint(self, owner: str, checkpoint_id: str) -> StoredCheckpoint | None:
        waiting = self._entries.waiting(owner, checkpoint_id)
        try:
            found = self.backend.checkpoint(owner, checkpoint_id)
        except UnavailableError:
            if waiting is None:
                raise
            found = None
        return found if found is not None or waiting is None else self._entries.entry(waiting).stored()

    def find(self, owner: str, prefix: str, limit: int = 2) -> list[str]:
        mine = self._entries.find(owner, prefix, limit)
        try:
            return sorted({*mine, *self.backend.find(owner, prefix, limit)})[:limit]
        except UnavailableError:
            if not mine:
                raise
            return mine

    def checkpoint_at(self, task: TaskInfo, at: int | str) -> StoredCheckpoint | None:
        """Return nothing for a tag of a task that is known from the spool alone."""
        return None if task.number < 0 and isinstance(at, str) else self.backend.checkpoint_at(task, at)

    def purge(
        self, checkpoints: Sequence[tuple[str, str]], actor: Actor, *, all_or_none: bool = False, **limits: Any
    ) -> list[str]:
        if all_or_none:
            self._make_way(frees=True)
        return self.backend.purge(checkpoints, actor, all_or_none=all_or_none, **limits)

    def checkpoints(
        self,
        line: HistoryRange,
        *,
        before: int | None = None,
        limit: int = 100,
        type: str | None = None,
        verified: bool = False,
    ) -> list[StoredCheckpoint]:
        """List what is spooled first; it is not verified yet. While the store is away a page ends with that, and the
        next one raises."""
        if verified:
            return self.backend.checkpoints(line, before=before, limit=limit, type=type, verified=True)
        spooled = [each for each in reversed(self._spooled(line)) if before is None or each.placement.sequence < before]
        found = [
            entry.stored()
            for entry in map(self._entries.entry, spooled)
            if type in (None, entry.body.commit.record.type)
        ][:limit]
        if len(found) == limit:
            return found
        try:
            return found + self.backend.checkpoints(
                self._stored_line(line), before=before, limit=limit - len(found), type=type
            )
        except UnavailableError:
            if not found:
                raise
            return found

    def count(self, line: HistoryRange, type: str | None = None) -> int:
        spooled = [self._entries.entry(each) for each in self._spooled(line)]
        mine = sum(type in (None, entry.body.commit.record.type) for entry in spooled)
        return mine if mine and self._is_new(line) else mine + self.backend.count(self._stored_line(line), type)

    def root(self, stored: StoredCheckpoint) -> Blob | None:
        if not is_provisional(stored.placement.sequence):
            return self.backend.root(stored)
        entry = self._entry(stored.owner, stored.id)
        if entry is None:
            found = self.backend.checkpoint(stored.owner, stored.id)
            return None if found is None else self.backend.root(found)
        commit = entry.body.commit
        if not commit.keep_root:
            return commit.root
        parent = self.checkpoint(stored.owner, commit.record.parent_id or "")
        return None if parent is None else self.root(parent)

    def blobs(self, partition: int, digests: Iterable[bytes]) -> dict[bytes, Blob]:
        if partition > FILES:
            return self.backend.blobs(partition, digests)
        wanted = list(digests)
        found = self._entries.blobs(-partition, wanted)
        rest = [key for key in wanted if key not in found]
        if not rest:
            return found
        if partition < FILES:
            about = self._entries.task(-partition)
            stored = None if about is None else self.backend.position(*about)
            return found if stored is None else found | self.backend.blobs(stored.task.number, rest)
        return found | self.backend.blobs(FILES, rest)

    def attestations(self, owner: str, checkpoint_id: str) -> list[tuple[Attestation, bytes]]:
        try:
            return self.backend.attestations(owner, checkpoint_id)
        except (UnavailableError, NotFoundError):
            if (entry := self._entry(owner, checkpoint_id)) is None:
                raise
            return entry.attestations()

    # --- steps ---------------------------------------------------------------------------------------------

    def begin_step(self, step: OpenStep, snapshot: Blob | None, lease: int | None = None) -> None:
        """Begin it in the spool while the store is away: its end need not wait for the store, either."""
        try:
            self._spool.require_here()
            self.backend.begin_step(step, snapshot, lease)
        except UnavailableError as error:
            if not self._spool.takes(error):
                raise
            self._spool.away(error)
            self._entries.begin_step(step, snapshot)

    def _commit_and_end_step(self, commit: Commit, actor: Actor) -> Committed:
        """Commit. A step that was begun while the store was away may end when it is back, which does not know it."""
        if commit.step is None or all(step.id != commit.step for step, _ in self._entries.steps()):
            return self._backend.commit(commit, actor)
        committed = self._backend.commit(msgspec.structs.replace(commit, step=None), actor)
        self._entries.end_step(commit.owner, commit.step)
        return committed

    def open_step(self, owner: str, step_id: str) -> tuple[OpenStep, Blob | None] | None:
        for step, snapshot in self._entries.steps():
            if (step.owner, step.id) == (owner, step_id):
                return step, snapshot
        return self.backend.open_step(owner, step_id)

    def open_steps(self, owner: str | None, task_id: str | None = None) -> list[OpenStep]:
        mine = [
            step for step, _ in self._entries.steps() if owner in (None, step.owner) and task_id in (None, step.task_id)
        ]
        return [*self.backend.open_steps(owner, task_id), *mine]

    def end_step(self, owner: str, step_id: str, kind: EventKind, data: dict[str, Any], actor: Actor) -> None:
        if not self._entries.end_step(owner, step_id):
            self._spool.require_here()
            self.backend.end_step(owner, step_id, kind, data, actor)

    # --- what waits -----------------------------------------------------------------------------------------

    def _entry(self, owner: str, checkpoint_id: str) -> SpooledCheckpoint | None:
        waiting = self._entries.waiting(owner, checkpoint_id)
        return None if waiting is None else self._entries.entry(waiting)

    def _spooled(self, line: HistoryRange) -> Sequence[Waiting]:
        """List what waits on this line, or of this task, and is not in the store."""
        if not self._entries.has_pending():
            return []
        task, branch = line.task, line.branch
        found = self._entries.pending(task.owner, task.id)
        if branch is not None:
            found = _back_from(branch.head.id if branch.head else None, found)
        return [each for each in found if not self._is_stored(each)]

    def _is_stored(self, waiting: Waiting) -> bool:
        try:
            return self.backend.checkpoint(waiting.owner, waiting.id) is not None
        except UnavailableError:
            return False

    def _is_new(self, line: HistoryRange) -> bool:
        """Return whether the store has nothing of this task."""
        return line.task.number < 0 and self.backend.position(line.task.owner, line.task.id) is None

    def _stored_line(self, line: HistoryRange) -> HistoryRange:
        """Return the line as the store knows it."""
        if line.task.number >= 0:
            return line
        found = self.backend.position(line.task.owner, line.branch.id if line.branch else line.task.id)
        if found is None:
            return line
        return HistoryRange(found.task, found.branch if line.branch else None)


def _children(waiting: Sequence[Waiting]) -> dict[str | None, Waiting]:
    return {each.parent_id: each for each in waiting}


def _last(waiting: Sequence[Waiting], *, by_branch: bool = False) -> Waiting | None:
    """Return the newest; of a task, the newest that followed its active branch."""
    return next((each for each in reversed(waiting) if each.follows or by_branch), None)


def _back_from(head: str | None, waiting: Sequence[Waiting]) -> list[Waiting]:
    """List the line that ends there, as far as it waits, oldest first."""
    by_id = {each.id: each for each in waiting}
    line = []
    while head is not None and head in by_id:
        line.append(by_id[head])
        head = by_id[head].parent_id
    return line[::-1]
