"""A store's catalog with what is spooled shown in it, as if it was there already.

Reads of what neither is spooled nor depends on it go straight to the catalog behind, and so does everything that is
not told here: what needs the store and finds it away raises UnavailableError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec

from lastgood.catalog.contract import Catalog
from lastgood.catalog.values import FILES, Actor, Blob, Commit, Committed, HistoryRange, Position, StoredCheckpoint
from lastgood.errors import NotFoundError, UnavailableError
from lastgood.model.checkpoint import Attestation, decode_record
from lastgood.model.task import MAIN, BranchInfo, EventKind, TaskInfo
from lastgood.model.work import OpenStep
from lastgood.spool.absent import AbsentCatalog
from lastgood.spool.entry import Entry, Waiting, is_provisional
from lastgood.spool.file import SpoolFile, follow

if TYPE_CHECKING:
    from lastgood.spool.spool import Spool

SETTLED_FIRST = frozenset(("move", "destination", "delete_branch", "delete_task", "attest", "begin_journal"))
"""What moves or removes something waits until all that is spooled is in the store; while that is away, it raises."""


class Overlay:
    """Used as a `Catalog`. One that was away in the beginning is opened by whoever finds that it is there."""

    def __init__(self, behind: Catalog, file: SpoolFile, spool: Spool) -> None:
        self._behind = behind
        self._file = file
        self._spool = spool

    @property
    def behind(self) -> Catalog:
        """The store's own catalog; or one that refuses everything, while it is not there."""
        if isinstance(cast(object, self._behind), AbsentCatalog):
            with suppress(UnavailableError):
                self._behind = self._spool.reopen()
        return self._behind

    @property
    def absence(self) -> UnavailableError | None:
        """Why the store could not be opened; None when it is open."""
        behind = cast(object, self._behind)
        return behind.error if isinstance(behind, AbsentCatalog) else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self.behind, name)
        return self._settled_first(found) if name in SETTLED_FIRST else found

    def _settled_first(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def settle_and_work(*about: Any, **more: Any) -> Any:
            self._spool.make_way()
            return work(*about, **more)

        return settle_and_work

    # --- where a task is -----------------------------------------------------------------------------------

    def position(self, owner: str, id: str) -> Position | None:
        if not self._file.has_pending():
            return self.behind.position(owner, id)
        mine = self._file.pending(owner, id)
        try:
            stored = self.behind.position(owner, id)
        except UnavailableError:
            last = _last(mine) or _last(self._file.on_branch(owner, id), by_branch=True)
            if last is None:
                raise
            return self._provisional(last, by_branch=not mine)
        if stored is None:
            last = follow(_children(mine or self._file.on_branch(owner, id)), None)
            return None if last is None else self._provisional(last, by_branch=not mine)
        last = follow(_children(self._file.pending(owner, stored.task.id)), stored.head.id)
        return stored if last is None else self._ahead(stored, last)

    def _ahead(self, stored: Position, last: Waiting) -> Position:
        """A spooled line continues the stored one: its end is the head."""
        branch = msgspec.structs.replace(stored.branch, head=last.as_head())
        head = self._file.entry(last).stored()
        return Position(stored.task, branch, head, stored.by_branch)

    def _provisional(self, last: Waiting, *, by_branch: bool) -> Position:
        entry = self._file.entry(last)
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
        waiting = self._file.waiting(owner, checkpoint_id)
        try:
            found = self.behind.checkpoint(owner, checkpoint_id)
        except UnavailableError:
            if waiting is None:
                raise
            found = None
        return found if found is not None or waiting is None else self._file.entry(waiting).stored()

    def find(self, owner: str, prefix: str, limit: int = 2) -> list[str]:
        mine = self._file.find(owner, prefix, limit)
        try:
            return sorted({*mine, *self.behind.find(owner, prefix, limit)})[:limit]
        except UnavailableError:
            if not mine:
                raise
            return mine

    def checkpoint_at(self, task: TaskInfo, at: int | str) -> StoredCheckpoint | None:
        """A task that is known from the spool alone has no tags that could be looked up."""
        return None if task.number < 0 and isinstance(at, str) else self.behind.checkpoint_at(task, at)

    def purge(
        self, checkpoints: Sequence[tuple[str, str]], actor: Actor, *, all_or_none: bool = False, **limits: Any
    ) -> list[str]:
        if all_or_none:
            self._spool.make_way()
        return self.behind.purge(checkpoints, actor, all_or_none=all_or_none, **limits)

    def checkpoints(
        self,
        line: HistoryRange,
        *,
        before: int | None = None,
        limit: int = 100,
        type: str | None = None,
        verified: bool = False,
    ) -> list[StoredCheckpoint]:
        """What is spooled comes first, and is not verified yet. While the store is away a page ends with that; the next
        one raises."""
        if verified:
            return self.behind.checkpoints(line, before=before, limit=limit, type=type, verified=True)
        spooled = [each for each in reversed(self._spooled(line)) if before is None or each.placement.sequence < before]
        found = [entry.stored() for entry in map(self._file.entry, spooled) if type in (None, _type(entry))][:limit]
        if len(found) == limit:
            return found
        try:
            return found + self.behind.checkpoints(
                self._line_behind(line), before=before, limit=limit - len(found), type=type
            )
        except UnavailableError:
            if not found:
                raise
            return found

    def count(self, line: HistoryRange, type: str | None = None) -> int:
        spooled = [self._file.entry(each) for each in self._spooled(line)]
        mine = sum(type in (None, _type(entry)) for entry in spooled)
        return mine if mine and self._is_new(line) else mine + self.behind.count(self._line_behind(line), type)

    def root(self, stored: StoredCheckpoint) -> Blob | None:
        if not is_provisional(stored.placement.sequence):
            return self.behind.root(stored)
        entry = self._entry(stored.owner, stored.id)
        if entry is None:
            found = self.behind.checkpoint(stored.owner, stored.id)
            return None if found is None else self.behind.root(found)
        commit = entry.body.commit
        if not commit.keep_root:
            return commit.root
        parent = self.checkpoint(stored.owner, commit.record.parent_id or "")
        return None if parent is None else self.root(parent)

    def blobs(self, partition: int, digests: Iterable[bytes]) -> dict[bytes, Blob]:
        if partition > FILES:
            return self.behind.blobs(partition, digests)
        wanted = list(digests)
        found = self._file.blobs(-partition, wanted)
        rest = [key for key in wanted if key not in found]
        if not rest:
            return found
        if partition < FILES:
            about = self._file.task(-partition)
            stored = None if about is None else self.behind.position(*about)
            return found if stored is None else found | self.behind.blobs(stored.task.number, rest)
        return found | self.behind.blobs(FILES, rest)

    def attestations(self, owner: str, checkpoint_id: str) -> list[tuple[Attestation, bytes]]:
        try:
            return self.behind.attestations(owner, checkpoint_id)
        except (UnavailableError, NotFoundError):
            if (entry := self._entry(owner, checkpoint_id)) is None:
                raise
            return entry.attestations()

    # --- steps ---------------------------------------------------------------------------------------------

    def begin_step(self, step: OpenStep, snapshot: Blob | None, lease: int | None = None) -> None:
        """In the spool when the store is away: its end need not wait for the store, either."""
        try:
            self._spool.require_here()
            self.behind.begin_step(step, snapshot, lease)
        except UnavailableError as error:
            if not self._spool.takes(error):
                raise
            self._spool.away(error)
            self._file.begin_step(step, snapshot)

    def commit(self, commit: Commit, actor: Actor) -> Committed:
        """A step that was begun while the store was away may end when it is back, where nobody knows of it."""
        if commit.step is None or all(step.id != commit.step for step, _ in self._file.steps()):
            return self.behind.commit(commit, actor)
        committed = self.behind.commit(msgspec.structs.replace(commit, step=None), actor)
        self._file.end_step(commit.owner, commit.step)
        return committed

    def open_step(self, owner: str, step_id: str) -> tuple[OpenStep, Blob | None] | None:
        for step, snapshot in self._file.steps():
            if (step.owner, step.id) == (owner, step_id):
                return step, snapshot
        return self.behind.open_step(owner, step_id)

    def open_steps(self, owner: str | None, task_id: str | None = None) -> list[OpenStep]:
        mine = [
            step for step, _ in self._file.steps() if owner in (None, step.owner) and task_id in (None, step.task_id)
        ]
        return [*self.behind.open_steps(owner, task_id), *mine]

    def end_step(self, owner: str, step_id: str, kind: EventKind, data: dict[str, Any], actor: Actor) -> None:
        if not self._file.end_step(owner, step_id):
            self._spool.require_here()
            self.behind.end_step(owner, step_id, kind, data, actor)

    # --- for these -----------------------------------------------------------------------------------------

    def _entry(self, owner: str, checkpoint_id: str) -> Entry | None:
        waiting = self._file.waiting(owner, checkpoint_id)
        return None if waiting is None else self._file.entry(waiting)

    def _spooled(self, line: HistoryRange) -> Sequence[Waiting]:
        """What waits on this line, or task. What is in the store already is shown there."""
        if not self._file.has_pending():
            return []
        task, branch = line.task, line.branch
        found = self._file.pending(task.owner, task.id)
        if branch is not None:
            found = _back_from(branch.head.id if branch.head else None, found)
        return [each for each in found if not self._is_stored(each)]

    def _is_stored(self, waiting: Waiting) -> bool:
        try:
            return self.behind.checkpoint(waiting.owner, waiting.id) is not None
        except UnavailableError:
            return False

    def _is_new(self, line: HistoryRange) -> bool:
        """Whether the store has nothing of this task."""
        return line.task.number < 0 and self.behind.position(line.task.owner, line.task.id) is None

    def _line_behind(self, line: HistoryRange) -> HistoryRange:
        """The line as the store knows it."""
        if line.task.number >= 0:
            return line
        found = self.behind.position(line.task.owner, line.branch.id if line.branch else line.task.id)
        if found is None:
            return line
        return HistoryRange(found.task, found.branch if line.branch else None)


def _children(waiting: Sequence[Waiting]) -> dict[str | None, Waiting]:
    return {each.parent_id: each for each in waiting}


def _last(waiting: Sequence[Waiting], *, by_branch: bool = False) -> Waiting | None:
    """The newest; of a task, of those that went where its active branch is."""
    return next((each for each in reversed(waiting) if each.follows or by_branch), None)


def _back_from(head: str | None, waiting: Sequence[Waiting]) -> list[Waiting]:
    """The line that ends there, as far as it waits, oldest first."""
    by_id = {each.id: each for each in waiting}
    line = []
    while head is not None and head in by_id:
        line.append(by_id[head])
        head = by_id[head].parent_id
    return line[::-1]


def _type(entry: Entry) -> str:
    commit = entry.body.commit
    return decode_record(commit.data, commit.checksum, "a spooled checkpoint").type
