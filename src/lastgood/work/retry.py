"""How long to wait before something is tried again. Pure: who asks brings the chance along."""

from __future__ import annotations

import msgspec

from lastgood.errors import InvalidError


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds: the `first` wait, each next one `factor` times as long, none longer than `most`. `jitter` is the part of
    each, from 0 to 1, that is left to chance, so that many who failed together do not come back together."""

    first: float = 1.0
    factor: float = 2.0
    most: float = 60.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        for name, low, high in (("first", 0, 1e9), ("factor", 1, 1e9), ("most", 0, 1e9), ("jitter", 0, 1)):
            value = getattr(self, name)
            if type(value) not in (int, float) or not low <= value <= high:
                raise InvalidError(f"{name} is not a number from {low}", hint="see lastgood.Backoff", field=name)

    def delay(self, failures: int, chance: float) -> float:
        """After so many failures in a row (from 1); `chance` is drawn from 0 to 1."""
        try:
            whole = min(self.most, self.first * self.factor ** (failures - 1))
        except OverflowError:
            whole = self.most
        return whole * (1 - self.jitter * chance)


def as_backoff(given: Backoff | float | None) -> Backoff:
    """A number is the first wait."""
    if isinstance(given, Backoff):
        return given
    return Backoff() if given is None else Backoff(first=given)
