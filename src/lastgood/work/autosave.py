"""Saving the work of a session: automatically when due, and when the program asks (A6, E4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.engine.commit import KEPT
from lastgood.engine.save import advance, make_draft, place_in_work, save
from lastgood.errors import CheckpointError, ConflictError, InvalidError
from lastgood.work.clock import Clock, check_seconds

if TYPE_CHECKING:
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.handle import Handle


class Autosave(msgspec.Struct, frozen=True, kw_only=True):
    """A policy of automatic saves, in seconds. Steps, risky operations and requests are saved whatever this says.

    `distance`: at a boundary, when that much has passed since the last checkpoint. `idle`: while the work waits or is
    paused, once nothing has happened for so long. `hourly`: while it is active, so often, unless there is a checkpoint
    younger than `hourly_least`. Nothing is saved twice: what has not changed is left alone.
    """

    distance: float = 300.0
    idle: float = 300.0
    hourly: float = 3600.0
    hourly_least: float = 3300.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            check_seconds(name, getattr(self, name))


class AutosaveTimer:
    """The timer that says which automatic save is due now."""

    def __init__(self, policy: Autosave, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self._saved = self._hour = clock.now()

    def reset(self) -> None:
        """Note that there is a new checkpoint, or that nothing had changed since the last."""
        self._saved = self._clock.now()

    def at_boundary(self) -> str | None:
        """Return the type of the checkpoint that is due while the work runs."""
        return self._hourly() or ("boundary" if self._since(self._saved) >= self._policy.distance else None)

    def while_waiting(self, *, active: bool) -> str | None:
        """Return the type of the checkpoint that is due while the work waits for an answer (active), or is paused."""
        if self._since(self._saved) >= self._policy.idle:
            return "idle"
        return self._hourly() if active else None

    def _hourly(self) -> str | None:
        if self._since(self._hour) < self._policy.hourly:
            return None
        self._hour = self._clock.now()
        return "hourly" if self._since(self._saved) >= self._policy.hourly_least else None

    def _since(self, moment: float) -> float:
        return self._clock.now() - moment


class Saver:
    """A maker of a session's checkpoints: the state as the program gives it, and the fields that each of them has."""

    def __init__(
        self,
        handle: Handle,
        timer: AutosaveTimer,
        state: Callable[[], Any] | None,
        about: Callable[[], dict[str, Any]] | None,
    ) -> None:
        """`state` returns the program's state; None: it stays that of the head. `about` returns the common fields."""
        self._handle = handle
        self._timer = timer
        self._state = state
        self._about = about
        self._seen: str | None = None

    def present(self) -> Any:
        """Return the program's state, or KEPT."""
        return KEPT if self._state is None else self._state()

    def begin(self) -> None:
        """Make the first checkpoint of the task. ConflictError when another process has begun it meanwhile."""
        first = {} if self._state is None else self._state()
        draft = make_draft(first, **self._fields({"type": "started", "control_state": "running"}))
        save(self._handle, draft, policy="raise")

    def save(self, type: str, **fields: Any) -> Checkpoint:
        """Save the present state and files."""
        return self._advance(self.present(), {"type": type, **fields}, capture=True)

    def record(self, type: str, **fields: Any) -> Checkpoint:
        """Save that something has happened to the work, with the state and files of the head."""
        return self._advance(KEPT, {"type": type, **fields}, capture=False)

    def save_at_boundary(self) -> None:
        self.note_saves()
        if (due := self._timer.at_boundary()) is not None:
            self.save_if_changed(due)

    def save_while_waiting(self, *, active: bool) -> None:
        self.note_saves()
        if (due := self._timer.while_waiting(active=active)) is not None:
            self.save_if_changed(due)

    def save_if_changed(self, type: str, only_on: Checkpoint | None = None) -> None:
        """Save by itself. That it fails is an alert: the work goes on."""
        try:
            draft = make_draft(self.present(), type=type, **self._fields({}))
            advance(self._handle, draft, only_if_changed=True, only_on=only_on)
        except (ConflictError, InvalidError):
            raise
        except CheckpointError:
            pass  # an alert was sent already
        self.note_saves()
        self._timer.reset()

    def save_at_any_moment(self, type: str | None = None) -> bool:
        """Save in the middle of the work, which may save meanwhile: what was read before that is not saved on top.

        Without a `type`, only if it is due. Return False when it failed.
        """
        self.note_saves()
        if (due := type or self._timer.at_boundary()) is None:
            return True
        try:
            self.save_if_changed(due, only_on=self._handle.head)
        except Exception as error:  # of the program: its state was just being changed
            self._handle.alert(f"the work was not saved: {error}", error, code="session")
            return False
        return True

    def note_saves(self) -> None:
        """Reset the timer if there is a new head: whatever was saved through the handle is a save like any other."""
        head = self._handle.head
        if head is not None and head.id != self._seen:
            self._seen = head.id
            self._timer.reset()

    def _advance(self, state: Any, fields: dict[str, Any], *, capture: bool) -> Checkpoint:
        saved = advance(self._handle, make_draft(state, **self._fields(fields)), capture=capture)
        self.note_saves()
        return saved

    def _fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        place = place_in_work(self._handle.head)
        if self._about is None:
            return {**place, **fields}
        about = self._about()
        return {**place, **about, **fields, "metadata": {**about.get("metadata", {}), **(fields.get("metadata") or {})}}
