"""What happened to a task, entry by entry, with the names that people use for branches and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lastgood.views.document import compose
from lastgood.views.records import find_place

if TYPE_CHECKING:
    from lastgood import Checkpoint, Store
    from lastgood.types import Entry

PAGE = 1000


class TaskNames:
    """The names of the branches and checkpoints of a task."""

    def __init__(self, store: Store, task_id: str, owner: str | None) -> None:
        self._store = store
        self._task_id = task_id
        self._owner = owner
        self._branches = {one.id: one.name for one in store.branches(task_id, owner=owner)}

    def branch(self, branch_id: str) -> str | None:
        """Return the name of a branch, also of a deleted one."""
        return self._branches.get(branch_id) or self._deleted.get(branch_id)

    def sequence(self, checkpoint_id: str | None) -> int | None:
        """Return the sequence of a checkpoint, also of a purged one."""
        found = find_place(self._store, self._owner, checkpoint_id)
        return found.sequence if found else None

    def checkpoint(self, checkpoint_id: str | None) -> Checkpoint | None:
        """Return a checkpoint; None once it is gone."""
        found = find_place(self._store, self._owner, checkpoint_id)
        return None if found is None else found.checkpoint

    @cached_property
    def _deleted(self) -> dict[str, str]:
        """Branches of which nothing is left but what the log says."""
        found = self._store.history(self._task_id, kinds=["branch_deleted"], limit=PAGE, owner=self._owner)
        return {str(entry.data.get("branch")): str(entry.data.get("name", "")) for entry in found}


def view_entries(entries: list[Entry], names: TaskNames) -> Iterator[dict[str, Any]]:
    """Return entries as JSON shows them."""
    return (compose(entry, checkpoint_sequence=names.sequence(entry.checkpoint_id)) for entry in entries)
