"""What a campaign is: a promise, and many trials of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Plan(NamedTuple):
    """How a campaign is run. `points`: at most so many trials of each part, chosen by the seed (None: all there are).
    `path`: where lastgood is imported from (None: where it is installed)."""

    seed: int = 0
    points: int | None = None
    path: str | None = None

    def choose(self, among: Sequence[T]) -> Sequence[T]:
        """All, or as many as the plan allows, in their order."""
        if self.points is None or len(among) <= self.points:
            return among
        chosen = random.Random(self.seed).sample(range(len(among)), self.points)
        return [among[number] for number in sorted(chosen)]


class Trial(NamedTuple):
    """One point: what was done, and each promise it broke in a sentence. `saves`: how many acknowledged ones were at
    stake, where that is what counts."""

    name: str
    violations: Sequence[str] = ()
    saves: int = 0


class Campaign(NamedTuple):
    """`parts` can be run apart from each other, in any order and at the same time. `obstacle`: why it cannot be run
    here, in a sentence, or None; `obstacle_to`: why one of its parts cannot."""

    name: str
    goals: str
    promise: str
    parts: Sequence[str]
    run: Callable[[str, Plan], Iterator[Trial]]
    obstacle: Callable[[], str | None] = lambda: None
    obstacle_to: Callable[[str], str | None] = lambda part: None
