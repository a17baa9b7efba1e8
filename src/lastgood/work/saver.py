"""Saving the work of a session: when it is due, when it is said, and with what every checkpoint of it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from lastgood.catalog.values import FulfilledRequest
from lastgood.engine.commit import KEPT
from lastgood.errors import CheckpointError, ConflictError, InvalidError

if TYPE_CHECKING:
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.task import Task
    from lastgood.work.autosave import Due


class Saver:
    """`provide` gives the state of the work, if it is the program's to give; `about`, fields for every checkpoint."""

    def __init__(
        self,
        task: Task,
        due: Due,
        provide: Callable[[], Any] | None,
        about: Callable[[], dict[str, Any]] | None,
    ) -> None:
        self._task = task
        self._due = due
        self._provide = provide
        self._about = about
        self._seen: str | None = None

    def present(self) -> Any:
        return KEPT if self._provide is None else self._provide()

    def begin(self) -> None:
        """The first checkpoint of the task. ConflictError when somebody else has begun it meanwhile."""
        first = {} if self._provide is None else self._provide()
        fields = self._fields({"type": "started", "control_state": "running"})
        self._task.save(first, on_failure="raise", **fields)

    def save(self, type: str, *, met: Iterable[FulfilledRequest] = (), **fields: Any) -> Checkpoint:
        """The present."""
        saved = self._task.advance(self.present(), type=type, met=tuple(met), **self._fields(fields))
        self.look()
        return saved

    def record(self, type: str, *, met: Iterable[FulfilledRequest] = (), **fields: Any) -> Checkpoint:
        """That something has happened to the work, which is as it was."""
        saved = self._task.advance(KEPT, capture=False, type=type, met=tuple(met), **self._fields(fields))
        self.look()
        return saved

    def save_at_boundary(self) -> None:
        self.look()
        if (due := self._due.at_boundary()) is not None:
            self.save_by_itself(due)

    def save_while_waiting(self, *, active: bool) -> None:
        self.look()
        if (due := self._due.while_waiting(active=active)) is not None:
            self.save_by_itself(due)

    def save_by_itself(self, type: str, only_on: Checkpoint | None = None) -> None:
        """What has not changed is not saved again. That it fails is an alert: the work goes on."""
        try:
            self._task.advance(self.present(), only_if_changed=True, only_on=only_on, type=type, **self._fields({}))
        except (ConflictError, InvalidError):
            raise
        except CheckpointError:
            pass  # said already
        self.look()
        self._due.saved()

    def save_at_any_moment(self, type: str | None = None) -> bool:
        """In the middle of the work, which may save meanwhile: what was read before that is not saved on top of it.

        None: if it is due.
        """
        self.look()
        if (due := type or self._due.at_boundary()) is None:
            return True
        try:
            self.save_by_itself(due, only_on=self._task.head)
        except Exception as error:  # of the program: its state was just being changed
            self._task.alert(f"the work was not saved: {error}", error, "session")
            return False
        return True

    def look(self) -> None:
        """Whatever was saved through the handle is a save like any other."""
        head = self._task.head
        if head is not None and head.id != self._seen:
            self._seen = head.id
            self._due.saved()

    def _fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        if self._about is None:
            return fields
        about = self._about()
        return {**about, **fields, "metadata": {**about.get("metadata", {}), **(fields.get("metadata") or {})}}
