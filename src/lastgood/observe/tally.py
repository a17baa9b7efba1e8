"""Numbers that add up. Not safe for threads by itself: the meter calls it under its lock."""

from __future__ import annotations

from bisect import bisect_left

from lastgood.observe.table import BYTES, METRICS, SECONDS

MAX_VALUES = 50
"""Of one label. Types of checkpoints and evidence are an open set, and every value costs memory wherever it is kept."""
MAX_CHARACTERS = 64
OTHER = "other"
MINUTE = 60
SAVES = ("save_duration_seconds", "save_state_bytes", "save_new_bytes")


class Distribution:
    """A histogram: how many values fell into each bucket, the last one without an upper end."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    def copy(self) -> Distribution:
        copied = Distribution(self.bounds)
        copied.counts, copied.sum = self.counts.copy(), self.sum
        return copied


class Tally:
    """Counters by name and label values, histograms, and how many saves each of the last 60 seconds had."""

    def __init__(self) -> None:
        self.counters: dict[tuple[str, tuple[str, ...]], float] = {}
        self._known: dict[tuple[str, int], set[str]] = {}
        self._stored: dict[str, int] = {}
        self.histograms = {one.name: Distribution(one.bounds) for one in METRICS.values() if one.kind == "histogram"}
        self._of_saves = tuple(map(self.histograms.__getitem__, SAVES))
        self._seconds, self._saves = [-1] * MINUTE, [0] * MINUTE

    def add(self, name: str, values: tuple[str, ...], amount: float) -> None:
        try:
            self.counters[name, values] += amount
        except KeyError:
            key = name, tuple(self._bounded(name, index, value) for index, value in enumerate(values))
            self.counters[key] = self.counters.get(key, 0) + amount

    def add_stored(self, type: str, at: float, seconds: float, state_bytes: int, new_bytes: int, files: int) -> None:
        """A checkpoint that was stored at `at`, in seconds of the meter's clock. Spelled out, because every save pays
        for it: with a call for each histogram and counter it took half as long again."""
        try:
            self._stored[type] += 1
        except KeyError:
            bounded = self._bounded("saves", 1, type)
            self._stored[bounded] = self._stored.get(bounded, 0) + 1
        durations, states, new = self._of_saves
        durations.counts[bisect_left(SECONDS, seconds)] += 1
        durations.sum += seconds
        states.counts[bisect_left(BYTES, state_bytes)] += 1
        states.sum += state_bytes
        new.counts[bisect_left(BYTES, new_bytes)] += 1
        new.sum += new_bytes
        if files:
            self.add("files_captured", (), files)
        second = int(at)
        slot = second % MINUTE
        if self._seconds[slot] != second:
            self._seconds[slot], self._saves[slot] = second, 0
        self._saves[slot] += 1

    def saves_since(self, second: int) -> int:
        """Stored after the end of that second."""
        return sum(saves for at, saves in zip(self._seconds, self._saves, strict=True) if at > second)

    def copy(self) -> Tally:
        """To be read; all that was stored is among the counters."""
        copied = Tally()
        copied.counters = self.counters | {("saves", ("stored", kind)): saves for kind, saves in self._stored.items()}
        copied.histograms = {name: one.copy() for name, one in self.histograms.items()}
        copied._seconds, copied._saves = self._seconds.copy(), self._saves.copy()
        return copied

    def _bounded(self, name: str, index: int, value: str) -> str:
        """The value itself, as long as there are not too many."""
        value = value[:MAX_CHARACTERS]
        known = self._known.setdefault((name, index), set())
        if value not in known:
            if len(known) >= MAX_VALUES:
                return OTHER
            known.add(value)
        return value
