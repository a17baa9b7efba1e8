"""A handle: where one caller stands on a task (branch, head, lease), and the folders that its files lie in."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal

from lastgood.catalog.values import NewBranch, Position
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.commit import Ground, Splitters
from lastgood.engine.engine import Engine
from lastgood.engine.load import load_checkpoint, wrap_intact
from lastgood.errors import ConflictError, InvalidError, NotFoundError
from lastgood.local.process import renew_after_fork
from lastgood.model.checkpoint import Head
from lastgood.model.identity import new_id
from lastgood.model.task import MAIN

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog
    from lastgood.engine.blobs import FileBlobs
    from lastgood.engine.workspace import Folders, Workspace


class Handle:
    """A task or a branch as it was last seen or written. `lock` makes several calls one; they all take it, too."""

    task_id: str
    branch: str | NewBranch
    head: Checkpoint | None
    by_branch: bool
    is_active: bool

    def __init__(
        self,
        engine: Engine,
        user: str,
        id: str,
        owner: str,
        folders: Folders | Literal[False] | None = None,
        *,
        watch: bool = False,
    ) -> None:
        self.engine = engine
        self.user = user
        self.id = id
        self.owner = owner
        self.by_branch = False
        self.lease: int | None = None
        """The token of the session that works through this handle."""
        self.renew_locks()
        renew_after_fork(self)
        self.splitters = Splitters(engine.options.max_state_bytes, engine.blob_id)
        self.spool_splitters = Splitters(engine.options.max_state_bytes, engine.blob_id)
        self.has_warned = False
        """Whether it was said that the state is large."""
        self.refresh()
        self.workspace: Workspace | None = None
        self.leaves_files = folders is False
        """Whether files are left alone, also where it is known which folder they lie in."""
        if folders is not None and folders is not False:
            self.open_workspace(folders, watch=watch)

    def open_workspace(self, folders: Folders, *, watch: bool = False) -> None:
        from lastgood.engine.workspace import Workspace

        self.workspace = Workspace(self.engine, folders, watch=watch)
        self.engine.close_with(self.workspace)

    def renew_locks(self) -> None:
        self.lock = threading.RLock()
        self.lease = None  # of a child: the session is its parent's

    # --- standing ------------------------------------------------------------------------------------------

    def refresh(self) -> Checkpoint | None:
        """Read where the task is now, and stand there."""
        with self.lock:
            position = self.engine.catalog.position(self.owner, self.id)
            if position is not None:
                return self.adopt(position)
            if self.by_branch:
                raise NotFoundError(f"the branch {self.id!r} is gone", hint="open the task by its own id")
            self.is_active = True
            self.task_id, self.branch = self.id, NewBranch(new_id(), MAIN)
            self.head = None
            return None

    def adopt(self, position: Position) -> Checkpoint:
        """Stand at `position`."""
        self.by_branch = position.by_branch
        self.is_active = position.task.active_branch_id == position.branch.id
        self.task_id, self.branch = position.task.id, position.branch.id
        self.head = wrap_intact(self.engine, position.head)
        return self.head

    @property
    def branch_id(self) -> str | None:
        """The branch that this is on; None before the first checkpoint."""
        return self.branch if isinstance(self.branch, str) else None

    def require_head(self) -> Checkpoint:
        if self.head is None:
            raise NotFoundError(f"{self.id!r} has no checkpoint yet", hint="ask `if task.head` first")
        return self.head

    def expected(self) -> str | None:
        """Return the head of the active branch as it was seen here, if this is on that branch."""
        return self.head.id if self.head is not None and self.is_active else None

    def steered_state(self) -> str | None:
        """Return the control state that a session keeps when it goes to another branch; None without a session."""
        return None if self.lease is None or self.head is None else self.head.control_state

    def ground(self) -> Ground:
        """Return what a save stands on now."""
        head, only_if_active = self.head, not self.by_branch and self.is_active
        if head is None:
            return Ground(self.owner, self.task_id, self.branch, None, None, only_if_active)
        return Ground(self.owner, self.task_id, self.branch, head.as_head(), head.record, only_if_active, self.lease)

    def require_unmoved(self) -> None:
        """Raise ConflictError if the head, or whether this branch is active, is not what was seen here."""
        with self.lock:
            position = self.engine.catalog.position(self.owner, self.id)
            head = identity_of(position.branch.head if position else None)
            active = position is None or position.task.active_branch_id == position.branch.id
            if head != identity_of(self.head) or active != self.is_active:
                raise self.moved("this handle last saw it")

    def moved(self, since: str) -> ConflictError:
        """Return the error that the task has moved on since then."""
        position = self.engine.catalog.position(self.owner, self.id)
        return ConflictError(
            f"{self.task_id!r} has moved on since {since}",
            hint="look at error.head, then task.refresh() and try again on top of it",
            head=position.branch.head if position else None,
        )

    def is_behind(self, saved: Checkpoint) -> bool:
        """Return whether `saved`, which had been stored before, lies further on the line that this is on."""
        if saved.deleted:
            return False
        head = self.head
        return head is None or (head.branch_id == saved.branch_id and (head.sequence or 0) < (saved.sequence or 0))

    # --- store and files -----------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        return self.engine.catalog

    @property
    def blobs(self) -> FileBlobs:
        return self.engine.blobs

    def alert(self, message: str, error: Exception | None = None, *, code: str) -> None:
        """Send an alert about this task."""
        self.engine.alert(message, self.task_id, error, code=code)

    def require_workspace(self) -> Workspace:
        if self.workspace is None:
            raise InvalidError("there is no workspace", hint="open it: store.task(…, workspace=folder)", folders=[])
        return self.workspace

    def find(self, name: str) -> Checkpoint:
        """Return a checkpoint of this task by any name people use."""
        from lastgood.engine.recovery import resolve_name

        found = resolve_name(self.engine, self.user, self.owner, name, self.id)
        return load_checkpoint(self.engine, self.owner, found)

    def choose(self, checkpoint: Checkpoint | str) -> Checkpoint:
        """Return a checkpoint of this task as it lies in this store, whatever the object at hand says."""
        if isinstance(checkpoint, str):
            chosen = self.find(checkpoint)
        elif not isinstance(checkpoint, Checkpoint):
            raise InvalidError(
                "there is no checkpoint to restore" if checkpoint is None else "this is no checkpoint",
                hint="last_good() returns None if none is good; give a checkpoint, its id, a tag, HEAD or @12",
            )
        else:
            chosen = load_checkpoint(self.engine, self.owner, checkpoint.id)
            if chosen.checksum != checkpoint.checksum:
                raise InvalidError(f"checkpoint {chosen.id} is not this store's", hint="give its id, or one from here")
        if chosen.task_id != self.task_id:
            raise InvalidError(f"checkpoint {chosen.id} belongs to another task", hint=f"open {chosen.task_id!r}")
        return chosen


def identity_of(checkpoint: Checkpoint | Head | None) -> tuple[str, bytes] | None:
    """Return what a head is known by wherever it lies: a spooled one gets another place in the store."""
    head = checkpoint.as_head() if isinstance(checkpoint, Checkpoint) else checkpoint
    return None if head is None else (head.id, head.checksum)
