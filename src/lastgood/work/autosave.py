"""When a session saves by itself (A6, E4)."""

from __future__ import annotations

import msgspec

from lastgood.errors import InvalidError
from lastgood.work.clock import Clock


class Autosave(msgspec.Struct, frozen=True, kw_only=True):
    """All in seconds. Steps, risky operations and what people ask for are saved whatever this says.

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


def check_seconds(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise InvalidError(f"{name} is not a number of seconds", hint="give one above 0", field=name)
    return value


class Due:
    """What is due now, and why: asked wherever the work can be saved."""

    def __init__(self, policy: Autosave, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self._saved = self._hour = clock.now()

    def saved(self) -> None:
        """There is a new checkpoint (whatever people do makes one); or nothing had changed since the last."""
        self._saved = self._clock.now()

    def at_boundary(self) -> str | None:
        """The type of the checkpoint that is due while the work runs."""
        return self._hourly() or ("boundary" if self._since(self._saved) >= self._policy.distance else None)

    def while_waiting(self, *, active: bool) -> str | None:
        """The same while it waits for an answer (active), or is paused."""
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
