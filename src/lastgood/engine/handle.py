"""A handle: where one caller stands on a task, and the folders that its files lie in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from lastgood.engine.blobs import FileBlobs
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.cursor import Cursor
from lastgood.engine.engine import Engine
from lastgood.engine.load import load_checkpoint
from lastgood.engine.names import resolve
from lastgood.errors import InvalidError

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog
    from lastgood.engine.workspace import Folders, Workspace


class Handle:
    """What the operations on a task work with."""

    def __init__(
        self, engine: Engine, user: str, id: str, owner: str, folders: Folders | None = None, *, watch: bool = False
    ) -> None:
        self.engine = engine
        self.user = user
        self.cursor = Cursor(engine, user, id, owner)
        self.workspace: Workspace | None = None
        if folders is not None:
            from lastgood.engine.workspace import Workspace

            self.workspace = Workspace(engine, folders, watch=watch)
            engine.close_with(self.workspace)

    @property
    def owner(self) -> str:
        return self.cursor.owner

    @property
    def task_id(self) -> str:
        return self.cursor.task_id

    @property
    def branch_id(self) -> str | None:
        return self.cursor.branch_id

    @property
    def head(self) -> Checkpoint | None:
        return self.cursor.head

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
            raise InvalidError("there is no workspace", hint="open it: store.task(…, workspace=folder)")
        return self.workspace

    def workspace_locked(self) -> AbstractContextManager[None]:
        """Hold the workspace's lock, which comes before the writers' queue, always."""
        return nullcontext() if self.workspace is None else self.workspace.locked()

    def find(self, name: str) -> Checkpoint:
        """Return a checkpoint of this task by any name people use."""
        found = resolve(self.catalog, self.owner, name, self.cursor.id)
        return load_checkpoint(self.engine, self.owner, found)

    def choose(self, checkpoint: Checkpoint | str) -> Checkpoint:
        """Return a checkpoint of this task as it lies in this store, whatever the object at hand says."""
        if isinstance(checkpoint, str):
            chosen = self.find(checkpoint)
        else:
            chosen = load_checkpoint(self.engine, self.owner, checkpoint.id)
            if chosen.checksum != checkpoint.checksum:
                raise InvalidError(f"checkpoint {chosen.id} is not this store's", hint="give its id, or one from here")
        if chosen.task_id != self.task_id:
            raise InvalidError(f"checkpoint {chosen.id} belongs to another task", hint=f"open {chosen.task_id!r}")
        return chosen
