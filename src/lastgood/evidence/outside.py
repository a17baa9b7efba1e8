"""How the world outside may be looked at: which addresses, for how long, how often (D9)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Literal, get_args

from lastgood.errors import BusyError, ForbiddenError, InvalidError, UnavailableError

Network = Literal["public", "any", "off"]
"""Which connections evidence may make: to public addresses alone, to any, or none at all."""

_FIRST_WAIT_SECONDS = 0.25


class NotYet(Exception):  # noqa: N818
    """The claim does not hold, and a moment later it may. Its text is the sentence that says how."""


class Deadline:
    """A moment on a clock, for all that is waited for until then together."""

    __slots__ = ("_at", "_clock")

    def __init__(self, at: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._at = at
        self._clock = clock

    def left(self) -> float:
        """Seconds, more than none; TimeoutError when it has passed."""
        if (seconds := self._at - self._clock()) <= 0:
            raise TimeoutError
        return seconds

    def allows(self, seconds: float) -> bool:
        return seconds < self._at - self._clock()


class Outside:
    """What a verifier was told about the world outside. Safe for threads."""

    def __init__(
        self,
        network: Network,
        attempts: int,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if network not in get_args(Network):
            raise InvalidError(
                f"network cannot be {network!r}", hint=f"one of {', '.join(get_args(Network))}", field="network"
            )
        self.network = network
        self._attempts = attempts
        self._sleep = sleep
        self._clock = clock

    def deadline(self, at: float, timeout: float | None) -> Deadline:
        """`at`, or `timeout` seconds from now if that is sooner."""
        return Deadline(at if timeout is None else min(at, self._clock() + timeout), self._clock)

    def require_connections(self) -> None:
        """ForbiddenError where evidence may make no connection."""
        if self.network == "off":
            raise ForbiddenError(
                "evidence makes no connections here",
                hint='network="public" allows them, on the command line LASTGOOD_NETWORK=public',
            )

    def insist(self, look: Callable[[Deadline], str | None], deadline: Deadline) -> str | None:
        """What `look` says. While it says NotYet or BusyError, it is called again after longer and longer waits, each
        of a random length so that many who wait do not come back at once; never beyond the deadline."""
        attempt = 1
        while True:
            wait = _FIRST_WAIT_SECONDS * 2 ** (attempt - 1) * (0.5 + _chance() / 2)
            is_last = attempt >= self._attempts
            try:
                return look(deadline)
            except NotYet as reason:
                if is_last or not deadline.allows(wait):
                    return str(reason)
            except BusyError as reason:
                if is_last or not deadline.allows(wait):
                    raise UnavailableError(reason.message, hint=reason.hint) from reason
            self._sleep(wait)
            attempt += 1


def _chance() -> float:
    return os.urandom(1)[0] / 256
