"""A handle on a task: where it stands, and how it goes on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from lastgood.catalog.contract import NewBranch
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.commit import Draft, Ground, Splitters, write_checkpoint
from lastgood.engine.context import is_logging, log_operation, log_warning
from lastgood.engine.options import OnFailure, check_on_failure
from lastgood.errors import CheckpointError, ConflictError, InvalidError, NotFoundError
from lastgood.model.checkpoint import COMPANIONS, Record
from lastgood.model.digest import SIZE
from lastgood.model.forking import renew_after_fork
from lastgood.model.identity import new_id
from lastgood.model.task import MAIN

if TYPE_CHECKING:
    from lastgood.engine.store import Store

T = TypeVar("T")


class Task:
    """One line of work, as this handle last saw or wrote it.

    A save continues the head that this handle knows; if someone else has moved it, ConflictError is raised and
    nothing is stored. A handle opened by a task's id follows the active branch and conflicts once another one is
    active; opened by a branch's id it stays on that branch. Safe to use from several threads, one save at a time.
    """

    def __init__(self, store: Store, id: str, owner: str) -> None:
        self._store = store
        self._owner = owner
        self.renew_locks()
        renew_after_fork(self)
        self._splitters = Splitters(store.options.max_state_bytes)
        self._warned = False
        self.id = id
        self.refresh()

    @property
    def head(self) -> Checkpoint | None:
        """The checkpoint that this handle goes on from; None before the first."""
        return self._head

    @property
    def state(self) -> Any:
        """The head's state: a fresh copy for each head, never the object that was saved."""
        if self._head is None:
            raise NotFoundError(f"{self.id!r} has no checkpoint yet", hint="ask `if task.head` first")
        return self._head.state

    def load(self, into: type[T]) -> T:
        """The head's state as a value of the class `into`."""
        if self._head is None:
            raise NotFoundError(f"{self.id!r} has no checkpoint yet", hint="ask `if task.head` first")
        return self._head.load(into)

    def refresh(self) -> Checkpoint | None:
        """Look where the task is now, and go on from there."""
        with self._lock:
            position = self._store.catalog.position(self._owner, self.id)
            self._by_branch = position is not None and position.by_branch
            self._task_id = position.task.id if position else self.id
            self._branch: str | NewBranch = position.branch.id if position else NewBranch(new_id(), MAIN)
            self._head = self._store.wrap_intact(position.head) if position else None
            return self._head

    def save(
        self,
        state: Any,
        *,
        message: str = "",
        type: str = "manual",
        step_id: str = "initial",
        iteration: int = 0,
        iteration_state: str | None = None,
        control_state: str | None = None,
        work_item_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        key: str | None = None,
        id: str | None = None,
        artifacts: list[Any] | None = None,
        decisions: list[Any] | None = None,
        guidance: list[Any] | None = None,
        participants: list[Any] | None = None,
        on_failure: OnFailure | None = None,
    ) -> Checkpoint:
        """Save the whole state as one checkpoint on top of the head.

        Artifacts, decisions, guidance and participants stay as they were unless given. `key` makes the save
        idempotent: the same key with the same content returns the checkpoint that is stored, with other content
        it conflicts; `id` names the checkpoint and does the same. Raises ConflictError and UnstorableError always;
        other failures as `on_failure` says: "raise" and "spool" raise, "continue" returns a checkpoint whose
        status is "lost".
        """
        given = zip(COMPANIONS, (artifacts, decisions, guidance, participants), strict=True)
        draft = Draft(
            state=state,
            companions={name: value for name, value in given if value is not None},
            message=message,
            type=type,
            step_id=step_id,
            iteration=iteration,
            iteration_state=iteration_state,
            control_state=control_state,
            work_item_id=work_item_id,
            metadata=metadata if metadata is not None else {},
            key=key,
            id=id,
        )
        policy = on_failure or self._store.options.on_failure
        check_on_failure(policy)
        with self._lock:
            return self._save(draft, policy)

    def append(self, state: Any, **fields: Any) -> Checkpoint:
        """As `save`, on top of whatever the head is at that moment: for one-shot writers that read nothing."""
        with self._lock, self._store.catalog.queue():
            self.refresh()
            return self.save(state, **fields)

    def tag(self, checkpoint: Checkpoint | str, name: str, *, move: bool = False) -> None:
        """Name a checkpoint of this task."""
        checkpoint_id = checkpoint if isinstance(checkpoint, str) else checkpoint.id
        self._store.tag(checkpoint_id, name, move=move, owner=self._owner)

    def find(self, name: str) -> Checkpoint:
        """A checkpoint of this task by any name people use: `HEAD~1`, a tag, `@12`, the beginning of an id."""
        return self._store.find_checkpoint(name, self.id, owner=self._owner)

    def renew_locks(self) -> None:
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<Task {self.id!r} at {self._head!r}>"

    def _save(self, draft: Draft, policy: OnFailure) -> Checkpoint:
        try:
            record, committed = write_checkpoint(
                self._store.catalog, self._ground(), draft, self._splitters, self._store.user
            )
        except (ConflictError, InvalidError):
            raise
        except CheckpointError as error:
            self._store.alert(f"a checkpoint of {self._task_id!r} was not saved: {error}", self._task_id, error)
            if policy == "continue":
                return self._lost(draft)
            raise
        saved = self._store.wrap(committed.stored) if committed.repeated else self._store.hold(committed.stored, record)
        if not committed.repeated or self._is_behind(saved):
            self._head = saved
            self._branch = committed.stored.placement.branch_id
        if not committed.repeated:
            self._say(saved, committed.previous_control_state)
        return saved

    def _ground(self) -> Ground:
        head, only_if_active = self._head, not self._by_branch
        if head is None:
            return Ground(self._owner, self._task_id, self._branch, None, None, only_if_active)
        return Ground(self._owner, self._task_id, self._branch, head.as_head(), head.record, only_if_active)

    def _is_behind(self, saved: Checkpoint) -> bool:
        """Whether `saved`, which had been stored before, lies further on the line that this handle is on."""
        if saved.deleted:
            return False
        head = self._head
        return head is None or (head.branch_id == saved.branch_id and (head.sequence or 0) < (saved.sequence or 0))

    def _lost(self, draft: Draft) -> Checkpoint:
        record = Record(id=draft.id or new_id(), task_id=self._task_id, type=draft.type, message=draft.message)
        return Checkpoint(record, bytes(SIZE), None, _never_stored, status="lost")

    def _say(self, saved: Checkpoint, previous: str) -> None:
        if is_logging():
            log_operation(
                "save",
                user=self._store.user,
                task_id=self._task_id,
                correlation_id=saved.correlation_id,
                prev_state=previous,
                new_state=saved.control_state,
                iteration_state=saved.iteration_state,
                at=saved.record.created_at,
                checkpoint_id=saved.id,
            )
        limit = self._store.options.warn_state_bytes
        if saved.state_size > limit and not self._warned:
            self._warned = True
            log_warning(
                f"the state of {self._task_id} takes {saved.state_size:,} bytes, more than {limit:,}: "
                "keep large content in files",
                task_id=self._task_id,
            )


def _never_stored(name: str, classes: bool) -> Any:
    raise NotFoundError("this checkpoint was lost: it could not be stored", hint="save again")
